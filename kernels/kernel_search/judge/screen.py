"""The static screen: the first check of a candidate, on its syntax tree, before anything of it runs.

An allow-list, not a list of known tricks: imports, statements, names, attributes and keywords are those of
vocabulary.py or defined in the file, everything else is refused. It filters; the boundary is the sandbox.
"""

import ast
import functools
import threading
from dataclasses import dataclass, field

from kernel_search.judge import vocabulary
from kernel_search.judge.scope import FunctionScope, Refused, check_loose_names, dotted

MAX_SOURCE_CHARACTERS = 60_000
# CPython 3.11 counts the depth of a syntax tree that it builds in one place for all threads; two at once end in a
# SystemError when a garbage collection in between lets the other thread run.
ONE_PARSE_AT_A_TIME = threading.Lock()
STATEMENTS = (
    ast.FunctionDef, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Expr,
    ast.Pass, ast.Import, ast.ImportFrom, ast.Assert, ast.Raise, ast.Break, ast.Continue, ast.With,
)  # fmt: skip
EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.IfExp, ast.Attribute, ast.Subscript, ast.Slice,
    ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Lambda, ast.JoinedStr, ast.FormattedValue, ast.ListComp,
    ast.Starred,
)  # fmt: skip


@dataclass(frozen=True)
class Screened:
    """A candidate that passed.

    `kernel_source` is the text without host functions: what the compile server gets, and what compiles are cached by.
    """

    kernels: tuple[str, ...]
    kernel_source: str
    names: frozenset[str] = field(default_factory=frozenset)


def screen(source: str) -> Screened:
    """Screen one candidate.

    Raises:
        Refused: It does not parse, or uses something that is not allowed.
    """
    try:
        return _screen(source)
    except RecursionError:
        raise Refused("syntax", "nested too deeply") from None


def _screen(source: str) -> Screened:
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise Refused("screen", f"{len(source)} characters; {MAX_SOURCE_CHARACTERS} are possible")
    try:
        with ONE_PARSE_AT_A_TIME:
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Refused("syntax", getattr(error, "msg", None) or str(error), getattr(error, "lineno", None)) from None
    kernels = [node for node in tree.body if isinstance(node, ast.FunctionDef) and _is_kernel(node)]
    hosts = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not _is_kernel(node)]
    module_names = _module_names(tree)
    for node in tree.body:
        _check_module_statement(node)
    for node in ast.walk(tree):
        _check_node(node)
    _check_attribute_chains(tree, {kernel.name for kernel in kernels})
    for kernel in kernels:
        FunctionScope(kernel, module_names, is_kernel=True).check()
    for host in hosts:
        FunctionScope(host, module_names, is_kernel=False).check()
    check_loose_names(tree, module_names)
    if not any(host.name == "run" and not host.decorator_list for host in hosts):
        raise Refused("contract", "no function run")
    if not kernels:
        raise Refused("no_launch", "no @triton.jit kernel")
    kernel_tree = ast.Module([node for node in tree.body if node not in hosts], [])
    return Screened(tuple(k.name for k in kernels), ast.unparse(kernel_tree), frozenset(module_names))


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any(dotted(d.func if isinstance(d, ast.Call) else d) == "triton.jit" for d in node.decorator_list)


def _module_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        defined: list[str] = []
        if isinstance(node, ast.FunctionDef):
            defined = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if not all(isinstance(target, ast.Name) for target in targets):
                raise Refused("screen", "module-level assignment to something that is no plain name", node.lineno)
            defined = [target.id for target in targets if isinstance(target, ast.Name)]
        for name in defined:
            if name in names:
                raise Refused("screen", f"module-level name {name} is set twice", node.lineno)
            if name in vocabulary.MODULE_NAMES:
                raise Refused("screen", f"{name} is the name of a module", node.lineno)
            names.add(name)
    return names


