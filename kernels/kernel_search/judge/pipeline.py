"""One candidate's way through the checks, up to its estimate: screen, record, compile, interpret, compare, estimate."""

import signal
from collections.abc import MutableMapping
from typing import Any

from kernel_search.judge import estimate, findings, plan
from kernel_search.judge.client import Reply, Server, ServerDied
from kernel_search.judge.findings import Rejected
from kernel_search.judge.screen import Refused, screen
from kernel_search.judge.settings import JudgeSettings
from kernel_search.judge.target import TARGETS
from kernel_search.tasks import KernelTask
from store.ids import canonical_json, sha256_text
from store.verdicts import Check


class Pipeline:
    """The servers and settings that every candidate is judged with.

    `compiles` keeps results by (kernel text, launch, target): the text comes from the screen, not from the child.
    """

    def __init__(
        self, settings: JudgeSettings, compiler: Server, interpreter: Server, compiles: MutableMapping[str, Any]
    ):
        self.settings = settings
        self.compiler = compiler
        self.interpreter = interpreter
        self.compiles = compiles
        self.gpu = TARGETS[settings.target]
        self.drop_user = True

    def evaluate(self, source: str, task: KernelTask, seed: int, checks: list[Check], metrics: dict[str, Any]) -> None:
        """Run all checks; passed ones are appended to `checks`, numbers put into `metrics`.

        Raises:
            Rejected: The first check that failed.
            ServerDied: A server failed, and once more after a restart.
        """
        own_seed = plan.candidate_seed(source, task, seed)
        try:
            kernel_source = screen(source)
        except Refused as refusal:
            raise Rejected(refusal.failure_class, "screen", str(refusal)) from None
        checks.append(Check("screen", True))
        recorded = self._record(source, task)
        checks.append(Check("record", True, f"{len(recorded)} launches"))
        measured = [self._compile(kernel_source, launch) for launch in recorded]
        checks.append(Check("compile", True, self.settings.target))
        checks.append(Check("resources", True))
        body = plan.interpret_body(source, task, own_seed, self.settings)
        report = self._interpret(body)
        scored = self._check_report(task, own_seed, body, report, recorded, checks)
        findings.check_compiled(measured, scored)
        self._estimate(task, scored, measured, checks, metrics)

    def ask(self, server: Server, operation: str, body: dict[str, Any]) -> Reply:
        """Ask a server within the settings' limits; once more when it died.

        Raises:
            ServerDied: It died twice.
        """
        limits = plan.limits(self.settings, operation, body, drop_user=self.drop_user)
        try:
            return server.ask(operation, body, **limits)
        except ServerDied:
            server.restart_if_dead()
            return server.ask(operation, body, **limits)

    def _outcome(self, reply: Reply, check: str, cpu_limit: int) -> dict[str, Any]:
        """The child's report, or the reason why there is none."""
        if reply.is_timed_out:
            raise Rejected("hang", check, f"still running after {self.settings.wall_seconds} s")
        if reply.is_oversized:
            raise Rejected("contract", check, f"sent more than {self.settings.result_mib} MiB")
        if reply.signal in (signal.SIGXCPU, signal.SIGKILL) and reply.cpu_seconds > 0.8 * cpu_limit:
            raise Rejected("hang", check, f"used up {cpu_limit} s of CPU time")
        if reply.result is None:
            reason = f"died of signal {signal.Signals(reply.signal).name}" if reply.signal else "ended without a result"
            raise Rejected("crash", check, f"the child {reason}")
        fault = reply.result.get("fault")
        if fault is not None and check != "interpret":
            message = str(fault[1])
            if fault[0] == "lowering":
                errors = [
                    line.partition("error: ")[2].strip() for line in reply.output.splitlines() if "error: " in line
                ]
                message = f"{message}; {errors[0][:200]}" if errors else message
            raise Rejected(str(fault[0]), "resources" if fault[0] == "resources" else check, message)
        return reply.result

    def _record(self, source: str, task: KernelTask) -> list[dict[str, Any]]:
        reply = self.ask(self.compiler, "record", plan.record_body(source, task, self.settings))
        return list(self._outcome(reply, "record", self.settings.compile_cpu_seconds)["launches"])

    def _compile(self, kernel_source: str, launch: dict[str, Any]) -> dict[str, Any]:
        wanted = {key: launch[key] for key in ("kernel", "options", "specialisation")}
        key = sha256_text(canonical_json([self.settings.target, kernel_source, wanted]))
        if key not in self.compiles:
            body = {
                "source": kernel_source,
                "target": self.settings.target,
                "launch": wanted,
                "accesses_per_thread": self.settings.accesses_per_thread,
            }
            reply = self.ask(self.compiler, "compile_launch", body)
            try:
                self.compiles[key] = self._outcome(reply, "compile", self.settings.compile_cpu_seconds)["measured"]
            except Rejected as rejection:
                self.compiles[key] = rejection
        found = self.compiles[key]
        if isinstance(found, Rejected):
            raise Rejected(found.failure_class, found.check, str(found))
        return dict(found)

    def _interpret(self, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.ask(self.interpreter, "interpret", body)
        return self._outcome(reply, "interpret", plan.cpu_seconds(self.settings, "interpret", body))

    def _check_report(self, task: KernelTask, seed: int, body: dict[str, Any], report: dict[str, Any],
                      recorded: list[dict[str, Any]], checks: list[Check]) -> dict[str, Any]:  # fmt: skip
        """Compare everything that was interpreted; what came first is what the candidate is told."""
        findings.check_small_cases(task, seed, report)
        fault = report.get("fault")
        if fault is not None:
            stage = str(report.get("stage"))
            name = {"out_of_bounds": "bounds", "race": "races"}.get(str(fault[0]), "interpret")
            raise Rejected(str(fault[0]), name, f"{'scored shape: ' if stage == 'scored' else ''}{fault[1]}")
        checks.append(Check("values", True, f"{len(report['cases'])} cases"))
        checks += [Check("bounds", True), Check("races", True)]
        scored = report["scored"]
        findings.check_launches(recorded, scored["launches"])
        checks.append(Check("same_launches", True))
        findings.check_reduced(task, seed, report)
        scored = self._sample_enough(task, seed, body, scored)
        checks.append(Check("scored_shape", True, f"{len(scored['traffic'][0])} sampled programs"))
        checks.append(Check("coverage", True))
        return dict(scored)

    def _sample_enough(
        self, task: KernelTask, seed: int, body: dict[str, Any], scored: dict[str, Any]
    ) -> dict[str, Any]:
        """Follow more programs of the scored launch, or these ones further, until they show what it covers."""
        case = body["scored"]
        while (missing := findings.check_scored(task, case, scored)) is not None:
            sampled = plan.LONG_SAMPLE if missing == "longer" else findings.wide_sample(scored)
            is_long = missing == "longer" or case["is_long"]
            case = plan.scored_case(task, seed, self.settings, sampled=sampled, is_long=is_long)
            again = self._interpret(body | {"cases": [], "scored": case, "reduced_always": False})
            if again.get("fault") is not None:
                raise Rejected(str(again["fault"][0]), "scored_shape", str(again["fault"][1]))
            scored = again["scored"]
        return scored

    def _estimate(self, task: KernelTask, scored: dict[str, Any], measured: list[dict[str, Any]], checks: list[Check],
                  metrics: dict[str, Any]) -> None:  # fmt: skip
        works = findings.launch_work(task, scored)
        findings.check_work(task, works)
        checks.append(Check("traffic", True))
        parts = [estimate.estimate_seconds(work, one, self.gpu) for work, one in zip(works, measured, strict=True)]
        seconds = sum(part["seconds"] for part in parts)
        flops = task.flops(task.scored_shape) if task.flops else 0
        floor = estimate.roofline_seconds(task.input_bytes, task.output_bytes, flops, self.gpu)
        metrics[estimate.METRIC] = round(seconds * 1e6, 3)
        metrics["roofline_us"] = round(floor * 1e6, 3)
        metrics["launches"] = [
            one | {key: round(value, 1) for key, value in vars(work).items()} | {"estimate": _rounded(part)}
            for one, work, part in zip(measured, works, parts, strict=True)
        ]
        if seconds < 0.98 * floor:
            raise Rejected(
                "implausible", "roofline", f"estimate {seconds * 1e6:.1f} us is below the roofline {floor * 1e6:.1f} us"
            )
        checks.append(Check("roofline", True))


def _rounded(part: dict[str, float]) -> dict[str, float]:
    """The parts of an estimate with times in microseconds."""
    factors = ("waves", "blocks_per_multiprocessor")
    return {
        name if name in factors else f"{name}_us": round(value if name in factors else value * 1e6, 4)
        for name, value in part.items()
    }
