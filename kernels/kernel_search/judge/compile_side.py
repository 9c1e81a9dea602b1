"""The compile server's operations: record the launches of a candidate, compile kernels for the target, measure them."""

import math
import os
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError
from triton.runtime.jit import JITFunction

from kernel_search.judge import candidate, launches, target
from kernel_search.judge.candidate import CandidateFault, OperationGuard, TargetClaim
from kernel_search.judge.paths import readable_paths

MOST_STAGES = 8  # of a pipeline that waits on barriers, whose depth the text does not tell
NVIDIA_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
RECORDING_POISONS_BELOW = 0  # recording runs at the scored shape, whose memory must stay unpaged


class Recorder:
    """Stands in for JITFunction.run: notes what would be launched, specialised as the real launcher would."""

    def __init__(self, inputs: list[torch.Tensor]):
        self.roles = launches.Roles(inputs)
        self.recorded: list[dict[str, Any]] = []

    def run(self, function: JITFunction, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]) -> None:
        """Record one launch."""
        if len(self.recorded) >= launches.MAX_LAUNCHES:
            raise CandidateFault("contract", f"more than {launches.MAX_LAUNCHES} launches in one call")
        options, arguments = launches.split_options(kwargs, function.arg_names)
        bound = launches.bind(function.fn, args, arguments)
        sizes = launches.grid_of(grid, bound)
        constexprs = {parameter.name for parameter in function.params if parameter.is_constexpr}
        described = launches.describe(function.fn, constexprs, bound, sizes, options, self.roles)
        described["specialisation"] = self._specialise(function, bound, options)
        self.recorded.append(described)

    @staticmethod
    def _specialise(function: JITFunction, bound: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
        _, _, _, backend, binder = function.device_caches[0]
        try:
            bound_args, specialization, all_options = binder(**bound, **options, debug=False)
            _, signature, constexprs, attributes = function._pack_args(
                backend, dict(options), bound_args, specialization, all_options
            )
        except AssertionError as error:
            raise CandidateFault("options", candidate.last_line(error)) from error
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise CandidateFault("language", candidate.last_line(error)) from error
        return {
            "signature": signature,
            "constexprs": [[list(path), launches.constant(value)] for path, value in constexprs.items()],
            "attributes": [[list(path), value] for path, value in attributes.items()],
        }


def record(body: dict[str, Any]) -> dict[str, Any]:
    """Run the candidate at the scored shape with launches noted instead of run."""
    target.pretend_device(target.TARGETS[body["target"]])
    candidate.use_first_configuration()
    inputs = [torch.empty(shape, dtype=getattr(torch, body["dtype"])) for shape in body["input_shapes"]]
    recorder = Recorder(inputs)

    def run(self: JITFunction, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        recorder.run(self, args, grid, kwargs)

    JITFunction.run = run
    try:
        module = candidate.load(body["source"])
        guard = OperationGuard(poison_below_elements=RECORDING_POISONS_BELOW)
        output = candidate.call(module.run, inputs, guard)
        if not recorder.recorded:
            raise CandidateFault("no_launch", "run launched no kernel")
        candidate.check_output(output, body["output_shape"], body["dtype"], inputs)
    except CandidateFault as fault:
        return {"fault": [fault.failure_class, str(fault)]}
    return {"launches": recorder.recorded}


def compile_launch(body: dict[str, Any]) -> dict[str, Any]:
    """Compile one recorded launch from the kernels' text alone (host functions are not in it), and measure it."""
    scratch = Path(body["scratch"])
    triton.knobs.cache.dir = str(scratch / "cache")
    os.environ["TMPDIR"] = str(scratch)
    launch = body["launch"]
    try:
        target.pretend_device(target.TARGETS[body["target"]])
        kernel = _kernel(candidate.load(body["source"]), launch["kernel"])
        compiled = _compile(kernel, launch, body["target"], body["accesses_per_thread"])
        return {"measured": measure(compiled, scratch, target.TARGETS[body["target"]])}
    except CandidateFault as fault:
        return {"fault": [fault.failure_class, str(fault)]}


def _kernel(module: Any, name: str) -> JITFunction:
    kernel = getattr(module, name, None)
    while kernel is not None and not isinstance(kernel, JITFunction):
        kernel = getattr(kernel, "fn", None)
    if kernel is None:
        raise CandidateFault("contract", f"the launched kernel {name} is not in the module's text")
    return kernel


def _constant(module_globals: dict[str, Any], value: Any) -> Any:
    if isinstance(value, dict) and "dtype" in value:
        return tl.dtype(value["dtype"])
    if isinstance(value, dict) and "float" in value:
        return float(value["float"])
    if isinstance(value, dict) and "tuple" in value:
        return tuple(_constant(module_globals, part) for part in value["tuple"])
    if isinstance(value, dict) and "kernel" in value:
        return module_globals[value["kernel"]]
    return value


def _compile(kernel: JITFunction, launch: dict[str, Any], target_name: str, accesses_per_thread: int) -> Any:
    gpu = target.TARGETS[target_name]
    special = launch["specialisation"]
    module_globals = kernel.fn.__globals__
    source = ASTSource(
        kernel,
        special["signature"],
        {tuple(path): _constant(module_globals, value) for path, value in special["constexprs"]},
        {tuple(path): value for path, value in special["attributes"]},
    )
    triton.knobs.runtime.add_stages_inspection_hook = _size_check(accesses_per_thread, gpu)
    goal = GPUTarget("cuda", gpu.capability, gpu.warp_size)
    try:
        return triton.compile(source, target=goal, options=dict(launch["options"]))
    except (CandidateFault, OSError):  # a compiler that cannot be started, or a full disk, is the harness's fault
        raise
    except CompilationError as error:
        removed = "removed in favor of the tensor descriptor" in str(error)
        text = candidate.last_line(_deepest(error))
        raise CandidateFault("removed_api" if removed else "language", text) from error
    except AssertionError as error:
        raise CandidateFault("options", candidate.last_line(error)) from error
    except PTXASError as error:
        raise CandidateFault("ptxas", _assembler_line(str(error))) from error
    except OutOfResources as error:
        raise CandidateFault("resources", candidate.last_line(error)) from error
    except RuntimeError as error:
        raise CandidateFault("lowering", candidate.last_line(error)) from error
    except Exception as error:
        raise CandidateFault("language", candidate.last_line(error)) from error


def _deepest(error: BaseException) -> BaseException:
    """The error at the bottom of a chain: outer ones point at lines that call."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _size_check(limit: int, gpu: target.Gpu) -> Any:
    """A hook on the compiler's stages that refuses a kernel before the slow ones, by the size of its code."""

    def inspect(backend: Any = None, stages: Any = None, options: Any = None, *rest: Any) -> Any:
        if stages is None:
            return "size_check", str(limit)
        lower = stages["llir"]

        def checked(module: Any, metadata: Any) -> Any:
            accesses = count_accesses(str(module)) // (options.num_warps * gpu.warp_size)
            if accesses > limit:
                raise CandidateFault(
                    "resources",
                    f"{accesses} element accesses per thread in straight-line code; the judge compiles {limit}",
                )
            return lower(module, metadata)

        stages["llir"] = checked
        return None

    return inspect


def count_accesses(module_text: str) -> int:
    """Elements that the loads and stores of a kernel touch, each counted once however often a loop repeats it."""
    total = 0
    for line in module_text.splitlines():
        if "tt.load " in line or "tt.store " in line or "tt.atomic_rmw " in line:
            shape = re.search(r"tensor<((?:\d+x)+)", line)
            total += math.prod(int(size) for size in shape[1].split("x")[:-1]) if shape else 1
    return total


def _assembler_line(text: str) -> str:
    """The assembler's own complaint; the rest of its error names files and commands of this machine."""
    lines = [
        line.strip() for line in text.splitlines() if line.startswith("ptxas") and ("error" in line or "fatal" in line)
    ]
    return re.sub(r"\S*/\S*", "…", lines[0])[:300] if lines else "ptxas refused the program"


def measure(compiled: Any, scratch: Path, gpu: target.Gpu) -> dict[str, Any]:
    """Resources and instruction mix of a compiled kernel.

    Raises:
        CandidateFault: It needs more than a block of the target may have.
    """
    metadata = compiled.metadata
    threads = metadata.num_warps * gpu.warp_size
    if metadata.shared > gpu.shared_per_block:
        raise CandidateFault(
            "resources", f"{metadata.shared} bytes of shared memory; a block may have {gpu.shared_per_block}"
        )
    if threads > gpu.threads_per_block:
        raise CandidateFault("resources", f"{threads} threads in a block; {gpu.threads_per_block} are possible")
    cubin = scratch / "kernel.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    shown = subprocess.run(
        [str(NVIDIA_TOOLS / "cuobjdump"), "-res-usage", str(cubin)], capture_output=True, text=True, check=False
    ).stdout
    usage = dict(re.findall(r"\b(REG|STACK|SHARED|LOCAL):(\d+)", shown))
    if "REG" not in usage:
        raise OSError("cuobjdump named no registers")  # the installation's fault, and no candidate's
    return {
        "registers": int(usage["REG"]),
        "spill_bytes": int(usage["STACK"]) + int(usage.get("LOCAL", 0)),
        "shared_bytes": metadata.shared,
        "num_warps": metadata.num_warps,
        "num_stages": pipeline_stages(metadata.num_stages, compiled.asm["ptx"]),
        "num_ctas": getattr(metadata, "num_ctas", 1),
        **count_instructions(compiled.asm["ptx"]),
    }


def pipeline_stages(asked: int, ptx: str) -> int:
    """Stages that the code keeps under way: as many as were asked for, unless it waits for earlier copies than that."""
    waits = [int(number) for number in re.findall(r"cp\.async\.wait_group\s+(\d+)", ptx)]
    return min(asked, max(waits) + 2 if waits else MOST_STAGES)


def count_instructions(ptx: str) -> dict[str, Any]:
    """Static counts in the PTX: global accesses by width in bytes, asynchronous copies, matrix instructions."""
    widths: Counter[str] = Counter()
    for kind, suffix in re.findall(r"\b(ld|st)(?:\.\w+)*?\.global((?:\.\w+|::\w+)*)", ptx):  # ld.volatile.global too
        lanes = re.search(r"\.v(\d)", suffix)
        bits = re.search(r"\.[bfsu](\d+)\b", suffix)
        width = int(lanes[1] if lanes else 1) * int(bits[1] if bits else 32) // 8
        widths[f"{kind}{width}"] += 1
    for width in re.findall(r"cp\.async\.c[ag]\.shared\.global\S*\s+\[[^]]*\],\s*\[[^]]*\],\s*(0x[0-9a-f]+|\d+)", ptx):
        widths[f"cp{int(width, 0)}"] += 1
    patterns = {
        "async_copies": r"cp\.async\.c[ag]\.shared\.global",
        "tensor_copies": r"cp\.async\.bulk\.tensor",
        "wgmma": r"wgmma\.mma_async",
        "mma_sync": r"\bmma\.sync",
        "atomics": r"\b(?:atom|red)\.\S*global",
        "barriers": r"\bbar\.sync",
    }
    counts = {name: len(re.findall(pattern, ptx)) for name, pattern in patterns.items()}
    return {"access_widths": dict(sorted(widths.items())), **counts}


def warm_up(setup: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Record and compile our own kernels once, so that no child pays for first uses and lazy imports."""
    torch.set_num_threads(1)
    triton.runtime.cache.triton_key = lambda: triton.__version__  # the real one reads and hashes 500 MB of libraries
    saved = JITFunction.run
    with tempfile.TemporaryDirectory() as scratch:
        for number, job in enumerate(setup["warm"]):
            reply = record(job | {"target": setup["target"]})
            for launch in reply.get("launches", []):
                if number in setup["compile"]:
                    body = {"scratch": scratch, "source": job["source"], "launch": launch} | setup
                    compile_launch(body)
    JITFunction.run = saved
    with TargetClaim():
        torch.empty(1).is_cuda  # noqa: B018 - the first use of the mode is slow
    return {"record": record, "compile_launch": compile_launch}, readable_paths()
