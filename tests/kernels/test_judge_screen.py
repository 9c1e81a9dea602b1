"""The static screen: what passes, what does not, and which class a refusal has."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judging import fixtures, honest
from kernel_search.judge.screen import Refused, screen
from kernel_search.tasks import TASKS

KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    {kernel}
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


def run(x):
    out = torch.empty_like(x)
    {host}
    copy_kernel[(1,)](x, out, BLOCK=64)
    return out
"""


CALLS = "CALLS = [0]\nTABLE = {}\n\n\ndef given(value):\n    return value\n\n\n"


def refusal(*, host: str = "pass", kernel: str = "pass", top: str = "") -> str:
    with pytest.raises(Refused) as caught:
        screen(top + KERNEL.format(host=host, kernel=kernel))
    return caught.value.failure_class


@pytest.mark.parametrize("path", fixtures("honest"), ids=lambda path: path.stem)
def test_honest_text_passes(path):
    assert screen(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TASKS)
def test_starting_kernels_pass(name):
    assert screen(TASKS[name].seed_source)


def test_what_is_compiled_holds_the_kernels_and_no_host_function():
    text = screen(KERNEL.format(host="pass", kernel="pass"))
    assert "def copy_kernel" in text and "def run" not in text


def test_what_is_compiled_holds_the_functions_that_loading_it_calls():
    text = screen("def pick():\n    return 64\n\n\nN = pick()\n" + KERNEL.format(host="pass", kernel="pass"))
    assert "def pick" in text and "def run" not in text


@pytest.mark.parametrize(
    "host",
    [
        "import os",
        "exec('1')",
        "eval('1')",
        "open('f')",
        "getattr(x, 'data')",
        "x.data_ptr()",
        "x.numpy()",
        "x.is_meta",
        "x.__class__",
        "type(x)",
        "globals()",
        "torch.ops",
        "torch.from_file('f')",
        "triton.runtime.driver",
        "y = torch",
        "y = copy_kernel",
        "copy_kernel.fn",
        "torch.empty = None",
        "x.data = out",
        "out[0] = 1",
        "del x",
        "global out",
        "y = x @ x",
        "y = '%s' % copy_kernel",
        "y = f'{copy_kernel}'",
        "y = (n := 3)",
        "y = {1, 2}",
        "torch.cuda.Stream()",
        "y = (i for i in (1, 2))",
        "yield x",
        "async def f(): pass",
        "def f(): pass",
        "class A: pass",
        "print(x)",
        "y = x.sum()",
        "y = x.to(torch.float16)",
        "torch.manual_seed(0)",
        "y = torch.jit",
        "copy_kernel.warmup(x)",
        "with torch.no_grad():\n        pass",
        "try:\n        pass\n    except ValueError:\n        pass",
        "for _ in x.__iter__():\n        pass",
        "torch.empty(1, **x)",
        "__builtins__",
        "torch.backends",
        "y = Tensor",
        "y = torch.Tensor(3)",
        "y = '%s'\n    y = y % x",
    ],
)
def test_forbidden_host_code_is_refused(host):
    assert refusal(host=host) == "screen"


