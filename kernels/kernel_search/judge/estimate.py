"""A static estimate of a kernel's time on the named GPU, `estimated:h100:v2`: a model's number, never a measurement.

It takes what the compiler gave (registers, spills, shared memory, access widths, matrix instructions) and what the
interpreter counted on sampled programs (bytes, sectors, operations), and asks in which unit the launch is stuck:

    time = launch + wave_quantisation * (memory and matrix work, overlapped as far as the pipeline allows) + spills

Its constants are guesses that no GPU has confirmed. It is monotone in every counted quantity; differences under about
ten percent mean nothing, hence the buckets of fitness. Any change here is a new version.
"""

import math
from dataclasses import dataclass
from typing import Any

from kernel_search.judge.target import Gpu

BASIS = "estimated:h100:v2"
METRIC = "est_us_h100_model_v2"

LAUNCH_SECONDS = 3e-6
DRAM_EFFICIENCY = 0.92
DRAM_LATENCY_SECONDS = 650e-9
L2_EFFICIENCY = 0.9
L2_LATENCY_SECONDS = 270e-9
WGMMA_EFFICIENCY = 0.75
MMA_SYNC_EFFICIENCY = 0.45
VECTOR_EFFICIENCY = 0.6
ATOMICS_PER_SECOND = 1.3e12
# What the interpreter counts per program.
COUNTED = (
    "load_bytes", "store_bytes", "load_sectors", "store_sectors", "atomics", "flops", "vector_flops", "operations",
)  # fmt: skip


@dataclass(frozen=True)
class LaunchWork:
    """What one launch does in total, counted on sampled programs and scaled to the grid.

    `vector_flops` is the part of `flops` that matrix units cannot do, whatever instructions the compiled text holds.
    """

    programs: int
    load_bytes: float
    store_bytes: float
    load_sectors: float
    store_sectors: float
    atomics: float
    flops: float
    vector_flops: float
    memory_operations: float
    tensor_bytes: int


def blocks_per_multiprocessor(measured: dict[str, Any], gpu: Gpu) -> int:
    """Blocks that fit on one multiprocessor by registers, warps and shared memory; at least 1."""
    per_warp = math.ceil(max(measured["registers"], 1) * gpu.warp_size / 256) * 256
    warps = measured["num_warps"]
    by_registers = (gpu.registers_per_multiprocessor // per_warp) // warps
    by_warps = gpu.warps_per_multiprocessor // warps
    by_shared = gpu.shared_per_multiprocessor // (measured["shared_bytes"] + 1024)
    return max(1, min(by_registers, by_warps, by_shared, gpu.blocks_per_multiprocessor))


def estimate_seconds(work: LaunchWork, measured: dict[str, Any], gpu: Gpu) -> dict[str, float]:
    """Estimated seconds of one launch, with its parts.

    Returns:
        `seconds` in total; `dram`, `l2`, `issue`, `matrix`, `spill` and `atomic` seconds, `waves` as a factor,
        `blocks_per_multiprocessor`.
    """
    blocks = blocks_per_multiprocessor(measured, gpu)
    widths = [int(name[2:]) for name in measured["access_widths"] if name[2:].isdigit()]
    is_pipelined = bool(measured["async_copies"] or measured["tensor_copies"])
    threads = measured["num_warps"] * gpu.warp_size
    stages = measured["num_stages"]
    if is_pipelined:
        in_flight = blocks * (max(1, stages - 1) / max(stages, 1)) * measured["shared_bytes"]
    else:
        in_flight = blocks * threads * max(4, min(max(widths, default=4), 16)) * 2
    parts = {
        "dram": _dram_seconds(work, in_flight, gpu),
        "l2": _l2_seconds(work, in_flight, gpu),
        "issue": 0.0 if is_pipelined else _issue_seconds(work, min(widths, default=4), gpu),
        "matrix": _matrix_seconds(work, measured, gpu),
        "atomic": work.atomics / ATOMICS_PER_SECOND,
        "spill": _spill_seconds(work, measured, threads, gpu),
    }
    memory = math.hypot(parts["dram"], parts["l2"], parts["issue"])  # units overlap in part: between max and sum
    pipeline = (stages if is_pipelined else 1) + (blocks - 1) * 0.5
    hidden = 1 - 1 / max(1.0, pipeline)
    together = math.hypot(memory, parts["matrix"])
    core = hidden * together + (1 - hidden) * (memory + parts["matrix"]) + parts["spill"] + parts["atomic"]
    slots = gpu.multiprocessors * blocks
    waves = math.ceil(work.programs / slots) * slots / work.programs if work.programs > slots else 1.0
    idle = max(1.0, gpu.multiprocessors / work.programs)
    seconds = core * waves * idle + LAUNCH_SECONDS
    return {"seconds": seconds, "waves": waves * idle, "blocks_per_multiprocessor": blocks, **parts}


def _dram_seconds(work: LaunchWork, in_flight: float, gpu: Gpu) -> float:
    """Every tensor moves once if the cache holds what is shared; Little's law limits how fast."""
    needed = gpu.memory_bandwidth / gpu.multiprocessors * DRAM_LATENCY_SECONDS
    moved = min(work.load_bytes + work.store_bytes, work.tensor_bytes)
    return moved / (gpu.memory_bandwidth * DRAM_EFFICIENCY * min(1.0, in_flight / needed))


def _l2_seconds(work: LaunchWork, in_flight: float, gpu: Gpu) -> float:
    needed = gpu.l2_bandwidth / gpu.multiprocessors * L2_LATENCY_SECONDS
    moved = 32 * (work.load_sectors + work.store_sectors)
    return moved / (gpu.l2_bandwidth * L2_EFFICIENCY * min(1.0, in_flight / needed))


def _issue_seconds(work: LaunchWork, narrowest: int, gpu: Gpu) -> float:
    """Load and store units: a warp's access of few bytes a lane costs almost as much as a wide one."""
    warp_accesses = (work.load_bytes + work.store_bytes) / (gpu.warp_size * narrowest)
    cycles = max(1.0, narrowest * gpu.warp_size / 128) + 1
    return warp_accesses * cycles / (gpu.multiprocessors * gpu.clock_hz)


def _matrix_seconds(work: LaunchWork, measured: dict[str, Any], gpu: Gpu) -> float:
    """Of two kinds of matrix instructions in one text the slower is taken: the other may stand where nothing runs."""
    vector_rate = gpu.vector_flops * VECTOR_EFFICIENCY
    if measured["mma_sync"]:
        rate = gpu.tensor_flops * MMA_SYNC_EFFICIENCY
    else:
        rate = gpu.tensor_flops * WGMMA_EFFICIENCY if measured["wgmma"] else vector_rate
    return work.vector_flops / vector_rate + (work.flops - work.vector_flops) / rate


def _spill_seconds(work: LaunchWork, measured: dict[str, Any], threads: int, gpu: Gpu) -> float:
    """Spilled registers go out and in, once per trip of the main loop."""
    sites = max(1, sum(measured["access_widths"].values()))
    trips = max(1.0, work.memory_operations / work.programs / sites)
    return measured["spill_bytes"] * threads * work.programs * 2 * trips / gpu.l2_bandwidth


def roofline_seconds(input_bytes: int, output_bytes: int, flops: int, gpu: Gpu) -> float:
    """No kernel can be faster: every byte moved once at full bandwidth, every operation at the peak rate."""
    return max((input_bytes + output_bytes) / gpu.memory_bandwidth, flops / gpu.tensor_flops)
