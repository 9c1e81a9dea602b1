"""How answers look: numbers, ids and names are whole on a terminal of 80 columns and in a pipe."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.output import draw_fields, draw_table, terminal
from cli.program import progress_label
from small_logs import journal_node, write_journal
from store.delta import Tables
from store.home import Home

Espalier = Callable[..., Any]
IDS = ["aide-0123456789abcdef0123456789abcdef", "aide-fedcba9876543210fedcba9876543210"]
REASON = "the line is no JSON object: a comma is missing after the third key, so nothing of it could be read at all"


def drawn(width: int, headers: list[str], rows: list[list[Any]]) -> list[str]:
    """The lines of a table on a terminal of that width."""
    stream = io.StringIO()
    draw_table(Console(file=stream, width=width, force_terminal=True, color_system=None), headers, rows)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    return lines


def words(lines: list[str]) -> list[str]:
    return " ".join(lines).split()


def test_a_table_that_fits_has_whole_values_and_wraps_only_its_last_text() -> None:
    lines = drawn(80, ["view", "reason", "fitness", "rows"], [["node_tags", REASON, 5.69334, 1234567]])
    assert max(map(len, lines)) <= 80
    assert {"node_tags", "5.69334", "1,234,567"} <= set(words(lines))
    (first,) = [line for line in lines if "node_tags" in line]
    assert first.split()[0] == "node_tags" and first.split()[-2:] == ["5.69334", "1,234,567"]
    assert set(REASON.split()) <= set(words(lines))


def test_a_table_that_does_not_fit_is_one_block_for_each_row() -> None:
    rows = [[IDS[0], IDS[1], 5.69334, None], [IDS[1], None, 0.5, REASON]]
    lines = drawn(80, ["node_id", "parent_id", "fitness", "reason"], rows)
    assert lines[:5] == [
        f"node_id    {IDS[0]}",
        f"parent_id  {IDS[1]}",
        "fitness    5.69334",
        "reason     –",
        "",
    ]
    assert lines[5:8] == [f"node_id    {IDS[1]}", "parent_id  –", "fitness    0.5"]
    assert " ".join(words(lines[8:])) == f"reason {REASON}"
    assert len(lines) == 10 and lines[9].startswith(" " * 11) and max(map(len, lines)) <= 80


def test_more_columns_than_fit_are_one_block_for_each_row() -> None:
    headers = [f"column_{n}" for n in range(40)]
    assert drawn(80, headers, [list(range(40))]) == [f"column_{n:<4}{n}" for n in range(40)]
    assert words(drawn(80, headers, []))[-1] == "column_39"


def test_an_id_wider_than_the_terminal_has_no_break_in_it() -> None:
    assert drawn(30, ["node_id"], [[IDS[0]]]) == [f"node_id  {IDS[0]}"]
    stream = io.StringIO()
    draw_fields(Console(file=stream, width=30), {"node_id": IDS[0]})
    assert stream.getvalue() == f"node_id  {IDS[0]}\n"


def test_in_a_pipe_no_cell_is_cut_and_each_row_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    stream = io.StringIO()
    rows = [[node_id, "word " * 200 + "end", 5.69334] for node_id in IDS]
    draw_table(terminal(stream), ["node_id", "text", "fitness"], rows)
    lines = [line for line in stream.getvalue().splitlines() if "aide-" in line]
    assert [line.split()[0] for line in lines] == IDS
    assert all("end" in line and "5.69334" in line and "…" not in line for line in lines)


@pytest.mark.parametrize("columns", ["80", None])
def test_select_star_shows_every_column_of_nodes(
    home: Home, espalier: Espalier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str | None
) -> None:
    write_journal(tmp_path / "run", [journal_node("a", 0, metric=5.69334)])
    assert espalier("ingest", tmp_path / "run").code == 0
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    shown = espalier("query", "select * from nodes")
    tables = Tables(home)
    (row,) = tables.read("nodes").to_pylist()
    assert shown.code == 0
    assert set(tables.schema("nodes").columns.names) <= set(shown.out.split())
    assert {row["node_id"], row["session_id"], "5.69334"} <= set(shown.out.split())


def test_ingest_shows_the_whole_reason_and_how_to_see_what_is_in_quarantine(
    espalier: Espalier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_journal(tmp_path / "logs", [journal_node("a", 0)])
    (tmp_path / "logs" / "broken.jsonl").write_text("not a log\n")
    monkeypatch.setenv("COLUMNS", "80")
    shown = espalier("ingest", tmp_path / "logs").out
    next_step = 'espalier query "select path, place, reason from quarantine"'
    assert next_step in shown.splitlines()[-1]
    (kept,) = espalier("query", "select path, place, reason from quarantine", "--json").json["rows"]
    assert kept["reason"] in " ".join(shown.split()) and "…" not in shown
    (tmp_path / "logs" / "broken.jsonl").unlink()
    assert next_step not in espalier("ingest", tmp_path / "logs").out


def test_a_progress_label_says_no_word_twice() -> None:
    assert progress_label("refresh", None) == "refresh"
    assert progress_label("refresh", "refresh cohorts") == "refresh cohorts"
    assert progress_label("ingest", "refreshed.jsonl") == "ingest: refreshed.jsonl"
