"""Tags that logs carry and people name at ingest: the last word on a tag counts."""

from datetime import timedelta

import pytest

from lineage.query import registered_tables
from small_logs import NOW, node, rows, start_of_run, write_lines
from store.errors import BadInput
from transforms.ingest import ingest_paths
from views.refresh import refresh


def test_an_empty_tag_is_refused(home, tmp_path):
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"))
    with pytest.raises(BadInput, match="a tag is empty"):
        ingest_paths(home, [log], now=NOW, tags=["internal", ""])
    assert rows(home, "nodes") == []


def test_of_two_lines_on_one_tag_the_last_counts_and_a_person_may_name_it_again(home, tmp_path):
    names = [f"n{number}" for number in range(12)]
    takes_back = [
        {"type": "tag", "tag": "pii", "session": "s", "node": name, "action": action}
        for name in names
        for action in ("add", "remove")
    ]
    session_tag = [{"type": "tag", "tag": "internal", "session": "s", "action": action} for action in ("add", "remove")]
    log = write_lines(tmp_path / "log.jsonl", *start_of_run(), *map(node, names), *takes_back, *session_tag)

    def tags_after(hours: int, *tags: str) -> set[str]:
        ingest_paths(home, [log], now=NOW + timedelta(hours=hours), tags=tags)
        refresh(home, ["node_tags"])
        return set(registered_tables(home).read("node_tags")["tag"].to_pylist())

    assert tags_after(0) == set()
    assert tags_after(1, "internal") == {"internal"}
    assert len(rows(home, "tag_assignments")) == 2 * len(names) + 3
    tags_after(2, "internal")
    assert len(rows(home, "tag_assignments")) == 2 * len(names) + 3
