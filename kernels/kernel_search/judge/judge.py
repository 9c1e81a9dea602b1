"""The judge of kernel candidates: hostile source text in, a verdict with evidence out, no GPU anywhere.

Order of checks: static screen; launches recorded at the scored shape; every distinct launch compiled for the named
target and measured; all programs interpreted at several small shapes under bounds, race and poison checks; sampled
programs of the scored shape interpreted too; values compared here, where no candidate runs, with a float64 reference;
a static estimate of the time. Candidates run only in sandboxed forks of two warm servers. An estimate is a model's
number: nothing was run on a GPU, and the metric's name says so.
"""

import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from types import TracebackType
from typing import Any

from kernel_search.judge import estimate, warmup
from kernel_search.judge.client import Server, ServerDied
from kernel_search.judge.findings import Rejected
from kernel_search.judge.pipeline import Pipeline
from kernel_search.judge.settings import JudgeSettings, judge_settings
from kernel_search.judge.target import TARGETS
from kernel_search.rewards import kernel_rewards
from kernel_search.tasks import KernelTask
from store.errors import PipelineError
from store.ids import canonical_json, sha256_text
from store.verdicts import Check, Verdict

VERIFIER = "kernel_search.judge@2"


class HarnessFailure(Exception):
    """The judge itself failed; the candidate's outcome is unknown. `kind` follows `harness.`."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind = kind


class Judge:
    """Keeps the warm servers and judges candidates; use it as a context manager.

    Equal (source, task, seed) gives an equal verdict, `seconds` apart; repeated ones are answered from memory.

    Attributes:
        layers: Per sandbox layer, whether this machine lets a candidate's child have it; empty before the start.
    """

    def __init__(self, *, workers: int = 2, settings: JudgeSettings | None = None):
        self.workers = max(1, workers)
        self.settings = settings or judge_settings()
        self.rewards = kernel_rewards()
        self.layers: dict[str, bool] = {}
        self.environment = {
            "target": self.settings.target,
            "gpu": TARGETS[self.settings.target].name,
            "basis": estimate.BASIS,
            "triton": version("triton"),
            "torch": version("torch"),
        }
        self.environment_digest = sha256_text(canonical_json(self.environment))
        self._harness_fault: HarnessFailure | None = None
        self._pipeline: Pipeline | None = None
        self._start_lock = threading.Lock()
        self._memory_lock = threading.Lock()
        self._memory: OrderedDict[tuple[str, str, int], Future[Verdict]] = OrderedDict()
        self._baselines: dict[str, float] = {}
        self._baseline_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def __enter__(self) -> "Judge":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start and warm both servers, see which layers hold, and plant known faults; a no-op when running.

        A judge that misses a planted fault, or has too few layers, stays up and answers `unknown` to everything.
        """
        with self._start_lock:
            if self._pipeline is not None:
                return
            compiler = Server("compile", warmup.compile_setup(self.settings))
            interpreter = Server("interpret", warmup.interpret_setup(self.settings))
            self._pipeline = Pipeline(self.settings, compiler, interpreter, _Bounded(self.settings.cached_compiles))
            try:
                compiler.start()
                interpreter.start()
                import torch  # noqa: F401 - the reference's library loads while the servers warm up

                compiler.wait_until_ready()
                interpreter.wait_until_ready()
                warmup.check_compiler(self._pipeline)
                self.layers = warmup.check_layers(self._pipeline)
                warmup.check_planted_faults(self._pipeline)
            except ServerDied as error:
                self._harness_fault = HarnessFailure("server", str(error))
            except warmup.SelfTestFailed as error:
                self._harness_fault = HarnessFailure("self_test", str(error))

    def close(self) -> None:
        """Stop the servers and whatever they still run."""
        with self._start_lock:
            if self._pipeline is not None:
                self._pipeline.compiler.close()
                self._pipeline.interpreter.close()
                self._pipeline = None

    def processes(self) -> list[int]:
        """Process numbers of the running servers, so that what they cost can be read from outside."""
        pipeline = self._pipeline
        servers = (pipeline.compiler, pipeline.interpreter) if pipeline is not None else ()
        return [number for server in servers if (number := server.process_number) is not None]

    def judge(self, source: str, task: KernelTask, *, seed: int = 0) -> Verdict:
        """Judge one candidate.

        Args:
            source: Text of one Python file; treated as hostile.
            task: What it must compute.
            seed: Draws inputs, samples and program orders, together with the source.

        Returns:
            The verdict; a failure of the judge itself is outcome `unknown` with reward None, never an exception.
        """
        self.start()
        key = (source, task.task_id, seed)
        with self._memory_lock:
            known = self._memory.get(key)
            if known is None:
                mine: Future[Verdict] = Future()
                self._memory[key] = mine
                while len(self._memory) > max(1, self.settings.cached_verdicts):
                    self._memory.popitem(last=False)
        if known is not None:
            return known.result()
        try:
            verdict = self._judge_now(source, task, seed)
        except BaseException as error:
            mine.set_exception(error)
            self._forget(key)
            raise
        mine.set_result(verdict)
        if verdict.outcome == "unknown":
            self._forget(key)
        return verdict

    def judge_many(self, items: Iterable[tuple[str, KernelTask, int]]) -> Iterator[Verdict]:
        """Judge (source, task, seed) items, `workers` at a time; verdicts come in the order of the items."""
        self.start()
        with ThreadPoolExecutor(self.workers, thread_name_prefix="judge") as pool:
            waiting: list[Future[Verdict]] = []
            try:
                for source, task, seed in items:
                    waiting.append(pool.submit(self.judge, source, task, seed=seed))
                    if len(waiting) > 2 * self.workers:
                        yield waiting.pop(0).result()
                while waiting:
                    yield waiting.pop(0).result()
            finally:
                for future in waiting:
                    future.cancel()

    def baseline_us(self, task: KernelTask) -> float:
        """Estimated microseconds of the task's starting kernel, by the same model as every candidate.

        Raises:
            PipelineError: The starting kernel itself does not pass.
        """
        self.start()
        with self._baseline_locks[task.name]:
            if task.task_id not in self._baselines:
                metrics: dict[str, Any] = {}
                try:
                    self._evaluate(task.seed_source, task, 0, [], metrics)
                except Rejected as rejection:
                    raise PipelineError(
                        f"the starting kernel of {task.name} was rejected ({rejection.failure_class}: {rejection}); "
                        f"mend {task.seed_path.name}."
                    ) from rejection
                except HarnessFailure as failure:
                    raise PipelineError(f"the judge cannot work: {failure}; see `espalier doctor`.") from failure
                self._baselines[task.task_id] = float(metrics[estimate.METRIC])
            return self._baselines[task.task_id]

    def _forget(self, key: tuple[str, str, int]) -> None:
        with self._memory_lock:
            self._memory.pop(key, None)

    def _evaluate(self, source: str, task: KernelTask, seed: int, checks: list[Check], metrics: dict[str, Any]) -> None:
        if self._harness_fault is not None:
            raise self._harness_fault
        if self._pipeline is None:
            raise HarnessFailure("server", "the judge is closed")
        try:
            self._pipeline.evaluate(source, task, seed, checks, metrics)
        except ServerDied as error:
            raise HarnessFailure("server", str(error)) from error

    def _judge_now(self, source: str, task: KernelTask, seed: int) -> Verdict:
        started = time.monotonic()
        checks: list[Check] = []
        metrics: dict[str, Any] = {}
        evidence: dict[str, Any] = {"layers": self.layers}
        try:
            self._evaluate(source, task, seed, checks, metrics)
            if source == task.seed_source:
                self._baselines.setdefault(task.task_id, metrics[estimate.METRIC])
            metrics["baseline_us"] = self.baseline_us(task)
            fitness = self.rewards.fitness(metrics["baseline_us"], metrics[estimate.METRIC])
            outcome, failure_class, reward = "succeeded", None, self.rewards.reward(fitness)
        except Rejected as rejection:
            checks.append(Check(rejection.check, False, str(rejection)))
            evidence["message"] = str(rejection)
            outcome, failure_class, fitness, reward = "failed", rejection.failure_class, None, task.failure_reward
        except (HarnessFailure, PipelineError) as failure:
            kind = failure.kind if isinstance(failure, HarnessFailure) else "baseline"
            evidence["message"] = str(failure)
            outcome, failure_class, fitness, reward = "unknown", f"harness.{kind}", None, None
        return Verdict(
            verdict="accepted" if outcome == "succeeded" else "rejected",
            outcome=outcome,
            failure_class=failure_class,
            checks=tuple(checks),
            metrics=metrics | {"reward_rule": f"kernel@{self.rewards.version}"},
            fitness=fitness,
            reward=reward,
            fitness_basis=estimate.BASIS,
            environment=self.environment,
            environment_digest=self.environment_digest,
            verifier=VERIFIER,
            evidence=evidence,
            seconds=time.monotonic() - started,
        )


class _Bounded(OrderedDict[str, Any]):
    """A mapping that drops its oldest entries."""

    def __init__(self, limit: int):
        super().__init__()
        self._limit = limit

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        while len(self) > max(1, self._limit):
            self.popitem(last=False)
