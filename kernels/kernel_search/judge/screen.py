"""The static screen: the first check of a candidate, on its syntax tree, before anything of it runs.

An allow-list, not a list of known tricks: imports, statements, names, attributes and keywords are those of
vocabulary.py or defined in the file, everything else is refused. It filters; the boundary is the sandbox.
"""

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_search.judge import vocabulary

MAX_SOURCE_CHARACTERS = 60_000
STATEMENTS = (
    ast.FunctionDef, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Expr,
    ast.Pass, ast.Import, ast.ImportFrom, ast.Assert, ast.Raise, ast.Break, ast.Continue, ast.With,
)  # fmt: skip
EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.IfExp, ast.Attribute, ast.Subscript, ast.Slice,
    ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Lambda, ast.JoinedStr, ast.FormattedValue, ast.ListComp,
    ast.Starred,
)  # fmt: skip


class Refused(Exception):
    """The first construct that a candidate may not use, with the failure class and the line."""

    def __init__(self, failure_class: str, message: str, line: int | None = None):
        super().__init__(message if line is None else f"line {line}: {message}")
        self.failure_class = failure_class


@dataclass(frozen=True)
class Screened:
    """A candidate that passed.

    `kernel_source` is the text without host functions: what the compile server gets, and what compiles are cached by.
    """

    kernels: tuple[str, ...]
    kernel_source: str
    lock_kernels: tuple[str, ...]
    names: frozenset[str] = field(default_factory=frozenset)


def screen(source: str) -> Screened:
    """Screen one candidate.

    Raises:
        Refused: It does not parse, or uses something that is not allowed.
    """
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise Refused("screen", f"{len(source)} characters; {MAX_SOURCE_CHARACTERS} are possible")
    try:
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
        _Scope(kernel, module_names, is_kernel=True).check()
    for host in hosts:
        _Scope(host, module_names, is_kernel=False).check()
    _check_loose_names(tree, module_names)
    if not any(host.name == "run" and not host.decorator_list for host in hosts):
        raise Refused("contract", "no function run")
    if not kernels:
        raise Refused("no_launch", "no @triton.jit kernel")
    locks = [kernel.name for kernel in kernels if _uses_locks(kernel)]
    kernel_tree = ast.Module([node for node in tree.body if node not in hosts], [])
    return Screened(tuple(k.name for k in kernels), ast.unparse(kernel_tree), tuple(locks), frozenset(module_names))


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any(_dotted(d.func if isinstance(d, ast.Call) else d) == "triton.jit" for d in node.decorator_list)


def _uses_locks(kernel: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("atomic_cas", "atomic_xchg") for node in ast.walk(kernel)
    )


