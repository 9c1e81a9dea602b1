"""Runs the dbt project over the steps, in one process, and prints what each took and whether its rows are right."""

import json
import os
import sys
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parent / "dbt_project"


def main(data: Path, steps: list[str]) -> None:
    """Load, run, apply a step, run again, and so on; one JSON object on stdout."""
    database = data / "dbt.duckdb"
    os.environ |= {"PEERS_DATABASE": str(database), "DO_NOT_TRACK": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}
    from dbt.cli.main import dbtRunner
    from warehouse import apply_step, load_first, rows_that_differ

    runner = dbtRunner()

    def run(*arguments: str) -> tuple[float, float]:
        places = ["--project-dir", str(PROJECT), "--profiles-dir", str(PROJECT), "--target-path", str(data / "target")]
        begin = time.perf_counter()
        answer = runner.invoke(["run", *places, "--log-path", str(data / "logs"), "--quiet", *arguments])
        seconds = time.perf_counter() - begin
        if not answer.success:
            raise SystemExit(f"dbt failed: {answer.exception or [result.message for result in answer.result]}")
        return seconds, sum(result.execution_time for result in answer.result)

    load_first(database, data)
    found = {"first build": dict(zip(("seconds", "model_seconds"), run(), strict=True))}
    for step, kind in enumerate(steps, start=1):
        apply_step(database, data, step, flag_deletes=kind == "deletes, flagged")
        seconds, model_seconds = run()
        wrong = rows_that_differ(database, "main.dpo_pairs", data / str(step) / "expected.parquet")
        found[kind] = {"seconds": seconds, "model_seconds": model_seconds, **wrong}
    seconds, model_seconds = run("--full-refresh")
    wrong = rows_that_differ(database, "main.dpo_pairs", data / str(len(steps)) / "expected.parquet")
    found["full refresh"] = {"seconds": seconds, "model_seconds": model_seconds, **wrong}
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
