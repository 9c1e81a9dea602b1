"""Start of the judge: what the servers warm up on, which sandbox layers hold, and the faults planted to be found."""

from typing import Any

from kernel_search.judge import plan
from kernel_search.judge.client import ServerDied
from kernel_search.judge.pipeline import Pipeline
from kernel_search.judge.screen import screen
from kernel_search.judge.settings import JudgeSettings
from kernel_search.tasks import MATMUL, SOFTMAX, TASKS, VECTOR_ADD

PLANTED = {
    "out_of_bounds": ("tl.arange(0, 64)", "pid * 64"),
    "race": ("tl.arange(0, 32)", "0 * pid"),
}
PLANTED_KERNEL = '''"""A fault that the judge must see: {name}."""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr):
    pid = tl.program_id(0)
    offsets = {start} + {lanes}
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) + pid)


def run(x):
    out = torch.empty_like(x)
    copy_kernel[(2,)](x, out)
    return out
'''


class SelfTestFailed(Exception):
    """A planted fault went unseen, or too few layers hold: nothing may be scored."""


def compile_setup(settings: JudgeSettings) -> dict[str, Any]:
    """Warm-up of the compile server: every starting kernel is recorded, two are compiled."""
    jobs = [plan.record_body(task.seed_source, task, settings) for task in (VECTOR_ADD, SOFTMAX, MATMUL)]
    return {
        "target": settings.target,
        "accesses_per_thread": settings.accesses_per_thread,
        "warm": jobs,
        "compile": [1, 2],
    }


def interpret_setup(settings: JudgeSettings) -> dict[str, Any]:
    """Warm-up of the interpret server: one small case of every starting kernel, and the patterns of scored inputs."""
    jobs = []
    for task in TASKS.values():
        body = plan.interpret_body(task.seed_source, task, 1, settings)
        body["scored"]["sampled"] = 1
        jobs.append(body | {"cases": body["cases"][:1], "scored": body["scored"] if task is VECTOR_ADD else None})
    return {"warm": jobs, "patterns": plan.patterns(list(TASKS.values()))}


def check_compiler(pipeline: Pipeline) -> None:
    """Compile a starting kernel in the sandbox; where nobody cannot reach the installation, keep the user.

    Raises:
        SelfTestFailed: It does not compile either way, so every candidate would be blamed for it.
    """
    task, seen = VECTOR_ADD, "no result"
    for drop_user in (True, False):
        pipeline.drop_user = drop_user
        reply = pipeline.ask(pipeline.compiler, "record", plan.record_body(task.seed_source, task, pipeline.settings))
        launches = (reply.result or {}).get("launches")
        if launches:
            body = {
                "source": screen(task.seed_source),
                "target": pipeline.settings.target,
                "launch": launches[0],
                "accesses_per_thread": pipeline.settings.accesses_per_thread,
            }
            reply = pipeline.ask(pipeline.compiler, "compile_launch", body)
            if "measured" in (reply.result or {}):
                return
        seen = str((reply.result or {}).get("fault") or reply.output[-300:])
    raise SelfTestFailed(f"the starting kernel of {task.name} does not compile in the sandbox: {seen}")


def check_layers(pipeline: Pipeline) -> dict[str, bool]:
    """The layers that a child really has here, by a child that compiles nothing and one that interprets nothing.

    Raises:
        SelfTestFailed: Fewer than the settings demand.
    """
    layers: dict[str, bool] = {"wall_clock": True}
    for server, operation in ((pipeline.compiler, "record"), (pipeline.interpreter, "interpret")):
        reply = pipeline.ask(server, operation, _planted("out_of_bounds", pipeline.settings))
        if reply.result is None:
            raise ServerDied(f"the first {operation} gave no result: {reply.output[-300:]}")
        for name, is_on in reply.result["layers"].items():
            layers[name] = layers.get(name, True) and bool(is_on)
    if sum(layers.values()) < pipeline.settings.required_layers:
        on = ", ".join(name for name, is_on in layers.items() if is_on)
        raise SelfTestFailed(
            f"only these sandbox layers are on: {on}; {pipeline.settings.required_layers} are required"
        )
    return layers


def check_planted_faults(pipeline: Pipeline) -> None:
    """Run each planted fault as a candidate would run.

    Raises:
        SelfTestFailed: One went unseen.
    """
    for name in PLANTED:
        reply = pipeline.ask(pipeline.interpreter, "interpret", _planted(name, pipeline.settings))
        seen = (reply.result or {}).get("fault", ["nothing"])[0]
        if seen != name:
            raise SelfTestFailed(f"a planted fault went unseen: {name} was reported as {seen}")


def _planted(name: str, settings: JudgeSettings) -> dict[str, Any]:
    lanes, start = PLANTED[name]
    spec = {"shape": [64], "dtype": "float32", "regime": "normal", "seed": 1}
    return {
        "source": PLANTED_KERNEL.format(name=name, lanes=lanes, start=start),
        "target": settings.target,
        "dtype": "float32",
        "seed": 1,
        "cases": [{"inputs": [spec], "output_shape": [64]}],
        "scored": None,
        "input_shapes": [[64]],
        "output_shape": [64],
        "reduced_always": False,
    }
