"""What a candidate could keep from one call of `run` to the next, and so tell the judge's calls from real ones.

Lists and dicts have no methods here and their items cannot be set; what is left is `+=`, `*=` and `|=`, which change
them in place through any name. Host functions may use these on names only that hold a fresh value or a number.
"""

import ast
from collections.abc import Iterator

from kernel_search.judge.scope import Refused, dotted

IN_PLACE = (ast.Add, ast.Mult, ast.BitOr)  # the other operators know no lists and no dicts
MAKES_NEW = frozenset("int float bool abs len range list dict tuple triton.cdiv triton.next_power_of_2".split())
NUMBER_METHODS = frozenset("numel dim element_size size stride".split())  # or tuples, which no operator changes
NUMBER_ATTRIBUTES = frozenset("shape ndim multi_processor_count max_shared_mem warp_size".split())


def check_lasting_state(tree: ast.Module, hosts: list[ast.FunctionDef]) -> None:
    """Refuse what could change a list or dict that outlives the call.

    Raises:
        Refused: A host function has an operator that might.
    """
    for host in hosts:
        changes = [n for n in ast.walk(host) if isinstance(n, ast.AugAssign) and isinstance(n.op, IN_PLACE)]
        kept = _kept_names(host) if changes else set()
        for change in changes:
            name = change.target.id if isinstance(change.target, ast.Name) else ""
            if name in kept:
                message = (
                    f"{name} may be a list or dict that outlives the call: write {name} = {name} … instead of {name} …="
                )
                raise Refused("screen", message, change.lineno)


def _kept_names(host: ast.FunctionDef) -> set[str]:
    """Names that may hold a list or dict from outside: arguments, and what is not plainly made here."""
    arguments = host.args
    kept = {argument.arg for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
    for target, value in _bindings(host):
        kept |= _kept_in(target, value)
    return kept


def _bindings(host: ast.FunctionDef) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Everything that is assigned to, with its value; None where the value is an item of something."""
    for node in ast.walk(host):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield target, node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield node.target, node.value
        elif isinstance(node, ast.For):
            yield node.target, _item(node.iter)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield node.optional_vars, None


def _item(iterated: ast.expr) -> ast.expr | None:
    """An expression as fresh as the items of `iterated`, None where they may be anything."""
    is_range = isinstance(iterated, ast.Call) and dotted(iterated.func) in ("range", "tl.range")
    return ast.Constant(0) if is_range or _is_number_attribute(iterated) else None


def _kept_in(target: ast.expr, value: ast.expr | None) -> set[str]:
    if isinstance(target, ast.Tuple | ast.List):
        parts: list[ast.expr | None] = [None] * len(target.elts)
        if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts):
            parts = [*value.elts]
        elif value is not None and _is_number_attribute(value):
            parts = [ast.Constant(0)] * len(parts)
        return {name for one, part in zip(target.elts, parts, strict=True) for name in _kept_in(one, part)}
    is_fresh = value is not None and _is_fresh(value)
    return {target.id} if isinstance(target, ast.Name) and not is_fresh else set()


def _is_number_attribute(value: ast.expr) -> bool:
    """A tensor's sizes or a device's numbers; nothing else that has such an attribute can be changed in place."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Attribute) and value.func.attr in NUMBER_METHODS
    return isinstance(value, ast.Attribute) and value.attr in NUMBER_ATTRIBUTES


def _is_fresh(value: ast.expr) -> bool:
    """Whether a value is a number, or made by this very expression."""
    if isinstance(value, ast.IfExp):
        return _is_fresh(value.body) and _is_fresh(value.orelse)
    if isinstance(value, ast.BoolOp):
        return all(_is_fresh(part) for part in value.values)
    if isinstance(value, ast.Subscript):
        return _is_number_attribute(value.value)
    if isinstance(value, ast.Call):
        called = dotted(value.func) or ""
        if called in ("min", "max"):  # with a number among several they return a number, or fail
            has_number = any(isinstance(part, ast.Constant) or _is_number_attribute(part) for part in value.args)
            return has_number and len(value.args) > 1 and not value.keywords
        return called in MAKES_NEW or called.startswith("math.") or _is_number_attribute(value)
    kinds = (ast.Constant, ast.List, ast.Dict, ast.ListComp, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.Compare)
    return isinstance(value, kinds) or _is_number_attribute(value)
