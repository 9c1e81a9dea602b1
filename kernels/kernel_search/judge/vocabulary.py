"""The names that a candidate may use: what the static screen allows, everything else is refused."""

IMPORTS = frozenset(
    {
        ("torch", None, None),
        ("triton", None, None),
        ("triton.language", None, "tl"),
        ("math", None, None),
        ("triton", "language", "tl"),
        ("triton.language.extra", "libdevice", None),
        ("torch", "Tensor", None),
    }
)
TRITON = frozenset(
    """jit autotune heuristics Config cdiv next_power_of_2 runtime.driver.active.get_active_torch_device
    runtime.driver.active.get_current_target runtime.driver.active.utils.get_device_properties""".split()
)
TORCH = frozenset(
    """empty empty_like empty_strided zeros zeros_like full full_like ones float16 float32 float64 half float
    double int8 int16 int32 int64 uint8 bool Tensor device dtype strided contiguous_format
    cuda.get_device_properties cuda.get_device_capability cuda.current_device cuda.is_available cuda.device""".split()
)
MATH = frozenset("ceil floor log2 log sqrt exp pi e inf prod".split())
LANGUAGE_MATH = frozenset(
    "abs ceil cos div_rn erf exp exp2 fdiv floor fma log log2 max min rsqrt sin sqrt sqrt_rn umulhi".split()
)
LANGUAGE = frozenset(
    """constexpr program_id num_programs arange zeros zeros_like full load store dot where max min sum argmax
    argmin cumsum cumprod sort reduce associative_scan exp exp2 log log2 sqrt sqrt_rn rsqrt sin cos abs floor
    ceil erf sigmoid softmax maximum minimum fma fdiv div_rn clamp cdiv cast trans permute reshape view ravel
    expand_dims broadcast broadcast_to join split interleave cat flip gather histogram umulhi xor_sum atomic_add
    atomic_max atomic_min atomic_and atomic_or atomic_xor atomic_xchg atomic_cas make_tensor_descriptor
    load_tensor_descriptor store_tensor_descriptor range static_range static_assert multiple_of max_contiguous
    max_constancy assume debug_barrier swizzle2d rand randn randint float16 bfloat16 float32 float64 int1 int8
    int16 int32 int64 uint8 uint16 uint32 uint64""".split()
) | {f"math.{name}" for name in LANGUAGE_MATH}
REMOVED_LANGUAGE = frozenset({"make_block_ptr", "advance"})
LIBDEVICE = frozenset("exp exp2 log log2 log1p expm1 sqrt rsqrt tanh sinh cosh sin cos floor ceil pow abs".split())
# Every name that an import may bind, with the chains of attributes that may stand after it; none after a class.
IMPORTED = {
    "torch": TORCH,
    "triton": TRITON,
    "tl": LANGUAGE,
    "math": MATH,
    "libdevice": LIBDEVICE,
    "Tensor": frozenset[str](),
}
MODULE_NAMES = frozenset(IMPORTED)
CLASSES = frozenset({"Tensor", "torch.Tensor"})  # for annotations

HOST_METHODS = frozenset(
    """shape stride size numel dtype device ndim dim is_contiguous is_cuda view reshape contiguous element_size
    new_empty new_zeros index type multi_processor_count max_shared_mem warp_size arch backend get""".split()
)
KERNEL_ATTRIBUTES = frozenset(
    """to dtype element_ty shape T type load store sum max min reshape trans cast broadcast_to expand_dims abs cdiv
    primitive_bitwidth""".split()
)
BUILTINS = frozenset(
    """range min max abs int float bool len tuple list dict sum enumerate zip ValueError AssertionError
    RuntimeError NotImplementedError TypeError True False None""".split()
)
SHADOWED_IN_KERNELS = frozenset({"sum", "max", "min"})  # what many kernels call their own
KERNEL_BUILTINS = frozenset("range min max abs int float bool len".split())
# How many arguments may be given by position: what comes after them, such as pre_hook, runs unseen on a GPU.
DECORATOR_POSITIONS = {"triton.jit": 1, "triton.autotune": 2, "triton.heuristics": 1, "triton.Config": 5}
ITERATORS = frozenset({"enumerate", "zip"})
CONSUMERS = frozenset({"list", "tuple", "dict", "sum", "min", "max"})
DECORATOR_KEYWORDS = frozenset(
    "configs key values num_warps num_stages num_ctas maxnreg do_not_specialize noinline reset_to_zero".split()
)
