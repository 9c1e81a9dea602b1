"""A recompute of everything, in portions of whole sessions, so that memory does not grow with the tables."""

from collections.abc import Iterator, Mapping

from views.crossing import session_pairs
from views.definition import WALKED, load_definition
from views.engine import EVERYTHING, Engine, Scope


def portions(engine: Engine, name: str, version: int | None) -> Iterator[Scope]:
    """Scopes that together hold all rows of a view, each with about `nodes_at_once` nodes.

    Sessions that a parent or a copy links stand in one portion. What is not kept per session, and what is small, is
    one portion.

    Args:
        engine: Over the pinned tables.
        name: The view.
        version: The view's own version whose rows are compared, None where there are none: their sessions count too.
    """
    at_once = engine.settings.nodes_at_once
    num_nodes = 0 if engine.pins["nodes"] is None else engine.tables.num_rows("nodes", version=engine.pins["nodes"])
    if name in WALKED or load_definition(name).maintained_by != "session_seq" or num_nodes <= at_once:
        yield EVERYTHING
        return
    sizes = dict(engine.run(f"select session_seq, count(*) from {engine.scan('nodes')} group by session_seq"))
    if version is not None:
        stored = engine.select_from(name, version=version, columns=["session_seq"])
        sizes = dict.fromkeys(engine.column(f"select distinct session_seq from ({stored})"), 0) | sizes
    yield from _packed(engine, sizes)


def portions_of(engine: Engine, scope: Scope) -> Iterator[Scope]:
    """The same for touched sessions, linked ones among them; their sizes are taken to be the mean."""
    sessions = engine.tables.num_rows("sessions", version=engine.pins.get("sessions"))
    nodes = 0 if engine.pins["nodes"] is None else engine.tables.num_rows("nodes", version=engine.pins["nodes"])
    mean = nodes / sessions if sessions else 1.0
    if scope.session_seqs is None or len(scope.session_seqs) * mean <= engine.settings.nodes_at_once:
        yield scope
        return
    yield from _packed(engine, dict.fromkeys(scope.session_seqs, mean))


def _packed(engine: Engine, sizes: Mapping[int, float]) -> Iterator[Scope]:
    portion: set[int] = set()
    size = 0.0
    for group in _linked_groups(sorted(sizes), session_pairs(engine)):
        portion |= group
        size += sum(sizes[session_seq] for session_seq in group)
        if size >= engine.settings.nodes_at_once:
            yield Scope(session_seqs=frozenset(portion))
            portion, size = set(), 0.0
    if portion:
        yield Scope(session_seqs=frozenset(portion))


def _linked_groups(sessions: list[int], pairs: list[tuple[int, int]]) -> Iterator[set[int]]:
    """Sessions in order, each with all that it is linked to; no session twice."""
    links: dict[int, set[int]] = {}
    for one, other in pairs:
        links.setdefault(one, set()).add(other)
        links.setdefault(other, set()).add(one)
    known, done = set(sessions), set[int]()
    for first in sessions:
        if first in done:
            continue
        group, pending = {first}, [first]
        while pending:
            new = links.get(pending.pop(), set()) & known - group
            group |= new
            pending += new
        done |= group
        yield group
