"""Runs the SQLMesh project over the steps, in one process, and prints what each took and whether its rows are right."""

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path

PROJECT = Path(__file__).resolve().parent / "sqlmesh_project"


def main(data: Path, steps: list[str]) -> None:
    """Load, plan and apply, apply a step, run the next interval, and so on; one JSON object on stdout."""
    database = data / "sqlmesh.duckdb"
    os.environ |= {"PEERS_DATABASE": str(database), "PEERS_STATE": str(data / "sqlmesh_state.duckdb")}
    os.environ |= {"PEERS_CACHE": str(data / "sqlmesh_cache"), "MAX_FORK_WORKERS": "1"}
    from sqlmesh import Context
    from warehouse import apply_step, day_of, load_first, rows_that_differ

    def run(step: int, *, restate: bool = False) -> float:
        """Open the project and bring the model up to the end of a step's day."""
        now = day_of(step + 1) + timedelta(minutes=5)
        begin = time.perf_counter()
        context = Context(paths=[str(PROJECT)])
        if step == 0:
            context.plan(execution_time=now, auto_apply=True, no_prompts=True)
        elif restate:
            context.plan(
                restate_models=["marts.dpo_pairs"],
                start=day_of(0),
                end=day_of(step),
                execution_time=now,
                auto_apply=True,
                no_prompts=True,
            )
        else:
            status = context.run(execution_time=now, ignore_cron=True)
            if status.is_failure:
                raise SystemExit(f"SQLMesh failed: {status}")
        seconds = time.perf_counter() - begin
        context.close()
        return seconds

    load_first(database, data)
    found = {"first build": {"seconds": run(0)}}
    for step, kind in enumerate(steps, start=1):
        apply_step(database, data, step, flag_deletes=kind == "deletes, flagged")
        seconds = run(step)
        wrong = rows_that_differ(database, "marts.dpo_pairs", data / str(step) / "expected.parquet")
        found[kind] = {"seconds": seconds, **wrong}
    seconds = run(len(steps), restate=True)
    wrong = rows_that_differ(database, "marts.dpo_pairs", data / str(len(steps)) / "expected.parquet")
    found["full refresh"] = {"seconds": seconds, **wrong}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
