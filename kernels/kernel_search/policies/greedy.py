"""Greedy: a few drafts from the root, then the best node, then deeper from the best that had its share."""

from collections.abc import Sequence

from kernel_search.search_settings import GreedySettings
from store.ledger_rows import Choice, FrontierRow


def choose_greedy(rows: Sequence[FrontierRow], *, settings: GreedySettings) -> Choice | None:
    """Choose a parent: drafts first, then best and deepen.

    Among the `good_parents` best distinct artifacts the one in the earliest round goes first, a round being
    `groups_per_parent` groups from one parent; within a round the fitter one, then the later one (deeper nodes
    have more behind them), then the smaller id. An artifact that came up again counts once, as its first node.

    Args:
        rows: The scored, non-buggy nodes of one session.
        settings: How broad to go.

    Returns:
        The choice with the rows it weighed, or None where there are no rows.
    """
    distinct = _first_of_each_artifact(rows)
    roots = [row for row in distinct if row.parent_id is None]
    drafting = [row for row in roots if row.num_groups < settings.drafts]
    if drafting:
        return Choice(drafting[0].node_id, tuple(roots), "draft")
    best_first = sorted(distinct, key=lambda row: (-row.fitness, -row.step, row.node_id))
    weighed = tuple(best_first[: settings.good_parents])
    if not weighed:
        return None
    chosen = min(weighed, key=lambda row: row.num_groups // settings.groups_per_parent)  # min keeps the first of equals
    return Choice(chosen.node_id, weighed, "best" if chosen is weighed[0] else "deepen")


def _first_of_each_artifact(rows: Sequence[FrontierRow]) -> list[FrontierRow]:
    first: dict[str, FrontierRow] = {}
    for row in sorted(rows, key=lambda row: row.step):
        first.setdefault(row.artifact_digest or row.node_id, row)
    return list(first.values())
