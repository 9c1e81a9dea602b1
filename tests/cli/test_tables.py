"""`tables`, `history`, `query`: what there is, where it came from, and what is in it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from small_logs import journal_node, write_journal
from store.delta import Tables
from store.home import Home

Espalier = Callable[..., Any]


def put_task(home: Home, task_id: str, baseline_fitness: float | None) -> None:
    tables = Tables(home)
    row = {"task_id": task_id, "baseline_fitness": baseline_fitness}
    rows = pa.Table.from_pylist([row], schema=tables.schema("tasks").columns)
    tables.upsert("tasks", rows, metadata={"source": task_id})


def test_tables_lists_tables_and_views_with_their_rows_and_versions(home: Home, espalier: Espalier) -> None:
    put_task(home, "softmax", 1.0)
    listed = {row["name"]: row for row in espalier("tables", "--json").json["tables"]}
    tasks = listed["tasks"]
    assert (tasks["kind"], tasks["rows"], tasks["version"], tasks["data_version"]) == ("table", 1, 1, 1)
    pairs = listed["dpo_pairs"]
    assert (pairs["kind"], pairs["rows"], pairs["version"], pairs["data_version"]) == ("view", 0, None, None)
    shown = espalier("tables")
    assert shown.code == 0
    assert "What a search tries to solve." in shown.out


def test_history_tells_what_made_each_version_newest_first(home: Home, espalier: Espalier) -> None:
    put_task(home, "softmax", 1.0)
    put_task(home, "softmax", 2.0)
    versions = espalier("history", "tasks", "--json").json["versions"]
    assert [version["version"] for version in versions] == [2, 1, 0]
    assert versions[1]["metadata"] == {"data_version": 1, "source": "softmax"}
    assert versions[0]["operation"] == "MERGE"
    assert versions[0]["timestamp"].endswith("Z")
    assert espalier("history", "nodes", "--json").json["versions"] == []
    assert espalier("history", "nodez").error_line.startswith("UnknownName: no table or view 'nodez'; there are")


def test_query_reads_a_table_now_and_as_of_a_version(home: Home, espalier: Espalier) -> None:
    put_task(home, "softmax", 1.0)
    put_task(home, "softmax", 2.0)
    sql = "select task_id, baseline_fitness from tasks"
    assert espalier("query", sql, "--json").json == {"rows": [{"task_id": "softmax", "baseline_fitness": 2.0}]}
    then = espalier("query", sql, "--as-of-version", "tasks=1", "--json")
    assert then.json == {"rows": [{"task_id": "softmax", "baseline_fitness": 1.0}]}
    shown = espalier("query", sql)
    assert "softmax" in shown.out and shown.out.rstrip().endswith("1 row")


@pytest.mark.parametrize("pin", ["tasks", "tasks=", "tasks=-1", "tasks=one", "=1"])
def test_a_pin_that_is_no_table_and_version_is_wrong_use(espalier: Espalier, pin: str) -> None:
    answer = espalier("query", "select * from tasks", "--as-of-version", pin)
    assert answer.code == 2
    assert answer.error_line.startswith(("WrongUse: --as-of-version takes TABLE=V", "UnknownName: no table or view ''"))


def test_every_kind_of_value_comes_out_as_json(espalier: Espalier) -> None:
    sql = """
        select
            null as unknown,
            timestamptz '2026-03-01 12:00:00+01' as moment,
            'nan'::double as no_number,
            -('inf'::double) as far_below,
            sum(n)::hugeint as total,
            1.50::decimal(4, 2) as price,
            [1, null] as several,
            {'a': 'b'} as nested,
            '\\xC3\\xA4'::blob as bytes,
            1 as twice,
            2 as twice
        from unnest([1, 2]) as numbers(n)
    """
    assert espalier("query", sql, "--json").json["rows"] == [
        {
            "unknown": None,
            "moment": "2026-03-01T11:00:00Z",
            "no_number": "nan",
            "far_below": "-inf",
            "total": 3,
            "price": 1.5,
            "several": [1, None],
            "nested": {"a": "b"},
            "bytes": "ä",
            "twice": 1,
            "twice_2": 2,
        }
    ]


def test_text_that_looks_like_markup_is_shown_as_it_is(espalier: Espalier) -> None:
    assert "[bold]x[/bold] :smile:" in espalier("query", "select '[bold]x[/bold] :smile:' as text").out


def test_many_rows_are_cut_for_a_person_and_whole_for_a_script(espalier: Espalier) -> None:
    sql = "select unnest(range(120)) as n"
    assert len(json.loads(espalier("query", sql, "--json").out)["rows"]) == 120
    assert "120 rows; the first 50 are shown, --json prints all" in espalier("query", sql).out


def test_show_draws_metrics_that_are_no_object(home: Home, espalier: Espalier, tmp_path: Path) -> None:
    write_journal(tmp_path / "run", [journal_node("a", 0, metric=[1, 2])])
    assert espalier("ingest", tmp_path / "run").code == 0
    (row,) = Tables(home).read("nodes").to_pylist()
    shown = espalier("show", row["node_id"])
    assert (shown.code, shown.err) == (0, "") and "[1, 2]" in shown.out