def _check_module_statement(node: ast.stmt) -> None:
    if isinstance(node, ast.Import):
        for alias in node.names:
            _check_import(alias.name, None, alias.asname, node.lineno)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            _check_import(node.module if not node.level else "." * node.level, alias.name, alias.asname, node.lineno)
    elif isinstance(node, ast.FunctionDef):
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            if not isinstance(default, ast.Constant | ast.UnaryOp | ast.Attribute | ast.Name):
                raise Refused("screen", f"default of {node.name} is not a constant", node.lineno)
    elif not isinstance(node, ast.Assign | ast.AnnAssign) and not (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        raise Refused("screen", f"module-level {type(node).__name__}", node.lineno)


def _check_import(module: str | None, name: str | None, alias: str | None, line: int) -> None:
    if (module, name, alias) not in vocabulary.IMPORTS:
        raise Refused("screen", f"import of {'.'.join(part for part in (module, name) if part)}", line)


def _check_node(node: ast.AST) -> None:
    """Checks that need no context: kinds of nodes, names, keywords, places that may be assigned to."""
    line = getattr(node, "lineno", None)
    if isinstance(node, ast.stmt) and not isinstance(node, STATEMENTS):
        raise Refused("screen", f"statement {type(node).__name__}", line)
    if isinstance(node, ast.expr) and not isinstance(node, EXPRESSIONS):
        raise Refused("screen", f"expression {type(node).__name__}", line)
    if isinstance(node, ast.Name | ast.arg | ast.FunctionDef):
        name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else node.name
        if name.startswith("__") or not name.isascii():
            raise Refused("screen", f"name {name}", line)
    if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred) and not isinstance(node.ctx, ast.Load):
        raise Refused("screen", f"assignment to {ast.unparse(node)[:40]}", line)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        raise Refused("screen", "the @ operator", line)
    if (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mod)
        and isinstance(node.left, ast.Constant | ast.JoinedStr)
        and (isinstance(node.left, ast.JoinedStr) or isinstance(node.left.value, str | bytes))
    ):
        raise Refused("screen", "text formatting", line)
    if isinstance(node, ast.With):
        for item in node.items:
            if not (isinstance(item.context_expr, ast.Call) and dotted(item.context_expr.func) == "torch.cuda.device"):
                raise Refused("screen", "with statement other than torch.cuda.device", line)
    if isinstance(node, ast.FunctionDef):
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if dotted(called) not in ("triton.jit", "triton.autotune", "triton.heuristics"):
                raise Refused("screen", f"decorator {ast.unparse(decorator)[:40]}", line)


def _check_attribute_chains(tree: ast.Module, kernels: set[str]) -> None:
    """Modules are used by allowed chains only, kernels are launched or called only, texts are not formatted."""
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and not _is_inside_error(node, parents):
            raise Refused("screen", "text formatting outside an error message", node.lineno)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            top: ast.AST = node
            while isinstance(parents[top], ast.Attribute):
                top = parents[top]
            if node.id in ("torch", "triton", "tl", "math", "libdevice"):
                _check_module_chain(node.id, dotted(top) or "", node.lineno)
            elif node.id in kernels and not _is_kernel_use(node, parents):
                raise Refused("screen", f"kernel {node.id} is used as a value", node.lineno)
        if isinstance(node, ast.Call):
            _check_keywords(node)


def _is_inside_error(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    while node in parents:
        child, node = node, parents[node]
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Assert) and child is node.msg):
            return True
    return False


def _is_kernel_use(node: ast.Name, parents: dict[ast.AST, ast.AST]) -> bool:
    """A launch `kernel[grid](…)`, a call from a kernel, or an argument of a call (a combine function)."""
    parent = parents[node]
    if isinstance(parent, ast.Subscript) and parent.value is node:
        launch = parents[parent]
        return isinstance(launch, ast.Call) and launch.func is parent
    return isinstance(parent, ast.Call | ast.keyword)


def _check_module_chain(module: str, dotted: str, line: int) -> None:
    chain = dotted.removeprefix(module).removeprefix(".")
    if not chain:
        raise Refused("screen", f"module {module} is used as a value", line)
    allowed = {
        "torch": vocabulary.TORCH, "triton": vocabulary.TRITON, "tl": vocabulary.LANGUAGE, "math": vocabulary.MATH,
        "libdevice": vocabulary.LIBDEVICE,
    }[module]  # fmt: skip
    if chain in allowed:
        return
    if module == "tl" and chain in vocabulary.REMOVED_LANGUAGE:
        raise Refused(
            "removed_api", f"tl.{chain} was removed from Triton; use masked pointers or tensor descriptors", line
        )
    # An attribute of an allowed value, such as torch.cuda.get_device_properties(0).multi_processor_count, is no chain:
    # it stands on a call. What is left is either forbidden or does not exist; the latter is an error of language.
    if module == "tl" and "." not in chain and not _exists_in_language(chain):
        raise Refused("language", f"triton.language has no {chain}", line)
    raise Refused("screen", f"{dotted} is not allowed", line)


@functools.cache
def _exists_in_language(name: str) -> bool:
    import triton.language

    return hasattr(triton.language, name)


def _check_keywords(call: ast.Call) -> None:
    called = dotted(call.func) or ""
    names = [keyword.arg for keyword in call.keywords]
    if called in ("triton.jit", "triton.autotune", "triton.heuristics", "triton.Config"):
        for name in names:
            if name not in vocabulary.DECORATOR_KEYWORDS:
                raise Refused("screen", f"{called} with {name}", call.lineno)
    if None in names and not isinstance(call.func, ast.Subscript):
        raise Refused("screen", "call with ** arguments", call.lineno)
