"""What judging costs: CPU seconds per candidate over a fixed list, candidates per second, and the start of the judge.

The list is what the rules and the uniform proposer answer to two sources of every task, the starting kernel and one
that a search soon reaches; answers that give no candidate, and repeated candidates, are left out. CPU seconds count
the judge, its two servers and all their children, and hold on a busy machine as well; candidates per second do not.
`--verdicts FILE` writes every verdict without its times, so that two versions of the judge can be compared.
"""

import argparse
import json
import os
import time
from pathlib import Path

from kernel_search.edits import apply_edits, render_prompt
from kernel_search.judge import Judge
from kernel_search.proposers import Request, make_proposer
from kernel_search.search_settings import read_search_settings
from kernel_search.tasks import TASKS, KernelTask

ANSWERS_PER_PROMPT = 5
REACHED = {  # edits that lead from each starting kernel to the second source
    "vector_add": "block 1024\nwarps 8",
    "softmax": "form two\nblock 2048",
    "rms_norm": "form one\nblock full",
    "matmul": "bm 64\nbn 64",
}


def candidates() -> list[tuple[str, KernelTask, int]]:
    """The fixed list, as the judge takes it: (source, task, seed)."""
    settings = read_search_settings()
    proposers = [make_proposer(name, settings) for name in ("rules", "uniform")]
    found: dict[tuple[str, str], tuple[str, KernelTask, int]] = {}
    for task in TASKS.values():
        reached = apply_edits(task.seed_source, REACHED[task.name]).source
        assert reached is not None, f"{task.name}: {REACHED[task.name]!r} no longer applies"
        for parent in (task.seed_source, reached):
            prompt = tuple(render_prompt(task, parent))
            requests = [Request(prompt, seed) for seed in range(ANSWERS_PER_PROMPT)]
            for proposer in proposers:
                for answer in proposer.propose(requests):
                    source = apply_edits(parent, answer.turn["content"]).source
                    if source is not None:
                        found[task.name, source] = (source, task, 0)
    return list(found.values())


def cpu_seconds(processes: list[int]) -> float:
    """CPU seconds of this process, and of others with the children they have collected."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(int(fields[place]) for place in (11, 12, 13, 14))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verdicts", type=Path, help="write the verdicts to this file")
    parser.add_argument("--workers", type=int, default=2, help="candidates judged at the same time")
    arguments = parser.parse_args()
    items = candidates()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    with Judge(workers=arguments.workers) as judge:
        servers = judge.processes()
        ready, ready_cpu = time.perf_counter(), cpu_seconds(servers)
        print(f"start of the judge: {ready - begin:.1f} s, {ready_cpu - begin_cpu:.1f} CPU-s (target 8 s)")
        for task in TASKS.values():
            judge.baseline_us(task)
        begin, begin_cpu = time.perf_counter(), cpu_seconds(servers)
        print(f"{len(TASKS)} starting kernels: {begin - ready:.1f} s, {begin_cpu - ready_cpu:.1f} CPU-s", flush=True)
        verdicts = list(judge.judge_many(items))
        seconds, spent = time.perf_counter() - begin, cpu_seconds(servers) - begin_cpu
    accepted = sum(verdict.is_accepted for verdict in verdicts)
    print(
        f"{len(items)} candidates, {accepted} accepted, {arguments.workers} at a time: "
        f"{spent / len(items):.2f} CPU-s each, {len(items) / seconds:.2f} per second"
    )
    for name in TASKS:
        of_task = [v for v, (_, task, _) in zip(verdicts, items, strict=True) if task.name == name]
        print(f"  {name}: {sum(v.seconds or 0.0 for v in of_task) / len(of_task):.2f} s each on the wall")
    if arguments.verdicts is not None:
        rows = [
            {"task": task.name, "failure_class": v.failure_class, "fitness": v.fitness, "reward": v.reward,
             "metrics": v.metrics, "evidence": v.evidence, "checks": [vars(check) for check in v.checks]}
            for v, (_, task, _) in zip(verdicts, items, strict=True)
        ]  # fmt: skip
        arguments.verdicts.write_text("\n".join(json.dumps(row, sort_keys=True, default=str) for row in rows) + "\n")


if __name__ == "__main__":
    main()
