import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from small_logs import by_artifact, node, start_of_run, write_lines
from store.errors import UnknownName, WrongUse
from store.ids import canonical_json
from transforms.as_of import as_of, undo_to, values_at
from transforms.replay import set_old_values


def correction(name, step, recorded_step, value):
    return {
        "type": "change", "session": "s", "node": name, "field": "fitness",
        "step": step, "recorded_step": recorded_step, "value": value,
    }  # fmt: skip


def test_a_node_and_its_ancestors_are_read_as_they_were_known(ingest, home, tmp_path):
    ingest(
        write_lines(
            tmp_path / "log.jsonl",
            *start_of_run(),
            node("a", metric=1.0),
            node("b", parent="a", metric=0.5),
            node("c", parent="b", metric=2.0),
            correction("a", 0, 3, 0.25),
        )
    )
    nodes = by_artifact(home)
    then = as_of(home, nodes["b"]["node_id"])
    assert (then.step, then.known_at) == (1, 1)
    assert (then.fields["visits"], then.fields["fitness"]) == (1, 0.5)
    assert then.session_fields == {"best_so_far": 1.0}
    (parent,) = then.ancestors
    assert (parent.node_id, parent.fields["visits"], parent.fields["fitness"]) == (nodes["a"]["node_id"], 2, 1.0)

    later = as_of(home, nodes["b"]["node_id"], step=2)
    assert (later.fields["visits"], later.session_fields["best_so_far"]) == (2, 2.0)
    known_better = as_of(home, nodes["b"]["node_id"], step=1, known_at=3)
    assert known_better.ancestors[0].fields["fitness"] == 0.25, "the correction is about step 0 and known at 3"
    assert as_of(home, nodes["a"]["node_id"], step=0, known_at=2).fields["fitness"] == 1.0
    before = as_of(home, nodes["c"]["node_id"], step=1)
    assert before.fields == {} and [known.fields["visits"] for known in before.ancestors] == [2, 1]


def test_unknown_nodes_and_negative_steps_are_one_clear_line(ingest, home, tmp_path):
    with pytest.raises(UnknownName, match="no node 'n_x'"):
        as_of(home, "n_x")
    ingest(write_lines(tmp_path / "log.jsonl", *start_of_run(), node("a")))
    with pytest.raises(WrongUse, match="step is -1"):
        as_of(home, by_artifact(home)["a"]["node_id"], step=-1)


def test_a_cleared_field_reads_as_none_and_not_as_its_old_value():
    rows = change_rows([("fitness", 0, 0, 1.0), ("fitness", 2, 0, None)])
    assert values_at(rows, 1, 1) == {"fitness": 1.0}
    assert values_at(rows, 2, 2) == {"fitness": None}


def change_rows(changes):
    """Rows from (field, step, delay, value); n counts equal clocks."""
    rows, seen = [], {}
    for field, step, delay, value in changes:
        clocks = (field, step, step + delay)
        n = seen[clocks] = seen.get(clocks, -1) + 1
        rows.append(
            {
                "node_id": "x", "field": field, "step": step, "recorded_step": step + delay, "n": n,
                "old_value": None, "new_value": canonical_json(value),
            }
        )  # fmt: skip
    set_old_values(rows)
    return rows


change = st.tuples(
    st.sampled_from(["fitness", "visits"]), st.integers(0, 6), st.integers(0, 4), st.integers(0, 3) | st.none()
)


@given(st.lists(change, max_size=14))
@settings(max_examples=120, deadline=None)
def test_undoing_backward_equals_reading_forward_on_the_diagonal(changes):
    rows = change_rows(changes)
    for step in range(12):
        assert undo_to(rows, step) == values_at(rows, step, step)


@given(st.lists(change, max_size=14), st.integers(0, 11), st.integers(0, 11))
@settings(max_examples=120, deadline=None)
def test_a_value_is_the_last_assignment_that_both_clocks_allow(changes, step, known_at):
    rows = change_rows(changes)
    expected = {}
    for row in sorted(rows, key=lambda row: (row["step"], row["recorded_step"], row["n"])):
        if row["step"] <= step and row["recorded_step"] <= known_at:
            expected[row["field"]] = row["new_value"]
    assert {name: canonical_json(value) for name, value in values_at(rows, step, known_at).items()} == expected


def test_backward_equals_forward_for_every_node_and_field_of_a_real_ingest(ingest, home, tmp_path):
    from small_logs import rows

    ingest(
        write_lines(
            tmp_path / "log.jsonl",
            *start_of_run(),
            *(node(f"n{i}", parent=f"n{(i - 1) // 2}" if i else None, metric=float(i % 3)) for i in range(12)),
            correction("n1", 1, 12, 9.0),
            correction("n1", 5, 13, None),
            correction("n1", 0, 14, 8.0) | {"step": 1},
        )
    )
    by_node = {}
    for row in rows(home, "change_log"):
        by_node.setdefault(row["node_id"], []).append(row)
    assert len(by_node) == 13
    for changes in by_node.values():
        for step in range(16):
            assert undo_to(changes, step) == values_at(changes, step, step)
