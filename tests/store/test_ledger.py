"""What the ledger promises a worker: claims, proposals, commits, counts and the feed."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest

from ledger_world import answer, claim_from, commit_root, new_session, start, values_of, verdict
from store.errors import BadInput, CommitConflict, HomeNotUsable, LedgerBusy, UnknownName
from store.home import open_home
from store.ids import message_digest, stable_id
from store.ledger import open_ledger
from store.ledger_rows import sibling_seed
from store.schema import TABLES


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite", ledger_id="ledger_test") as opened:
        yield opened


def test_a_ledger_keeps_its_id_and_lies_in_its_home(tmp_path):
    home = open_home(tmp_path / "home")
    with open_ledger(home) as first, open_ledger(home) as second:
        assert first.ledger_id == second.ledger_id
    assert home.ledger_path.exists()


def test_the_first_claim_is_the_root_without_parent_prompt_or_cost(ledger):
    claim = claim_from(ledger, start(ledger))
    assert (claim.is_root, claim.parent_id, claim.prompt, claim.prompt_digest, claim.group_size) == (
        True,
        None,
        (),
        None,
        1,
    )
    assert ledger.session("s1").attempts_reserved == 0


def test_nothing_can_be_claimed_before_the_root_is_committed(ledger):
    start(ledger)
    claim_from(ledger, "s1")
    assert claim_from(ledger, "s1", worker_id="w2") is None


def test_siblings_share_one_frozen_prompt_and_have_stable_ids(ledger):
    start(ledger)
    commit_root(ledger, "s1")
    claim = claim_from(ledger, "s1")
    for sibling in (0, 1):
        ledger.commit_node(claim, sibling, answer(f"a{sibling}"), verdict(0.1, 0.6))
    nodes = ledger.nodes("s1")[1:]
    assert [node["node_id"] for node in nodes] == [stable_id("n", "s1", 1, sibling) for sibling in (0, 1)]
    prompt = [{"role": "user", "content": "improve seed"}]
    assert {node["prompt_digest"] for node in nodes} == {message_digest(prompt)}
    turns = [e.row for e in ledger.feed(0, 1000) if e.table == "prompt_history"]
    assert [(t["turn"], t["role"], t["content"]) for t in turns] == [
        (0, "user", "improve seed"),
        (1, "assistant", "a0"),
        (0, "user", "improve seed"),
        (1, "assistant", "a1"),
    ]


def test_a_commit_counts_a_visit_and_its_reward_on_itself_and_its_whole_path(ledger):
    start(ledger)
    root = commit_root(ledger, "s1", reward=0.5)
    first = ledger.commit_node(claim_from(ledger, "s1"), 0, answer("a"), verdict(0.2, 0.6)).node_id
    second = ledger.commit_node(claim_from(ledger, "s1", first), 0, answer("b"), verdict(0.3, 0.7)).node_id
    assert values_of(ledger, root, "visits") == [(0, None, "1"), (1, "1", "2"), (2, "2", "3")]
    assert values_of(ledger, root, "total_reward") == [(0, None, "0.5"), (1, "0.5", "1.1"), (2, "1.1", "1.8")]
    assert values_of(ledger, first, "total_reward") == [(1, None, "0.6"), (2, "0.6", "1.2999999999999998")]
    assert values_of(ledger, first, "visits") == [(1, None, "1"), (2, "1", "2")]
    by_id = {node["node_id"]: node for node in ledger.nodes("s1")}
    assert by_id[second]["ancestors"] == [root, first]
    assert (by_id[root]["visits"], by_id[root]["total_reward"]) == (3, 1.8)


def test_an_attempt_that_the_harness_failed_visits_nobody(ledger):
    start(ledger)
    root = commit_root(ledger, "s1")
    node = ledger.commit_node(claim_from(ledger, "s1"), 0, answer("a"), verdict(None, None, "harness.timeout")).node_id
    assert values_of(ledger, root, "visits") == [(0, None, "1")]
    assert values_of(ledger, node, "visits") == [(1, None, "0")]
    assert values_of(ledger, node, "reward") == [(1, None, "null")]
    assert ledger.nodes("s1")[1]["is_buggy"] is None


def test_a_failed_attempt_is_logged_with_its_reason_and_never_becomes_a_parent(ledger):
    start(ledger)
    root = commit_root(ledger, "s1")
    node = ledger.commit_node(claim_from(ledger, "s1"), 0, answer("a"), verdict(None, 0.0, "wrong_values")).node_id
    assert values_of(ledger, node, "failure_class") == [(1, None, '"wrong_values"')]
    assert values_of(ledger, node, "is_buggy") == [(1, None, "true")]
    assert [row.node_id for row in ledger.frontier("s1")] == [root]
    assert ledger.frontier("s1")[0].visits == 2


def test_the_session_logs_its_best_when_it_rises_and_its_budget_at_every_attempt(ledger):
    start(ledger, attempts=3)
    commit_root(ledger, "s1")
    first = claim_from(ledger, "s1")
    ledger.commit_node(first, 0, answer("a"), verdict(0.3, 0.6))
    ledger.commit_node(first, 1, answer("b"), verdict(0.2, 0.6))
    ledger.commit_node(claim_from(ledger, "s1"), 0, answer("c"), verdict(None, 0.0, "syntax"))
    assert values_of(ledger, None, "best_so_far") == [(0, None, "0.0"), (1, "0.0", "0.3")]
    assert values_of(ledger, None, "budget_left") == [(0, None, "3"), (1, "3", "2"), (2, "2", "1"), (3, "1", "0")]
    assert ledger.session("s1").status == "done"


def test_budget_is_reserved_at_the_claim_so_that_the_last_group_is_small_and_none_follows(ledger):
    start(ledger, attempts=3, group_size=2)
    commit_root(ledger, "s1")
    sizes = [claim_from(ledger, "s1").group_size, claim_from(ledger, "s1").group_size]
    assert sizes == [2, 1]
    assert claim_from(ledger, "s1") is None


def test_open_siblings_are_in_flight_until_they_commit(ledger):
    start(ledger)
    commit_root(ledger, "s1")
    claim = claim_from(ledger, "s1")
    assert [(row.num_groups, row.in_flight) for row in ledger.frontier("s1")] == [(1, 2)]
    ledger.commit_node(claim, 0, answer("a"), verdict(0.1, 0.6))
    assert [(row.num_groups, row.in_flight) for row in ledger.frontier("s1")] == [(1, 1), (0, 0)]


def test_a_parent_chosen_at_one_step_keeps_that_step_though_others_commit_before_its_child(ledger):
    start(ledger)
    commit_root(ledger, "s1")
    early = claim_from(ledger, "s1")
    late = claim_from(ledger, "s1", worker_id="w2")
    ledger.commit_node(late, 0, answer("b"), verdict(0.1, 0.6))
    committed = ledger.commit_node(early, 0, answer("a"), verdict(0.1, 0.6))
    assert (committed.step, early.selected_step) == (2, 0)
    assert ledger.nodes("s1")[2]["selected_step"] == 0


def test_the_same_commit_again_changes_nothing_and_other_content_is_a_conflict(ledger, tmp_path):
    start(ledger)
    commit_root(ledger, "s1")
    claim = claim_from(ledger, "s1")
    assert ledger.commit_node(claim, 0, answer("a"), verdict(0.1, 0.6)).state == "committed"
    before = ledger.last_feed_seq()
    assert ledger.commit_node(claim, 0, answer("a"), verdict(0.1, 0.6)).state == "already_there"
    assert ledger.commit_node(claim, 0, answer("other"), verdict(0.9, 0.9)).state == "conflict"
    assert ledger.commit_node(claim, 0, answer("other"), verdict(0.9, 0.9)).state == "conflict"
    assert ledger.last_feed_seq() == before
    with sqlite3.connect(tmp_path / "ledger.sqlite") as raw:
        assert raw.execute("select count(*) from commit_conflicts").fetchone() == (1,)
    raw.close()


def test_an_expired_claim_keeps_ordinal_and_proposals_and_locks_out_its_first_worker(ledger):
    start(ledger)
    commit_root(ledger, "s1")
    zombie = claim_from(ledger, "s1", lease_seconds=-1.0)
    saved = ledger.save_proposals(zombie, {0: answer("a")})
    heir = claim_from(ledger, "s1", worker_id="w2")
    assert (heir.ordinal, heir.tries, heir.fence, heir.prompt) == (zombie.ordinal, 2, 2, zombie.prompt)
    assert heir.proposals == saved == {0: answer("a")}
    with pytest.raises(CommitConflict, match="taken over by w2"):
        ledger.commit_node(zombie, 0, saved[0], verdict(0.1, 0.6))
    with pytest.raises(CommitConflict, match="fence 2, ours was 1"):
        ledger.save_proposals(zombie, {1: answer("b")})
    assert ledger.session("s1").next_step == 1


def test_a_proposal_that_was_saved_is_never_replaced(ledger):
    start(ledger)
    commit_root(ledger, "s1")
    claim = claim_from(ledger, "s1")
    ledger.save_proposals(claim, {0: answer("paid for")})
    kept = ledger.save_proposals(claim, {0: answer("again"), 1: answer("new")})
    assert kept == {0: answer("paid for"), 1: answer("new")}


def test_released_claims_can_be_taken_at_once(ledger):
    start(ledger)
    commit_root(ledger, "s1")
    first = claim_from(ledger, "s1")
    assert ledger.workers_of("s1") == ["w1"]
    assert ledger.release("s1", ["w1"]) == 1
    assert claim_from(ledger, "s1", worker_id="w2").ordinal == first.ordinal


def test_a_paused_session_gives_no_claim(ledger):
    start(ledger)
    ledger.set_status("s1", "paused", "asked to")
    assert claim_from(ledger, "s1") is None
    assert ledger.session("s1").status_reason == "asked to"


def test_a_policy_that_finds_no_parent_leaves_everything_as_it_was(ledger):
    start(ledger)
    commit_root(ledger, "s1")
    before = ledger.session("s1")
    assert claim_from(ledger, "s1", "no such node") is None
    assert ledger.session("s1") == before


def test_an_equal_task_is_written_once_and_a_changed_one_flows_again(ledger):
    ledger.put_task({"task_id": "t1", "metric": "us"})
    ledger.put_task({"task_id": "t1", "metric": "us"})
    assert [entry.row["metric"] for entry in ledger.feed(0, 10)] == ["us"]
    ledger.put_task({"task_id": "t1", "baseline_fitness": 0.0})
    assert [(entry.feed_seq, entry.row["baseline_fitness"]) for entry in ledger.feed(1, 10)] == [(2, 0.0)]
    ledger.put_task({"task_id": "t1", "metric": "us"})
    assert [entry.feed_seq for entry in ledger.feed(0, 10)] == [2]
    with pytest.raises(UnknownName, match="no column speed"):
        ledger.put_task({"task_id": "t1", "speed": 1})


def test_feed_rows_have_exactly_the_columns_of_the_lakehouse(ledger):
    start(ledger)
    commit_root(ledger, "s1")
    ledger.commit_node(claim_from(ledger, "s1"), 0, answer("a"), verdict(0.1, 0.6))
    seen = {entry.table: set(entry.row) for entry in ledger.feed(0, 1000)}
    assert set(seen) == {"tasks", "sessions", "nodes", "prompt_history", "change_log"}
    for table, columns in seen.items():
        assert columns == set(TABLES[table].columns.names) - {"session_seq", "source_id"}


def test_reading_the_feed_in_small_pieces_gives_every_row_once_in_order(ledger):
    start(ledger)
    root = commit_root(ledger, "s1")
    ledger.commit_node(claim_from(ledger, "s1"), 0, answer("a"), verdict(0.1, 0.6))
    whole = ledger.feed(0, 1000)
    pieces, after = [], 0
    while piece := ledger.feed(after, 3):
        pieces += piece
        after = piece[-1].feed_seq
    assert pieces == whole
    assert [entry.feed_seq for entry in whole] == sorted({entry.feed_seq for entry in whole})
    assert [entry.row["visits"] for entry in whole if entry.row.get("node_id") == root and entry.table == "nodes"] == [
        2
    ]


def test_a_commit_that_fails_half_way_leaves_no_row_no_step_and_no_gap(tmp_path):
    def fail(point):
        if point == "mid-commit":
            raise RuntimeError("power cut")

    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite", at_point=fail) as ledger:
        start(ledger)
        before = ledger.feed(0, 1000)
        with pytest.raises(RuntimeError, match="power cut"):
            commit_root(ledger, "s1")
        assert ledger.feed(0, 1000) == before
        assert ledger.session("s1").next_step == 0


def test_the_same_settings_again_are_another_session_with_other_seeds(ledger):
    first, second = (ledger.start_session(new_session, "softmax", "greedy", 0).session_id for _ in range(2))
    assert second != first
    assert sibling_seed(first, 1, 0) != sibling_seed(second, 1, 0)
    assert 0 <= sibling_seed(first, 1, 0) < 2**63


def test_searches_that_begin_at_the_same_moment_never_share_a_session(tmp_path):
    with open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite") as ledger, ThreadPoolExecutor(8) as pool:
        ledger.put_task({"task_id": "t1"})
        begun = [pool.submit(ledger.start_session, new_session, "softmax", "greedy", 0) for _ in range(8)]
        assert len({future.result().session_id for future in begun}) == 8


def test_a_locked_ledger_is_one_clear_line_after_a_bounded_wait(tmp_path):
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with open_ledger(url) as ledger:
        start(ledger)
    holder = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with open_ledger(url, busy_seconds=0.1) as ledger, pytest.raises(LedgerBusy, match=r"locked .* for 0\.1 s"):
        ledger.set_status("s1", "paused")
    holder.close()


def test_a_file_that_is_no_ledger_and_a_folder_that_is_not_there_are_named(tmp_path):
    (tmp_path / "notes.sqlite").write_text("these are my notes, and they are long enough to be read as a header" * 20)
    with pytest.raises(BadInput, match="is no SQLite database"):
        open_ledger(f"sqlite:///{tmp_path}/notes.sqlite")
    with pytest.raises(HomeNotUsable, match="cannot be used"):
        open_ledger(f"sqlite:///{tmp_path}/missing/ledger.sqlite")


def test_a_session_that_is_not_there_is_answered_with_those_that_are(ledger):
    start(ledger)
    with pytest.raises(UnknownName, match=r"session s9 .* latest are s1"):
        ledger.session("s9")
