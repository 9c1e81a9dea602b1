"""The change log of generated sessions: evaluations, visits and total rewards along paths, best so far, budget left."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.world_sessions import Session, source_id
from store.ids import number_text
from store.schema import TABLES

FIELDS = ("best_so_far", "budget_left", "failure_class", "fitness", "is_buggy", "island", "reward", "total_reward",
          "visits")  # fmt: skip
BEST, BUDGET, CLASS, FITNESS, BUGGY, ISLAND, REWARD, TOTAL, VISITS = range(len(FIELDS))


def change_rows(made: Sequence[tuple[int, Session]]) -> pa.Table:
    """Rows of change_log, in the table's order, for sessions with their session_seq.

    What ingest replays from the evaluation order is marked so; what budget was left stands for what a log records.
    """
    nodes: list[int] = []
    fields: list[int] = []
    steps: list[int] = []
    old: list[str | None] = []
    new: list[str] = []
    sizes: list[int] = []
    offset = 0
    for _, session in made:
        before = len(nodes)
        _add_changes(session, offset, nodes, fields, steps, old, new)
        sizes.append(len(nodes) - before)
        offset += len(session)
    node, name, step = (np.array(values, np.int32) for values in (nodes, fields, steps))
    ids = all_ids(made)
    ranks = np.append(np.argsort(np.argsort(ids)), len(ids))  # rows of the session itself (-1) stand last
    session = np.repeat(np.arange(len(made)), sizes)
    seqs = np.array([seq for seq, _ in made])
    order = np.lexsort((step, name, ranks[node], seqs[session]))
    node, name, step, session = (column[order] for column in (node, name, step, session))
    of_session = pa.array(session)
    steps_column = pa.array(step.astype(np.int64))
    node_texts = pa.array([ident for _, one in made for ident in one.node_ids])
    origins = pa.array(["replayed", "recorded"]).take(pa.array((name == BUDGET).astype(np.int32)))
    columns = {
        "session_id": pa.array([one.session_id for _, one in made]).take(of_session),
        "session_seq": pa.array(seqs[session]),
        "node_id": node_texts.take(pa.array(node, mask=node < 0)),
        "field": pa.array(FIELDS).take(pa.array(name)),
        "step": steps_column,
        "recorded_step": steps_column,
        "n": pa.array(np.zeros(len(node), np.int64)),
        "old_value": pa.array(old, pa.string()).take(pa.array(order)),
        "new_value": pa.array(new, pa.string()).take(pa.array(order)),
        "origin": origins,
        "source_id": pa.array([source_id(one) for _, one in made]).take(of_session),
    }
    return pa.table(columns, schema=TABLES["change_log"].columns)


def _add_changes(
    session: Session,
    offset: int,
    nodes: list[int],
    fields: list[int],
    steps: list[int],
    old: list[str | None],
    new: list[str],
) -> None:
    """Append one session's rows; a node is its position in the batch, -1 the session itself."""
    size = len(session)
    visits, totals = [0] * size, [0.0] * size
    visit_texts: list[str | None] = [None] * size
    total_texts: list[str | None] = [None] * size
    best: float | None = None
    best_text: str | None = None
    budget_text: str | None = None

    def say(node: int, name: int, step: int, before: str | None, after: str) -> None:
        nodes.append(node)
        fields.append(name)
        steps.append(step)
        old.append(before)
        new.append(after)

    for step, path in enumerate(session.paths()):
        at, reward, is_copy = offset + step, session.rewards[step], session.copy_of[step] >= 0
        say(at, FITNESS, step, None, number_text(session.fitness[step]) or "null")
        say(at, REWARD, step, None, number_text(reward) or "null")
        say(at, BUGGY, step, None, "true" if session.is_buggy[step] else "false")
        why = session.failure_class[step]
        say(at, CLASS, step, None, f'"{why}"' if why else "null")
        if session.island[step] is not None:
            say(at, ISLAND, step, None, f'"{session.island[step]}"')
        counts = reward is not None and not is_copy
        for above in path if counts else [step]:
            if counts:
                visits[above] += 1
                totals[above] += reward or 0.0
            say(offset + above, VISITS, step, visit_texts[above], visit_text := str(visits[above]))
            say(offset + above, TOTAL, step, total_texts[above], total_text := repr(totals[above]))
            visit_texts[above], total_texts[above] = visit_text, total_text
        score = None if is_copy else session.fitness[step]
        rises = score is not None and (best is None or score > best)
        if rises:
            best = score
        if rises or step == 0:
            text = number_text(best) or "null"
            say(-1, BEST, step, best_text, text)
            best_text = text
        text = str(size - step - 1)
        say(-1, BUDGET, step, budget_text, text)
        budget_text = text


def node_order(made: Sequence[tuple[int, Session]], *, repeats: int) -> np.ndarray:
    """Positions of rows, so many per node, by (session_seq, node_id)."""
    seqs = np.repeat([seq for seq, _ in made], [len(session) for _, session in made])
    order = np.lexsort((np.argsort(np.argsort(all_ids(made))), seqs))
    return (order[:, None] * repeats + np.arange(repeats)).ravel()


def all_ids(made: Sequence[tuple[int, Session]]) -> np.ndarray:
    """Node ids of all sessions, one after the other."""
    return np.array([ident for _, session in made for ident in session.node_ids], dtype="S")


def repeated(values: list[Any], sizes: Sequence[int]) -> pa.Array:
    """Each value as often as its size says."""
    return pa.array(values).take(pa.array(np.repeat(np.arange(len(values)), sizes)))