def _dotted(node: ast.AST) -> str | None:
    """`a.b.c` for a chain of attributes on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _module_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if not isinstance(target, ast.Name):
                    raise Refused("screen", "module-level assignment to something that is no plain name", node.lineno)
                if target.id in names:
                    raise Refused("screen", f"module-level name {target.id} is set twice", node.lineno)
                names.add(target.id)
    clash = names & vocabulary.MODULE_NAMES
    if clash:
        raise Refused("screen", f"{min(clash)} is the name of a module")
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
            if not (isinstance(item.context_expr, ast.Call) and _dotted(item.context_expr.func) == "torch.cuda.device"):
                raise Refused("screen", "with statement other than torch.cuda.device", line)
    if isinstance(node, ast.FunctionDef):
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if _dotted(called) not in ("triton.jit", "triton.autotune", "triton.heuristics"):
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
                _check_module_chain(node.id, _dotted(top) or "", node.lineno)
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


def _is_on_module(node: ast.Attribute) -> bool:
    dotted = _dotted(node)
    return dotted is not None and dotted.split(".")[0] in vocabulary.MODULE_NAMES


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
    called = _dotted(call.func) or ""
    names = [keyword.arg for keyword in call.keywords]
    if called in ("triton.jit", "triton.autotune", "triton.heuristics", "triton.Config"):
        for name in names:
            if name not in vocabulary.DECORATOR_KEYWORDS:
                raise Refused("screen", f"{called} with {name}", call.lineno)
    if None in names and not isinstance(call.func, ast.Subscript):
        raise Refused("screen", "call with ** arguments", call.lineno)


class _Scope:
    """Names of one function: each must be its own, the module's, a module or an allowed builtin."""

    def __init__(self, function: ast.FunctionDef, module_names: set[str], *, is_kernel: bool):
        self.function = function
        self.is_kernel = is_kernel
        every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        if function.args.vararg or function.args.kwarg:
            raise Refused("screen", f"{function.name} takes * or ** arguments", function.lineno)
        stored = {n.id for n in self._walk() if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        inner = {a.arg for n in self._walk() if isinstance(n, ast.Lambda) for a in n.args.args}
        own = {argument.arg for argument in every} | stored | inner
        clash = own & (vocabulary.MODULE_NAMES | (vocabulary.BUILTINS - {"sum", "max", "min"}))
        if clash:
            raise Refused("screen", f"{function.name} rebinds {min(clash)}", function.lineno)
        if own & module_names & {n for n in module_names if n == "run"}:
            raise Refused("screen", f"{function.name} rebinds run", function.lineno)
        builtins = vocabulary.KERNEL_BUILTINS if is_kernel else vocabulary.BUILTINS
        self.attributes = vocabulary.KERNEL_ATTRIBUTES if is_kernel else vocabulary.HOST_METHODS
        self.known = own | module_names | vocabulary.MODULE_NAMES | builtins

    def _walk(self) -> Iterator[ast.AST]:
        for statement in self.function.body:
            yield from ast.walk(statement)

    def check(self) -> None:
        """Refuse the first thing that does not belong."""
        for node in self._walk():
            line = getattr(node, "lineno", None)
            if isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom):
                raise Refused("screen", f"{type(node).__name__} inside {self.function.name}", line)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in self.known:
                raise Refused("language", f"name {node.id!r} is not defined", line)
            if isinstance(node, ast.Attribute) and not _is_on_module(node) and node.attr not in self.attributes:
                raise Refused("screen", f"attribute .{node.attr}", line)
            if self.is_kernel and isinstance(
                node, ast.Lambda | ast.ListComp | ast.With | ast.Raise | ast.JoinedStr | ast.Dict
            ):
                raise Refused("language", f"{type(node).__name__} in a kernel", line)
            if self.is_kernel and isinstance(node, ast.Name) and node.id in ("torch", "math", "Tensor"):
                raise Refused("language", f"kernel {self.function.name} uses {node.id}", line)
            if self.is_kernel and isinstance(node, ast.Name) and node.id == "triton":
                self._only_cdiv(node)

    def _only_cdiv(self, node: ast.Name) -> None:
        for attribute in self._walk():
            if (
                isinstance(attribute, ast.Attribute)
                and attribute.value is node
                and attribute.attr in ("cdiv", "next_power_of_2")
            ):
                return
        raise Refused("language", f"kernel {self.function.name} uses triton other than cdiv", node.lineno)


def _check_loose_names(tree: ast.Module, module_names: set[str]) -> None:
    """Names in module-level values, decorators, defaults and annotations; lambdas bring their own."""
    loose: list[ast.AST] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            loose += [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            loose.append(node.value)
    for root in loose:
        own = {a.arg for n in ast.walk(root) if isinstance(n, ast.Lambda) for a in n.args.args}
        own |= {n.id for n in ast.walk(root) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        known = own | module_names | vocabulary.MODULE_NAMES | vocabulary.BUILTINS
        for node in ast.walk(root):
            if isinstance(node, ast.Attribute) and not _is_on_module(node) and node.attr not in vocabulary.HOST_METHODS:
                raise Refused("screen", f"attribute .{node.attr}", node.lineno)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in known:
                raise Refused("language", f"name {node.id!r} is not defined", node.lineno)
