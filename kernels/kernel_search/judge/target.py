"""The named GPU: its limits, and honest answers to the questions that host code asks about its device.

No such device is present. Recording and interpreting give the same answers, so that a candidate can neither ask for a
count of multiprocessors in vain nor tell the two apart by asking.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """Published numbers of one GPU; bandwidths in bytes per second, rates in operations per second."""

    name: str
    capability: int
    multiprocessors: int
    warp_size: int
    registers_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block: int
    warps_per_multiprocessor: int
    blocks_per_multiprocessor: int
    threads_per_block: int
    clock_hz: float
    memory_bandwidth: float
    l2_bandwidth: float
    tensor_flops: float
    vector_flops: float
    memory_bytes: int


H100 = Gpu(
    name="NVIDIA H100 80GB HBM3",
    capability=90,
    multiprocessors=132,
    warp_size=32,
    registers_per_multiprocessor=65536,
    shared_per_multiprocessor=233472,
    shared_per_block=232448,
    warps_per_multiprocessor=64,
    blocks_per_multiprocessor=32,
    threads_per_block=1024,
    clock_hz=1.7e9,
    memory_bandwidth=3.35e12,
    l2_bandwidth=7.5e12,
    tensor_flops=989e12,
    vector_flops=67e12,
    memory_bytes=80 * 2**30,
)
TARGETS = {"sm90": H100}


class TargetDriver:
    """What Triton's runtime asks its driver, answered for a device that is not here."""

    def __init__(self, gpu: Gpu):
        self._gpu = gpu
        self.utils = SimpleNamespace(get_device_properties=self._properties)

    def _properties(self, device: int = 0) -> dict[str, int]:
        gpu = self._gpu
        return {
            "max_shared_mem": gpu.shared_per_block,
            "max_num_regs": gpu.registers_per_multiprocessor,
            "multiprocessor_count": gpu.multiprocessors,
            "warpSize": gpu.warp_size,
            "sm_clock_rate": int(gpu.clock_hz / 1e3),
        }

    def get_current_target(self) -> Any:
        """The compilation target."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._gpu.capability, self._gpu.warp_size)

    def get_current_device(self) -> int:
        """Its index."""
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> Any:
        """The device as torch names it."""
        import torch

        return torch.device("cuda", 0)

    def is_active(self) -> bool:
        """Whether kernels may be launched; they are recorded or interpreted, so yes."""
        return True


def pretend_device(gpu: Gpu) -> None:
    """Make torch.cuda and Triton's driver answer as the target; only for a child that runs one candidate."""
    import torch
    import triton

    properties = SimpleNamespace(
        name=gpu.name,
        multi_processor_count=gpu.multiprocessors,
        major=gpu.capability // 10,
        minor=gpu.capability % 10,
        warp_size=gpu.warp_size,
        total_memory=gpu.memory_bytes,
        shared_memory_per_block_optin=gpu.shared_per_block,
        regs_per_multiprocessor=gpu.registers_per_multiprocessor,
    )

    @contextmanager
    def device_scope(device: object = None) -> Iterator[None]:
        yield

    torch.cuda.get_device_properties = lambda device=None: properties
    torch.cuda.get_device_capability = lambda device=None: (gpu.capability // 10, gpu.capability % 10)
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_available = lambda: True
    torch.cuda.device = device_scope
    triton.runtime.driver.set_active(TargetDriver(gpu))
