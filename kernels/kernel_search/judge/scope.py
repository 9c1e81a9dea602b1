"""The screen's second half: names and attributes inside functions, and in the loose expressions around them."""

import ast
import builtins
from collections.abc import Iterator

from kernel_search.judge import vocabulary


class Refused(Exception):
    """The first construct that a candidate may not use, with the failure class and the line."""

    def __init__(self, failure_class: str, message: str, line: int | None = None):
        super().__init__(message if line is None else f"line {line}: {message}")
        self.failure_class = failure_class


def dotted(node: ast.AST) -> str | None:
    """`a.b.c` for a chain of attributes on a name, else None."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def is_on_module(node: ast.Attribute) -> bool:
    """Whether the chain of attributes that ends here begins at an imported name."""
    chain = dotted(node)
    return chain is not None and chain.split(".")[0] in vocabulary.MODULE_NAMES


class FunctionScope:
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
        free = vocabulary.SHADOWED_IN_KERNELS if is_kernel else frozenset[str]()
        clash = own & (vocabulary.MODULE_NAMES | (vocabulary.BUILTINS - free))
        if clash:
            raise Refused("screen", f"{function.name} rebinds {min(clash)}", function.lineno)
        if own & module_names & {n for n in module_names if n == "run"}:
            raise Refused("screen", f"{function.name} rebinds run", function.lineno)
        allowed = vocabulary.KERNEL_BUILTINS if is_kernel else vocabulary.BUILTINS
        self.attributes = vocabulary.KERNEL_ATTRIBUTES if is_kernel else vocabulary.HOST_METHODS
        self.known = own | module_names | vocabulary.MODULE_NAMES | allowed

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
                raise _unknown_name(node)
            if isinstance(node, ast.Attribute) and not is_on_module(node) and node.attr not in self.attributes:
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


def _unknown_name(node: ast.Name) -> Refused:
    """A builtin that is not allowed is forbidden; any other unknown name would fail by itself."""
    if hasattr(builtins, node.id):
        return Refused("screen", f"builtin {node.id} is not allowed", node.lineno)
    return Refused("language", f"name {node.id!r} is not defined", node.lineno)


def check_loose_names(tree: ast.Module, module_names: set[str]) -> None:
    """Names in module-level values and annotations, decorators and defaults; lambdas bring their own."""
    loose: list[ast.AST] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            loose += [*node.decorator_list, node.args, *([node.returns] if node.returns else [])]
        elif isinstance(node, ast.AnnAssign):
            loose += [node.annotation, *([node.value] if node.value else [])]
        elif isinstance(node, ast.Assign):
            loose.append(node.value)
    for root in loose:
        own = {a.arg for n in ast.walk(root) if isinstance(n, ast.Lambda) for a in n.args.args}
        own |= {n.id for n in ast.walk(root) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        known = own | module_names | vocabulary.MODULE_NAMES | vocabulary.BUILTINS
        for node in ast.walk(root):
            if isinstance(node, ast.Attribute) and not is_on_module(node) and node.attr not in vocabulary.HOST_METHODS:
                raise Refused("screen", f"attribute .{node.attr}", node.lineno)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in known:
                raise _unknown_name(node)
