"""Makes Triton's language objects cheap enough to interpret with: same values, fewer objects.

Interpreting a program spends most of its time on building types and shapes that were built before. Shapes are shared
per value and types looked up, so that operands of equal type and shape skip promotion and broadcasting.
"""

from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as stock

core: Any = tl.core


def install() -> None:
    """Change the language of this process, once."""
    _look_up_numpy_types()
    _share_shapes()
    _skip_equal_operands()

    def device_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.rewrite()(*args, **kwargs)

    stock.InterpretedFunction.__call__ = device_call  # the stock one patches the whole language at every call


def shorten_operators() -> None:
    """Let the operators of tensors go straight to their meaning; to be called once the language is patched."""
    semantic = stock.interpreter_semantic
    direct = {
        "add": lambda a, b: semantic.add(a, b, False),
        "sub": lambda a, b: semantic.sub(a, b, False),
        "mul": lambda a, b: semantic.mul(a, b, False),
        "truediv": semantic.truediv,
        "floordiv": semantic.floordiv,
        "mod": semantic.mod,
        "lt": semantic.less_than,
        "le": semantic.less_equal,
        "gt": semantic.greater_than,
        "ge": semantic.greater_equal,
        "and": semantic.and_,
        "or": semantic.or_,
    }

    def operator(meaning: Any, *, is_reflected: bool) -> Any:
        def apply(self: Any, other: Any) -> Any:
            if isinstance(other, core.constexpr):
                other = other.value
            return meaning(other, self) if is_reflected else meaning(self, other)

        return apply

    for name, meaning in direct.items():
        setattr(core.tensor, f"__{name}__", operator(meaning, is_reflected=False))
        if name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or"):
            setattr(core.tensor, f"__r{name}__", operator(meaning, is_reflected=True))


def _look_up_numpy_types() -> None:
    slow = stock._get_np_dtype
    by_name: dict[str, Any] = {}

    def numpy_dtype(kind: Any) -> Any:
        found = by_name.get(kind.name)
        if found is None:
            found = by_name[kind.name] = slow(kind)
        return found

    stock._get_np_dtype = numpy_dtype


def _share_shapes() -> None:
    stock_block = core.block_type.__init__
    shapes: dict[tuple[int, ...], tuple[Any, int]] = {}
    names: dict[tuple[str, tuple[int, ...]], str] = {}
    dimensions: dict[int, tuple[Any, Any]] = {}
    no_shape = core.tuple([])
    one = core.constexpr(1)

    def block_init(self: Any, element_ty: Any, shape: Any) -> None:
        key = tuple([n.value if isinstance(n, core.constexpr) else n for n in shape])
        known = shapes.get(key)
        if known is None:
            stock_block(self, element_ty, shape)  # validates
            shapes[key] = (self.shape, self.numel)
            dimensions[id(self.shape)] = (core.tuple([core.constexpr(n) for n in key]), core.constexpr(self.numel))
            return
        self.element_ty = element_ty
        self.shape, self.numel = known
        named = (element_ty.name, key)
        name = names.get(named)
        if name is None:
            name = names[named] = f"<{self.shape}, {element_ty}>"
        self.name = name

    def tensor_init(self: Any, handle: Any, kind: Any) -> None:
        self.handle = handle
        self.type = kind
        self.dtype = kind.scalar
        if kind.is_block():
            known = dimensions.get(id(kind.shape))
            self.shape, self.numel = known if known else _dimensions(kind)
        else:
            self.shape, self.numel = no_shape, one

    core.block_type.__init__ = block_init
    core.tensor.__init__ = tensor_init


def _dimensions(kind: Any) -> tuple[Any, Any]:
    """Shape and size of a block type that was made before the sharing began."""
    return core.tuple([core.constexpr(n) for n in kind.shape]), core.constexpr(kind.numel)


def _skip_equal_operands() -> None:
    stock_check, stock_broadcast = TritonSemantic.binary_op_type_checking_impl, TritonSemantic.broadcast_impl_value
    closed = {tl.int32.name, tl.int64.name, tl.float32.name, tl.float64.name}  # a op a is a, division too

    def check(self: Any, lhs: Any, rhs: Any, *flags: Any, **named: Any) -> Any:
        if isinstance(lhs, core.tensor) and isinstance(rhs, core.tensor):
            left, right = lhs.type, rhs.type
            if left.scalar.name in closed and left.scalar.name == right.scalar.name and _is_same_shape(left, right):
                return lhs, rhs
        return stock_check(self, lhs, rhs, *flags, **named)

    def broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
        return (lhs, rhs) if _is_same_shape(lhs.type, rhs.type) else stock_broadcast(self, lhs, rhs)

    stock_cast = TritonSemantic.cast

    def cast(self: Any, value: Any, kind: Any, *rest: Any, **named: Any) -> Any:
        # Most casts are of operands that have the type already; names are unique among types.
        if value.dtype.name == kind.scalar.name and not value.dtype.is_ptr():
            return value
        return stock_cast(self, value, kind, *rest, **named)

    TritonSemantic.cast = cast
    TritonSemantic.binary_op_type_checking_impl = check
    TritonSemantic.broadcast_impl_value = broadcast


def _is_same_shape(left: Any, right: Any) -> bool:
    if left.is_block():
        return right.is_block() and left.shape is right.shape
    return not right.is_block()
