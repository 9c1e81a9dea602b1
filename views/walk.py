"""The walk that tags and withdrawals share: labels spread along edges from content to what was made from it."""

from collections.abc import Callable, Iterable

Labelled = tuple[str, str]  # (label, node_id)
Edge = tuple[str, str, str]  # (src, dst, kind)


def spread(
    seeds: Iterable[Labelled],
    edges_from: Callable[[set[str]], Iterable[Edge]],
    follows: Callable[[str, str], bool],
    known: Callable[[set[str]], set[Labelled]] = lambda _: set(),
) -> set[Labelled]:
    """Everything that seeds reach, themselves included; circles end where a label was already.

    Args:
        seeds: Where each label starts.
        edges_from: Edges that leave any of these nodes.
        follows: Whether a label goes along edges of a kind.
        known: Labels that these nodes carry already and from which the walk need not go on.
    """
    reached = set(seeds)
    frontier = reached
    while frontier:
        labels_at: dict[str, list[str]] = {}
        for label, node_id in frontier:
            labels_at.setdefault(node_id, []).append(label)
        found = {
            (label, dst)
            for src, dst, kind in edges_from(set(labels_at))
            for label in labels_at[src]
            if follows(label, kind) and (label, dst) not in reached
        }
        frontier = found - known({node_id for _, node_id in found}) if found else found
        reached = reached | frontier
    return reached
