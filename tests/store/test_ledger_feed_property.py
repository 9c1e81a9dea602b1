"""Exactly once: however commits and feed reads interleave, the reader ends with what the ledger holds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ledger_world import answer, claim_from, commit_root, start, verdict
from store.ledger import open_ledger
from store.schema import TABLES

KEYS = {name: TABLES[name].key for name in ("tasks", "sessions", "nodes", "prompt_history", "change_log")}


def drain(ledger, after, held, limit):
    """Read one piece of the feed into `held` by key; returns the new watermark."""
    for entry in ledger.feed(after, limit):
        key = (entry.table, *(entry.row[name] for name in KEYS[entry.table]))
        assert entry.table in ("tasks", "sessions", "nodes") or key not in held, "an immutable row came twice"
        held[key] = entry.row
        after = entry.feed_seq
    return after


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, 0.0, 0.5]), st.integers(1, 7)), max_size=6))
@settings(max_examples=12, deadline=None)
def test_a_reader_between_commits_ends_with_the_ledgers_own_rows(tmp_path_factory, moves):
    folder = tmp_path_factory.mktemp("ledger")
    with open_ledger(f"sqlite:///{folder}/ledger.sqlite", ledger_id="ledger_test") as ledger:
        start(ledger, attempts=20, group_size=1)
        commit_root(ledger, "s1")
        held, watermark = {}, 0
        for number, (parent, reward, limit) in enumerate(moves):
            frontier = ledger.frontier("s1")
            claim = claim_from(ledger, "s1", frontier[parent % len(frontier)].node_id)
            fault = None if reward == 0.5 else "syntax"
            fitness = 0.1 if fault is None else None
            ledger.commit_node(claim, 0, answer(f"a{number}"), verdict(fitness, reward, fault))
            watermark = drain(ledger, watermark, held, limit)
        while (moved := drain(ledger, watermark, held, 3)) != watermark:
            watermark = moved
        fresh = {}
        drain(ledger, 0, fresh, 100_000)
        assert held == fresh
        nodes = sorted((row["step"], row["visits"]) for key, row in fresh.items() if key[0] == "nodes")
        assert [step for step, _ in nodes] == list(range(len(moves) + 1))
        assert nodes[0][1] == 1 + sum(reward is not None for _, reward, _ in moves)
