import os

import pytest

from small_logs import NOW, contents, journal_node, node, rows, start_of_run, versions, write_journal, write_lines
from store.errors import BadInput, UnknownName
from transforms.ingest import ingest_paths


def test_a_missing_path_is_one_clear_line_and_nothing_is_written(ingest, home, tmp_path):
    good = write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"))
    with pytest.raises(BadInput, match=r"nowhere does not exist") as caught:
        ingest(good, tmp_path / "nowhere")
    assert "\n" not in str(caught.value) and set(versions(home).values()) == {None}


def test_an_unknown_format_lists_the_known_ones(ingest, home, tmp_path):
    with pytest.raises(UnknownName, match=r"no log format 'csv'; there are auto, native, openevolve, aide"):
        ingest(tmp_path, format="csv")


def test_a_folder_without_logs_says_what_readers_take(ingest, home, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "notes.txt").write_text("no log")
    (tmp_path / "logs" / "chat.jsonl").write_text('{"role": "user", "content": "hello"}\n')
    with pytest.raises(BadInput, match=r"holds no file that is a log; readers take native, openevolve, aide"):
        ingest(tmp_path / "logs")
    with pytest.raises(BadInput, match=r"a log of format aide"):
        ingest(tmp_path / "logs", format="aide")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("journal.json", b"", "empty file"),
        ("log.jsonl", b"", "empty file"),
        ("log.jsonl", b"\x00\x01\xff\xfe\n", "no UTF-8"),
        ("log.jsonl", b"not json\n", "no JSON"),
        ("notes.txt", b"just text", "no reader knows this format"),
        ("archive.bin", b"", "empty file"),
    ],
)
def test_a_named_file_of_which_nothing_can_be_read_is_kept_and_then_refused(ingest, home, tmp_path, name, data, reason):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match=rf"nothing of .*{name} could be read: .*{reason}") as caught:
        ingest(tmp_path / name)
    assert "\n" not in str(caught.value)
    (kept,) = rows(home, "quarantine")
    assert kept["bytes"] == data and reason in kept["reason"] and rows(home, "nodes") == []
    before = versions(home)
    with pytest.raises(BadInput):
        ingest(tmp_path / name)
    assert versions(home) == before


def test_a_bad_file_named_beside_a_good_one_does_not_stop_it(ingest, home, tmp_path):
    good = write_lines(tmp_path / "good.jsonl", *start_of_run(), node("a"))
    bad = write_lines(tmp_path / "bad.jsonl", "broken\n")
    with pytest.raises(BadInput, match=r"bad\.jsonl"):
        ingest(bad, good)
    assert len(rows(home, "nodes")) == 1


def test_inside_a_folder_a_bad_file_is_counted_and_kept(ingest, home, tmp_path):
    write_lines(tmp_path / "logs" / "good.jsonl", *start_of_run(), node("a"))
    write_lines(tmp_path / "logs" / "bad.jsonl", "broken\n")
    (tmp_path / "logs" / "zero.jsonl").write_bytes(b"")
    report = ingest(tmp_path / "logs")
    assert (report.nodes, report.quarantined, sum(report.quarantine_reasons.values())) == (1, 2, 2)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_opened_is_counted(ingest, home, tmp_path):
    locked = write_journal(tmp_path / "logs" / "a", [journal_node("a", 0)])
    write_journal(tmp_path / "logs" / "b", [journal_node("b", 0)])
    locked.chmod(0)
    report = ingest(tmp_path / "logs")
    assert (report.nodes, report.quarantined) == (1, 1)


def test_a_copy_beside_the_original_in_one_ingest_is_already_there(ingest, home, tmp_path):
    write_lines(tmp_path / "logs" / "a.jsonl", *start_of_run(), node("a"))
    write_lines(tmp_path / "logs" / "copy of a.jsonl", *start_of_run(), node("a"))
    report = ingest(tmp_path / "logs")
    assert (report.nodes, report.stored, report.already_there) == (1, 3, 3)
    before, everything = versions(home), contents(home)
    ingest(tmp_path / "logs" / "copy of a.jsonl")
    assert (versions(home), contents(home)) == (before, everything)


def test_the_home_itself_is_not_searched_for_logs(home, tmp_path):
    write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"))
    write_lines(home.datasets / "x" / "data.jsonl", *start_of_run("other"), node("b"))
    report = ingest_paths(home, [tmp_path], now=NOW)
    assert report.nodes == 1


def test_a_small_batch_limit_changes_nothing_but_memory(ingest, home, tmp_path, monkeypatch):
    log = write_lines(
        tmp_path / "log.jsonl", *start_of_run(), *(node(f"n{i}", parent=f"n{i - 1}" if i else None) for i in range(9))
    )
    monkeypatch.setattr("transforms.batch.BATCH_BYTES", 1500)
    report = ingest(log)
    assert (report.nodes, report.stored, report.already_there) == (9, 11, 0)
    assert sorted((row["step"], row["depth"], row["visits"]) for row in rows(home, "nodes")) == [
        (i, i, 9 - i) for i in range(9)
    ]
