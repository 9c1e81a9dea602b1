import json

from small_ledger import fill_ledger
from small_logs import NOW, node, rows, start_of_run, versions, write_lines
from store.compaction import compact_table
from store.delta import Tables
from store.ids import content_digest, message_digest
from store.ledger_rows import FeedEntry
from store.storage_settings import read_storage_settings
from transforms.as_of import as_of
from transforms.ingest import ingest_ledger, ingest_paths
from transforms.logs.ledger import read_feed


def test_a_home_without_a_ledger_has_nothing_to_drain_and_gets_none(home):
    assert ingest_ledger(home, now=NOW).read == 0
    assert not home.ledger_path.exists() and set(versions(home).values()) == {None}


def test_committed_attempts_arrive_with_prompts_changes_and_edges(home):
    fill_ledger(home, "s_1")
    report = ingest_ledger(home, now=NOW)
    assert (report.sessions, report.nodes, report.messages) == (1, 5, 8)
    assert report.read == report.stored and report.changes == len(rows(home, "change_log"))
    nodes = {row["step"]: row for row in rows(home, "nodes")}
    root, best = nodes[0], nodes[1]
    assert (root["visits"], best["visits"], best["total_reward"], nodes[2]["reward"]) == (5, 3, 1.5, 0.0)
    assert nodes[3]["ancestors"] == [root["node_id"], best["node_id"]]
    assert (nodes[3]["fitness"], nodes[3]["fitness_text"]) == (0.5, "0.5")
    prompt = {"role": "user", "content": f"improve {best['artifact']}"}
    assert nodes[3]["prompt_digest"] == nodes[4]["prompt_digest"] == message_digest([prompt])
    answer = next(
        row for row in rows(home, "prompt_history") if row["node_id"] == nodes[3]["node_id"] and row["turn"] == 1
    )
    assert nodes[3]["content_digest"] == content_digest(nodes[3]["artifact"], [prompt, answer])
    edges = {(row["src"], row["dst"]) for row in rows(home, "node_edges")}
    assert edges == {(row["parent_id"], row["node_id"]) for row in nodes.values() if row["parent_id"]}
    assert {row["session_seq"] for row in nodes.values()} == {1}
    assert as_of(home, best["node_id"], step=2).fields["visits"] == 1
    assert as_of(home, best["node_id"], step=4).fields["visits"] == 3


def test_a_second_drain_adds_only_what_is_new_and_a_third_moves_no_table(home):
    fill_ledger(home, "s_1")
    ingest_ledger(home, now=NOW)
    fill_ledger(home, "s_2")
    report = ingest_ledger(home, now=NOW)
    assert (report.sessions, report.nodes, report.already_there) == (1, 5, 0)
    assert sorted((row["session_id"], row["session_seq"], row["next_step"]) for row in rows(home, "sessions")) == [
        ("s_1", 1, 5),
        ("s_2", 2, 5),
    ]
    before = versions(home)
    assert ingest_ledger(home, now=NOW) == ingest_ledger(home, now=NOW)
    assert versions(home) == before
    (source,) = rows(home, "sources")
    assert source["read"] == source["stored"] and source["format"] == "ledger"


def test_the_watermark_survives_commits_of_other_ingests(home, tmp_path):
    fill_ledger(home, "s_1")
    ingest_ledger(home, now=NOW)
    ingest_paths(home, [write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a"))], now=NOW)
    for name in ("nodes", "sources", "change_log", "sessions"):
        assert "ledger_test" in Tables(home).metadata(name)["ledger"]
    assert ingest_ledger(home, now=NOW).read == 0


def test_an_ingest_after_a_compaction_carries_on_the_watermark_and_not_what_the_compaction_did(home):
    fill_ledger(home, "s_1")
    ingest_ledger(home, now=NOW)
    settings = read_storage_settings()
    settings = settings.model_copy(update={"compact_when": settings.compact_when.model_copy(update={"small_files": 0})})
    fill_ledger(home, "s_2")
    ingest_ledger(home, now=NOW)
    assert compact_table(Tables(home), "nodes", settings).version is not None
    compacted = Tables(home).metadata("nodes")
    assert "compaction" in compacted
    fill_ledger(home, "s_3")
    ingest_ledger(home, now=NOW)
    said = Tables(home).metadata("nodes")
    assert said.keys() == compacted.keys() - {"compaction"}
    assert said["ledger"]["ledger_test"] > compacted["ledger"]["ledger_test"]


def test_replaying_a_ledgers_order_gives_the_statistics_that_it_recorded(home):
    from transforms.replay import session_changes

    fill_ledger(home, "s_1")
    ingest_ledger(home, now=NOW)
    nodes = rows(home, "nodes")
    evaluations = {row["node_id"]: row for row in nodes}
    fields = ("visits", "total_reward", "fitness", "reward", "is_buggy", "failure_class", "best_so_far")
    key = ("node_id", "field", "step", "recorded_step", "n", "old_value", "new_value")
    recorded = {tuple(row[c] for c in key) for row in rows(home, "change_log") if row["field"] in fields}
    replayed = {tuple(row[c] for c in key) for row in session_changes(nodes, [], evaluations, failure_reward=0.0)}
    assert replayed == recorded


def test_a_change_that_was_written_before_it_held_is_refused(home):
    change = {"session_id": "s", "node_id": None, "field": "x", "step": 3, "recorded_step": 2, "n": 0}
    entry = FeedEntry(7, "change_log", {**change, "old_value": None, "new_value": "1", "origin": "recorded"})
    feed = read_feed(home, [entry], {}, "f")
    assert feed.rows["change_log"] == [] and feed.refused[0][1] == "step 3 is later than recorded_step 2"


def test_what_the_search_knew_cannot_be_written_down_later_and_a_label_can(home):
    clocks = {"session_id": "s", "node_id": "n", "step": 2, "recorded_step": 5, "n": 0}
    rest = {"old_value": None, "new_value": "1", "origin": "recorded"}
    entries = [
        FeedEntry(number, "change_log", {**clocks, **rest, "field": name})
        for number, name in enumerate(("visits", "fitness"))
    ]
    feed = read_feed(home, entries, {"change_log": -1}, "f")
    assert [row["field"] for row in feed.rows["change_log"]] == ["fitness"]
    assert [(entry.row["field"], "must be equal" in reason) for entry, reason in feed.refused] == [("visits", True)]


def test_a_long_kernel_becomes_a_file_and_json_columns_stay_text(home):
    row = {"node_id": "n", "session_id": "s", "artifact": "x" * 20_000, "fitness": None, "reward": None}
    row |= {"context": None, "environment": {"gpu": "h100"}, "environment_digest": None}
    (node_row,) = read_feed(home, [FeedEntry(1, "nodes", row)], {}, "f").rows["nodes"]
    assert node_row["artifact"] is None and list(home.artifacts.glob(f"*/{node_row['artifact_digest']}.zst"))
    assert json.loads(node_row["environment"]) == {"gpu": "h100"} and node_row["environment_digest"]
