"""The interpret server's operation: run a candidate under the checking interpreter and report what it stored.

Nothing here knows a right answer. Values go back to the judge, which compares them where no candidate runs.
"""

import fcntl
import mmap
import os
import random
from typing import Any

import numpy as np
import torch

from kernel_search.judge import candidate, inputs, interpreter, launches, target
from kernel_search.judge.candidate import CandidateFault, OperationGuard
from kernel_search.judge.estimate import COUNTED
from kernel_search.judge.interpreter import CURRENT, Execution
from kernel_search.judge.paths import readable_paths
from kernel_search.judge.shadow import Memory, Touched, distinct

GUARD_ELEMENTS = 64  # NaN around every small input, a second layer under the bounds check
POISON_BELOW = 1 << 20
VALUES_PER_PROGRAM = 32_768
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_patterns: dict[tuple[str, str], tuple[int, int]] = {}


class Runner:
    """Runs one loaded candidate on case after case, reusing input buffers of equal shape at the same address."""

    def __init__(self, body: dict[str, Any]):
        self.body = body
        self.module: Any = None
        self.buffers: dict[tuple[Any, ...], torch.Tensor] = {}

    def small_inputs(self, specs: list[dict[str, Any]]) -> list[torch.Tensor]:
        """Inputs of a case, in buffers with poison on both sides."""
        made = []
        for number, spec in enumerate(specs):
            values = inputs.make_input(
                inputs.InputSpec(tuple(spec["shape"]), spec["dtype"], spec["regime"], spec["seed"])
            )
            key = (number, *spec["shape"], spec["dtype"])
            if key not in self.buffers:
                size, dtype = values.size + 2 * GUARD_ELEMENTS, getattr(torch, spec["dtype"])
                self.buffers[key] = torch.full((size,), float("nan"), dtype=dtype)
            inner = self.buffers[key][GUARD_ELEMENTS : GUARD_ELEMENTS + values.size].view(values.shape)
            inner.copy_(torch.from_numpy(values))
            made.append(inner)
        return made

    def call(self, tensors: list[torch.Tensor], output_shape: list[int], **plan: Any) -> tuple[torch.Tensor, Execution]:
        """One call of `run` under an execution plan; its output, contract checked."""
        memory = Memory(tensors, has_cells=plan.get("sampled") is None)
        execution = Execution(memory, launches.Roles(tensors), **plan)
        CURRENT.append(execution)
        try:
            guard = OperationGuard(poison_below_elements=POISON_BELOW)
            output = candidate.call(self.module.run, tensors, guard)
        finally:
            CURRENT.pop()
        if not execution.described:
            raise CandidateFault("no_launch", "run launched no kernel")
        return candidate.check_output(output, output_shape, self.body["dtype"], tensors), execution

    def small_case(self, case: dict[str, Any], order_seed: int) -> dict[str, Any]:
        """Run every program of a small launch; the values, and which elements no kernel stored."""
        tensors = self.small_inputs(case["inputs"])
        before = [tensor.numpy().tobytes() for tensor in tensors]
        output, execution = self.call(tensors, case["output_shape"], order_seed=order_seed)
        if any(tensor.numpy().tobytes() != bytes_before for tensor, bytes_before in zip(tensors, before, strict=True)):
            raise CandidateFault("contract", "an input was changed")
        region = execution.memory.region_of(output)
        if region is None or region.stored is None:
            return {"values": output.numpy(), "unstored": int(output.numel())}
        first = (output.data_ptr() - region.low) // region.element_bytes
        stored = region.stored[first : first + output.numel()]
        return {
            "values": output.numpy().copy(),
            "unstored": int(output.numel() - np.count_nonzero(stored)),
            "uses_atomics": execution.memory.uses_atomics,
        }

    def scored_case(self, scored: dict[str, Any]) -> dict[str, Any]:
        """Run sampled programs of the scored launch; what they stored, and what they moved."""
        tensors = [
            _window(scored, shape, offset)
            for shape, offset in zip(scored["input_shapes"], scored["offsets"], strict=True)
        ]
        output, execution = self.call(
            tensors, scored["output_shape"], order_seed=self.body["seed"] + 1,
            sampled=scored["sampled"], operation_limit=scored["operation_limit"], is_long=scored["is_long"],
        )  # fmt: skip
        programs, overlap = _stores_by_program(output, execution, random.Random(self.body["seed"]))
        return {
            "launches": execution.described,
            "traffic": [[_traffic(one) for one in programs_of] for programs_of in execution.traffic],
            "tensor_bytes": [_distinct_bytes(tensors_of) for tensors_of in execution.tensors],
            "touched": [_touched(one) for one in execution.memory.touched],
            "output_role": execution.roles.of(output),
            "programs": programs,
            "overlap": overlap,
        }


