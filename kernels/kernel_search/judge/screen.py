"""The static screen: the first check of a candidate, on its syntax tree, before anything of it runs.

An allow-list, not a list of known tricks: imports, statements, names, attributes and keywords are those of
vocabulary.py or defined in the file, everything else is refused. It filters; the boundary is the sandbox.
"""

import ast
import threading

from kernel_search.judge import vocabulary
from kernel_search.judge.lasting import check_lasting_state
from kernel_search.judge.scope import FunctionScope, Refused, check_loose_names, dotted, is_on_module
from kernel_search.judge.uses import check_uses

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


def screen(source: str) -> str:
    """Screen one candidate.

    Returns:
        The text of its kernels, without `run` and what only it calls: what the compile server gets, and what compiles
        are cached by.

    Raises:
        Refused: It does not parse, or uses something that is not allowed.
    """
    try:
        return _screen(source)
    except RecursionError:
        raise Refused("syntax", "nested too deeply") from None


def _screen(source: str) -> str:
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
    check_uses(tree, {kernel.name for kernel in kernels})
    for kernel in kernels:
        FunctionScope(kernel, module_names, is_kernel=True).check()
    for host in hosts:
        FunctionScope(host, module_names, is_kernel=False).check()
    check_loose_names(tree, module_names)
    check_lasting_state(tree, hosts)
    if not any(host.name == "run" and not host.decorator_list for host in hosts):
        raise Refused("contract", "no function run")
    if not kernels:
        raise Refused("no_launch", "no @triton.jit kernel")
    return _kernel_source(tree, hosts)


def _kernel_source(tree: ast.Module, hosts: list[ast.FunctionDef]) -> str:
    """The text without host functions, those excepted that loading it calls, as for a list of configurations."""
    left_out = {host.name: host for host in hosts}
    looked_at: list[ast.AST] = [node for node in tree.body if node not in hosts]
    while looked_at:
        for name in [node.id for node in ast.walk(looked_at.pop()) if isinstance(node, ast.Name)]:
            if name in left_out:
                looked_at.append(left_out.pop(name))
    kept: list[ast.stmt] = [node for node in tree.body if node not in left_out.values()]
    return ast.unparse(ast.Module(kept, []))


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
            is_own = isinstance(node, ast.FunctionDef) and name in vocabulary.SHADOWED_IN_KERNELS
            if name in vocabulary.BUILTINS and not (is_own and _is_kernel(node)):
                raise Refused("screen", f"{name} is the name of a builtin", node.lineno)
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
        if name in vocabulary.MODULE_NAMES and not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
            raise Refused("screen", f"{name} is the name of a module", line)
    if isinstance(node, ast.Attribute) and not _may_be_attribute(node):
        raise Refused("screen", f"attribute .{node.attr}", line)
    if isinstance(node, ast.keyword) and node.arg is not None and (node.arg.startswith("__") or not node.arg.isascii()):
        raise Refused("screen", f"keyword {node.arg}", line)
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


def _may_be_attribute(node: ast.Attribute) -> bool:
    """Whether a name after a dot may stand anywhere at all; where exactly is for the scopes and for `uses`.

    Nothing that begins with an underscore, so nothing of Python's own: classes, globals, frames, code and dictionaries.
    """
    if node.attr.startswith("_") or not node.attr.isascii():
        return False
    return is_on_module(node) or node.attr in vocabulary.HOST_METHODS or node.attr in vocabulary.KERNEL_ATTRIBUTES
