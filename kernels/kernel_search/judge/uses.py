"""The screen's third part: how the names that a candidate may use are used.

Imported names are followed by allowed chains of attributes only, kernels are launched or called only, what configures
a kernel gets no hooks, texts are not formatted, and what is iterated over is not kept.
"""

import ast
import functools
from collections.abc import Iterator

from kernel_search.judge import vocabulary
from kernel_search.judge.scope import Refused, dotted

Parents = dict[ast.AST, ast.AST]


def check_uses(tree: ast.Module, kernels: set[str]) -> None:
    """Refuse the first use that is not allowed.

    Raises:
        Refused: There is one.
    """
    parents = {child: parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    annotations = set(_annotations(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and not _is_inside_error(node, parents):
            raise Refused("screen", "text formatting outside an error message", node.lineno)
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            _check_text(node, parents)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            if node.id in vocabulary.MODULE_NAMES:
                _check_imported(node, parents, annotations)
            elif node.id in kernels and not _is_kernel_use(node, parents):
                raise Refused("screen", f"kernel {node.id} is used as a value", node.lineno)
            elif node.id in vocabulary.ITERATORS and not _is_used_up(node, parents):
                raise Refused("screen", f"{node.id} outside a loop: what it returns may be kept", node.lineno)
        if isinstance(node, ast.Call):
            _check_arguments(node)


def _annotations(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if isinstance(annotation := getattr(node, name, None), ast.AST):
                yield from ast.walk(annotation)


def _is_inside_error(node: ast.AST, parents: Parents) -> bool:
    while node in parents:
        child, node = node, parents[node]
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Assert) and child is node.msg):
            return True
    return False


def _check_text(node: ast.Constant, parents: Parents) -> None:
    """A text with % may be a format, and `%` on a name cannot be told from a remainder."""
    sign = "%" if isinstance(node.value, str) else b"%"
    parent = parents[node]
    is_message = isinstance(parent, ast.Call) and dotted(parent.func) == "tl.static_assert"
    if sign in node.value and not (isinstance(parent, ast.Expr) or is_message or _is_inside_error(node, parents)):
        raise Refused("screen", "text formatting", node.lineno)


def _is_kernel_use(node: ast.Name, parents: Parents) -> bool:
    """A launch `kernel[grid](…)`, a call from a kernel, or an argument of a call (a combine function)."""
    parent = parents[node]
    if isinstance(parent, ast.Subscript) and parent.value is node:
        launch = parents[parent]
        return isinstance(launch, ast.Call) and launch.func is parent
    return isinstance(parent, ast.Call | ast.keyword)


def _is_used_up(node: ast.Name, parents: Parents) -> bool:
    """Called where a loop or a builtin goes through it at once: kept, it would count from call to call."""
    call = parents[node]
    if not (isinstance(call, ast.Call) and call.func is node):
        return False
    user = parents[call]
    if isinstance(user, ast.For | ast.comprehension):
        return user.iter is call
    if not isinstance(user, ast.Call) or not isinstance(user.func, ast.Name) or call not in user.args:
        return isinstance(user, ast.Starred)
    if user.func.id in vocabulary.ITERATORS:
        return _is_used_up(user.func, parents)
    return user.func.id in vocabulary.CONSUMERS and len(user.args) == 1


def _check_imported(node: ast.Name, parents: Parents, annotations: set[ast.AST]) -> None:
    """An imported name with all the attributes that follow it."""
    top: ast.AST = node
    while isinstance(parents[top], ast.Attribute):
        top = parents[top]
    whole = dotted(top) or ""
    chain = whole.removeprefix(node.id).removeprefix(".")
    if whole in vocabulary.CLASSES:
        if top not in annotations:
            raise Refused("screen", f"class {whole} is used as a value", node.lineno)
        return
    if not chain:
        raise Refused("screen", f"module {node.id} is used as a value", node.lineno)
    if chain not in vocabulary.IMPORTED[node.id]:
        raise _forbidden_chain(node, chain)
    if whole in vocabulary.DECORATOR_POSITIONS:
        user = parents[top]
        is_called = isinstance(user, ast.Call) and user.func is top
        if not is_called and not (isinstance(user, ast.FunctionDef) and top in user.decorator_list):
            raise Refused("screen", f"{whole} is used as a value", node.lineno)


def _forbidden_chain(node: ast.Name, chain: str) -> Refused:
    """Why a chain is refused.

    An attribute of an allowed value, such as torch.cuda.get_device_properties(0).multi_processor_count, is no chain: it
    stands on a call. What is left is either forbidden or does not exist; the latter is an error of language.
    """
    if node.id == "tl" and chain in vocabulary.REMOVED_LANGUAGE:
        return Refused(
            "removed_api", f"tl.{chain} was removed from Triton; use masked pointers or tensor descriptors", node.lineno
        )
    if node.id == "tl" and "." not in chain and not _exists_in_language(chain):
        return Refused("language", f"triton.language has no {chain}", node.lineno)
    return Refused("screen", f"{node.id}.{chain} is not allowed", node.lineno)


@functools.cache
def _exists_in_language(name: str) -> bool:
    import triton.language

    return hasattr(triton.language, name)


def _check_arguments(call: ast.Call) -> None:
    called = dotted(call.func) or ""
    names = [keyword.arg for keyword in call.keywords]
    if called in vocabulary.DECORATOR_POSITIONS:
        for name in names:
            if name not in vocabulary.DECORATOR_KEYWORDS:
                raise Refused("screen", f"{called} with {name}", call.lineno)
        is_starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        if is_starred or len(call.args) > vocabulary.DECORATOR_POSITIONS[called]:
            raise Refused("screen", f"{called} with {len(call.args)} arguments by position", call.lineno)
    if None in names and not isinstance(call.func, ast.Subscript):
        raise Refused("screen", "call with ** arguments", call.lineno)