def _traffic(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in COUNTED}


def _touched(one: Touched) -> dict[str, Any]:
    roles = {kind: sorted(getattr(one, kind)) for kind in ("loads", "stores", "updates")}
    return roles | {"stopped": one.stopped}


def _distinct_bytes(tensors: list[torch.Tensor]) -> int:
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
    return sum(storages.values())


def _stores_by_program(
    output: torch.Tensor, execution: Execution, rng: random.Random
) -> tuple[list[dict[str, Any]], list[int]]:
    """Per launch and sampled program the output elements that it stored (a drawn part of very many) with their values.

    The second result counts, per launch, the elements that more than one of its sampled programs stored.
    """
    by_program: dict[tuple[int, int], list[np.ndarray]] = {}
    region = execution.memory.region_of(output)
    low, high = output.data_ptr(), output.data_ptr() + output.numel() * output.element_size()
    for launch, program, owner, addresses in execution.memory.program_stores:
        if owner is region:
            inside = addresses[(addresses >= np.uint64(low)) & (addresses < np.uint64(high))]
            by_program.setdefault((launch, program), []).append(inside)
    flat = output.view(-1).numpy()
    found: list[dict[str, Any]] = []
    all_positions: list[list[np.ndarray]] = [[] for _ in execution.memory.touched]
    for (launch, program), parts in by_program.items():
        offsets = distinct(np.concatenate(parts)) - np.uint64(low)
        positions = distinct(offsets // np.uint64(output.element_size())).astype(np.int64)
        all_positions[launch].append(positions)
        kept = positions
        if positions.size > VALUES_PER_PROGRAM:
            start = rng.randrange(positions.size - VALUES_PER_PROGRAM)
            kept = positions[start : start + VALUES_PER_PROGRAM]
        found.append(
            {"launch": launch, "program": program, "stored": int(positions.size), "positions": kept}
            | {"values": flat[kept]}
        )
    return found, [_repeated(np.concatenate(parts)) if parts else 0 for parts in all_positions]


def _repeated(positions: np.ndarray) -> int:
    return int(positions.size - distinct(positions).size)


def _window(scored: dict[str, Any], shape: list[int], offset: int) -> torch.Tensor:
    """A private window into the repeated pattern; its pages are read from the server's memory when touched."""
    file, size = _patterns[(scored["regime"], scored["dtype"])]
    view = mmap.mmap(file, size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    values = np.frombuffer(view, dtype=scored["dtype"])[offset : offset + int(np.prod(shape))]
    return torch.from_numpy(values).view(shape)


def _prepare_patterns(wanted: list[dict[str, Any]]) -> None:
    for item in wanted:
        key = (item["regime"], item["dtype"])
        if key in _patterns:
            continue
        part = inputs.pattern(*key)
        size = item["elements"] * part.itemsize
        file = os.memfd_create("-".join(key), os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.truncate(file, size)
        with mmap.mmap(file, size) as view:
            for start in range(0, size, part.nbytes):
                piece = memoryview(part).cast("B")[: size - start]
                view[start : start + len(piece)] = piece
        # Every child inherits the file: one that could write to it would spoil the inputs of all later candidates.
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
        _patterns[key] = (file, size)


def interpret(body: dict[str, Any]) -> dict[str, Any]:
    """Run all cases; a fault of the candidate ends the case it happens in, and the rest of the cases."""
    target.pretend_device(target.TARGETS[body["target"]])
    candidate.use_first_configuration()
    runner = Runner(body)
    report: dict[str, Any] = {"cases": [], "stage": "load"}
    try:
        runner.module = candidate.load(body["source"])
        report["stage"] = "cases"
        for number, case in enumerate(body["cases"]):
            report["cases"].append(runner.small_case(case, order_seed=body["seed"] + number if number else 0))
        if body["cases"]:
            report["again"] = runner.small_case(body["cases"][0], order_seed=0)
        if body.get("scored"):
            report["stage"] = "scored"
            report["scored"] = runner.scored_case(body["scored"])
            touched = report["scored"]["touched"]
            if body["reduced_always"] or len(touched) > 1 or any(one["updates"] or one["stopped"] for one in touched):
                report["stage"] = "reduced"
                report["reduced"] = runner.small_case(body["reduced"], order_seed=body["seed"] + 99)
    except CandidateFault as fault:
        report["fault"] = [fault.failure_class, str(fault)]
    return report


def warm_up(setup: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Install the checks, prepare the scored inputs, interpret our own kernels once."""
    torch.set_num_threads(1)
    interpreter.install()
    _prepare_patterns(setup["patterns"])
    for job in setup["warm"]:
        interpret(job)
    return {"interpret": interpret}, readable_paths()
