import multiprocessing
import re
from datetime import datetime
from pathlib import Path

from small_logs import NOW, contents, node, rows, start_of_run, versions, write_lines
from store.home import open_home
from transforms.ingest import ingest_paths


def _ingest(home: str, paths: list[str], now: datetime, barrier) -> None:
    opened = open_home(home)
    barrier.wait()
    ingest_paths(opened, [Path(path) for path in paths], now=now)


def test_ingests_at_the_same_time_number_sessions_once_and_double_no_row(home, tmp_path):
    folder = tmp_path / "logs"
    shared = write_lines(folder / "shared.jsonl", *start_of_run("shared"), node("a", step=0), node("b", "a", step=1))
    # Each worker adds a node to the session that all share, and a session of its own.
    own = [
        write_lines(
            folder / f"{name}.jsonl",
            *start_of_run("shared"),
            node(name, parent="b", step=step),
            *start_of_run(name),
            node("a"),
            node("b", parent="a"),
        )
        for step, name in enumerate("xyz", start=2)
    ]
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(3)
    workers = [
        context.Process(target=_ingest, args=(str(home.path), [str(shared), str(log)], NOW, barrier)) for log in own
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]

    sessions = rows(home, "sessions")
    assert sorted(row["session_seq"] for row in sessions) == [1, 2, 3, 4]
    assert len({row["session_id"] for row in sessions}) == 4
    seq_of = {row["session_id"]: row["session_seq"] for row in sessions}
    for name in ("nodes", "change_log"):
        assert all(row["session_seq"] == seq_of[row["session_id"]] for row in rows(home, name))
    alone = open_home(tmp_path / "alone")
    ingest_paths(alone, [folder], now=NOW)
    assert without_numbers(home) == without_numbers(alone)
    assert {row["visits"] for row in rows(home, "nodes") if row["artifact"] == "artifact b"} == {4, 1}
    before = versions(home)
    ingest_paths(home, [folder], now=NOW)
    assert versions(home) == before


def without_numbers(home):
    """Contents without cluster keys, which two ingests may give differently, and without the books of each file."""
    kept = {name: texts for name, texts in contents(home).items() if name != "sources"}
    return {name: sorted(re.sub(r"\('session_seq', \d+\)", "", text) for text in texts) for name, texts in kept.items()}