@pytest.mark.parametrize(
    "expression",
    [
        "Tensor.backward.__globals__", "Tensor.backward", "Tensor.__init__", "torch.Tensor.backward",
        "Tensor.mro", "x.func_globals", "x.gi_frame", "x.f_back", "x.tb_frame", "x.cr_frame", "x.gi_code", "x.mro",
        "().__class__.__base__.__subclasses__()", "[].__class__", "run.__globals__", "x._base", "x.grad_fn",
        "tl.load.__globals__", "tl.sum.fn", "torch.empty.__self__", "math.ceil.__self__", "triton.cdiv.__module__",
        "triton.Config.all_kwargs", "torch.device.__init__", "'{0.__class__}'.format(x)", "'{}'.format_map(x)",
        "(lambda: x).__code__", "dict.fromkeys", "range.__class__", "ValueError('a').__traceback__", "x.ｆｎ",
        "triton.Config", "triton.jit", "triton.autotune",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "place",
    [
        "y = {}", "y: {} = 1", 'y = f"{{{}}}"', "y = lambda: {}", "y = [1 for i in (1,) if {}]",
        "torch.empty(1, dtype={})",
        'raise ValueError(f"{{{}!r}}")', "assert {}", "y = (1)[{}:]", "y = -{}",
        "with torch.cuda.device({}):\n        pass",
    ],
)  # fmt: skip
def test_no_attribute_leads_out_of_the_allowed_names_wherever_it_stands(expression, place):
    assert refusal(host=place.format(expression), top="from torch import Tensor\n") in ("screen", "language")


@pytest.mark.parametrize(
    "top",
    [
        "X = Tensor.backward.__globals__\n", "X: [].__class__ = 1\n", "X: Tensor.backward.get = 1\n", "X: (1).mro\n",
        "def f(a=Tensor.backward):\n    return a\n\n\n", "def f(a: Tensor.backward):\n    return a\n\n\n",
        "def f(a) -> ().__class__:\n    return a\n\n\n", "F = lambda torch: torch.empty\n", "F = [0 for tl in (1,)]\n",
        "@triton.autotune(configs=[], key=Tensor.backward)\n@triton.jit\ndef f(a):\n    return a\n\n\n",
        "@Tensor.backward\ndef f(a):\n    return a\n\n\n", "def list(a):\n    return a\n\n\n", "max = min\n",
        "C = triton.Config({}, 4, 3, 1, None, run)\n", "C = [triton.Config(*(1, 2))]\n", "MAKE = triton.Config\n",
        "@triton.autotune([], [], None, [], [], run)\n@triton.jit\ndef f(a):\n    return a\n\n\n",
        "IT = zip((1, 2), (3, 4))\n", "IT = enumerate((1, 2))\n", "Z = zip\n", "IT = [zip((1, 2))]\n",
        "IT = min(zip((1, 2)), zip((3,)), key=len)\n", "IT = sum([], zip((1, 2)))\n", "FORMAT = '%s'\n",
    ],
)  # fmt: skip
def test_no_module_level_place_is_overlooked(top):
    imports = "import torch\nimport triton\nfrom torch import Tensor\n"
    assert refusal(top=imports + top) == "screen"


@pytest.mark.parametrize(
    "host",
    [
        "calls = CALLS\n    calls += [0]", "calls = CALLS\n    calls *= 2", "t = TABLE\n    t |= {1: out}",
        "calls = given(CALLS)\n    calls += [0]", "calls = [CALLS][0]\n    calls += [0]", "x += [0]",
        "for calls in [CALLS]:\n        calls += [0]", "(calls, n) = (CALLS, 1)\n    calls += [0]",
        "calls, = [CALLS]\n    calls += [0]", "calls = CALLS or []\n    calls += [0]",
        "calls = CALLS if x.ndim else []\n    calls += [0]", "calls = min(CALLS, 1, key=len)\n    calls += [0]",
        "calls = TABLE.get(1)\n    calls += [0]", "calls = 1\n    calls = CALLS\n    calls += [0]",
        "with torch.cuda.device(0) as calls:\n        calls += [0]", "calls = sum([], CALLS)\n    calls += [0]",
        "max = given\n    calls = max(CALLS, 1)\n    calls += [0]",
    ],
)  # fmt: skip
def test_nothing_that_outlives_a_call_can_be_changed(host):
    assert refusal(host=host, top=CALLS) == "screen"


@pytest.mark.parametrize(
    "host",
    [
        "n = x.numel()\n    n += 1", "n, = x.shape\n    n *= 2", "n = 1\n    while n < 9:\n        n *= 2",
        "n = x.shape[0]\n    n += 1", "n = x.stride(0)\n    n |= 1", "sizes = []\n    sizes += [1]",
        "n, m = 1, 2\n    m += n",
        "n = max(16, given(3))\n    n += 1", "n = triton.cdiv(x.numel(), 4)\n    n += 1", "n = given(3)\n    n //= 2",
        "n = 0\n    for i, size in enumerate(x.shape):\n        n += i * size", "y = list(zip((1,), (2,)))",
        "for i, (a, b) in enumerate(zip((1,), (2,))):\n        pass", "n = 1 if x.ndim else 2\n    n += 1",
        "assert x.ndim == 1, '100% of it'", "y: torch.Tensor = out", "y = dict(zip(('a',), (1,)))",
    ],
)  # fmt: skip
def test_numbers_and_fresh_lists_are_counted_up_as_ever(host):
    assert screen(CALLS + KERNEL.format(host=host, kernel="pass"))


@pytest.mark.parametrize(
    "kernel",
    [
        "tl.core.builtins.print(1)", "tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)", "offsets.handle",
        "tl.device_print('x')", "y = tl", "import os", "offsets.__class__", "tl.static_print(1)", "def f(): pass",
        "tl.extra", "tl.math.os",
    ],
)  # fmt: skip
def test_forbidden_kernel_code_is_refused(kernel):
    assert refusal(kernel=kernel) == "screen"


@pytest.mark.parametrize(
    ("kernel", "failure_class"),
    [
        ("y = tl.inv_sqrt(1.0)", "language"),
        ("y = unknown", "language"),
        ("y = [i for i in range(3)]", "language"),
        ("y = {'a': 1}", "language"),
        ("torch.zeros(1)", "language"),
        ("p = tl.make_block_ptr(x_ptr, (1,), (1,), (0,), (1,), (0,))", "removed_api"),
        ("p = tl.advance(x_ptr, (1,))", "removed_api"),
    ],
)
def test_what_the_language_lacks_is_told_from_what_is_forbidden(kernel, failure_class):
    assert refusal(kernel=kernel) == failure_class


@pytest.mark.parametrize(
    "top",
    [
        "import os\n", "from torch import nn\n", "import torch as t\n", "import triton.language as lang\n",
        "from triton.language import *\n", "from .x import y\n", "for i in range(3): pass\n", "STATE = open\n",
        "torch.allclose = None\n", "run = None\n", "tl = None\n", "if True: pass\n", "print('loaded')\n",
    ],
)  # fmt: skip
def test_forbidden_module_level_code_is_refused(top):
    assert refusal(top=top) in ("screen", "language")


def test_text_that_does_not_parse_is_a_syntax_error():
    for text in ("def (", "\0", "(" * 500):
        with pytest.raises(Refused) as caught:
            screen(text)
        assert caught.value.failure_class == "syntax"


def test_no_run_and_no_kernel_are_told_apart():
    source = KERNEL.format(host="pass", kernel="pass")
    for text, failure_class in [
        (source.replace("def run", "def go"), "contract"),
        ("import torch\n\n\ndef run(x):\n    return x\n", "no_launch"),
        ("", "contract"),
    ]:
        with pytest.raises(Refused) as caught:
            screen(text)
        assert caught.value.failure_class == failure_class


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_line_cut_out_or_doubled_never_breaks_the_screen_itself(data):
    lines = honest("matmul__grouped").splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines) - 1))
    copies = data.draw(st.sampled_from([0, 2]))
    text = "".join(lines[:place] + lines[place : place + 1] * copies + lines[place + 1 :])
    try:
        assert screen(text)
    except Refused as refused:
        assert refused.failure_class and str(refused)
