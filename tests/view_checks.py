"""Runs a refresh over a world and holds the result against the oracle and against a full recompute."""

import math
from typing import Any

from memory_tables import MemoryTables
from oracle_walks import Row
from store.delta import Tables
from store.schema import TABLES
from view_oracle import expected_views
from views.definition import WALKED, view_digest
from views.difference import difference
from views.engine import EVERYTHING
from views.feeds import LEAVING
from views.refresh import Chain, RefreshResult, open_walk
from views.registry import VIEW_ORDER, view_schema
from views.settings import ViewSettings
from world import World


def open_chain(world: World) -> Chain:
    """A chain over the world's own tables; small worlds need no second thread."""
    chain = Chain(world.tables, VIEW_ORDER)
    chain.engine.run("set threads = 1")
    return chain


def pass_over(world: World) -> dict[str, RefreshResult]:
    """One pass of the chain over the world's own tables, as `refresh` does it."""
    chain = open_chain(world)
    try:
        return {name: chain.refresh(name, full=False) for name in VIEW_ORDER}
    finally:
        chain.close()


def rows_at(tables: Tables, name: str, version: int | None = None) -> list[Row]:
    """All rows of a table at a version, or the latest."""
    if isinstance(tables, MemoryTables):
        return list(tables.versions[name][-1 if version is None else version].values())
    return tables.read(name, version=version).to_pylist()


class FeedReplay:
    """Follows the views' own feeds, as something that stands on them would, and says what rows they tell."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[tuple[Any, ...], Row]] = {}
        self.seen: dict[str, int] = {}

    def follow(self, tables: Tables, name: str) -> list[Row]:
        """The view's rows now, which its feed must tell too; a row that did not change must not be in the feed."""
        latest = tables.version(name)
        assert latest is not None
        told, key = self.rows.setdefault(name, {}), view_schema(name).key
        for version, images in self._images(tables, name, latest):
            gone: dict[tuple[Any, ...], Row] = {}
            for is_leaving in (True, False):
                for image in images:
                    if (image["_change_type"] in LEAVING) != is_leaving:
                        continue
                    row = {column: value for column, value in image.items() if not column.startswith("_c")}
                    identity = tuple(row[column] for column in key)
                    if is_leaving:
                        gone[identity] = told.pop(identity)
                        assert gone[identity] == row, f"{name}@{version}: the feed takes another row than it gave"
                    else:
                        assert identity not in told, f"{name}@{version}: {identity} comes twice"
                        is_equal = identity in gone and _content(gone[identity]) == _content(row)
                        assert not is_equal, f"{name}@{version}: {identity} was rewritten unchanged"
                        told[identity] = row
        rows = rows_at(tables, name)
        assert {tuple(row[column] for column in key): row for row in rows} == told, f"{name}: its feed tells other rows"
        return rows

    def _images(self, tables: Tables, name: str, latest: int) -> list[tuple[int, list[Row]]]:
        start, self.seen[name] = self.seen.get(name, -1) + 1, latest
        by_version: dict[int, list[Row]] = {}
        for image in tables.changes(name, start=start, end=latest).to_pylist():
            by_version.setdefault(image["_commit_version"], []).append(image)
        return sorted(by_version.items())


def _content(row: Row) -> Any:
    """What tells a row from another of its key: two rows are equal if their digests are."""
    return row.get("row_digest", row)


def assert_views_equal_the_oracle(world: World, settings: ViewSettings) -> None:
    """What is maintained is what plain Python says, row by row."""
    expected = expected_views({table: world.rows_of(table) for table in TABLES}, settings)
    for name in VIEW_ORDER:
        assert_rows_equal(name, world.tables.read(name).to_pylist(), expected[name])


def assert_views_equal_a_recompute(world: World) -> None:
    """A recompute from all rows finds nothing to change, by key and digest."""
    chain = open_chain(world)
    try:
        for name in VIEW_ORDER:
            assert not recomputed_difference(chain, name), f"{name}: maintained and recomputed rows differ"
    finally:
        chain.close()


def recomputed_difference(chain: Chain, name: str) -> list[Row]:
    """What a recompute from all rows would still change."""
    if name in WALKED:
        chain.engine.keep("computed", open_walk(chain.engine, name).all_rows())
    else:
        chain.engine.compute(name, EVERYTHING, view_digest(name, chain.settings))
    return difference(chain.engine, name, chain.engine.select_from(name)).to_pylist()


def assert_rows_equal(name: str, rows: list[Row], expected: list[Row]) -> None:
    """Equal by key and every column but the digest; floats within 1e-9."""
    key = view_schema(name).key
    if name in ("cohorts", "grpo_cohorts"):
        rows = with_readable_cohorts(rows)
    found = {tuple(row[column] for column in key): row for row in rows}
    wanted = {tuple(row[column] for column in key): row for row in expected}
    assert len(found) == len(rows), f"{name} holds a key twice"
    missing, extra = sorted(wanted.keys() - found.keys(), key=str), sorted(found.keys() - wanted.keys(), key=str)
    assert not missing and not extra, f"{name} lacks {missing} and should not have {extra}"
    for identity, row in found.items():
        content = {column: row[column] for column in row if column != "row_digest"}
        if content != wanted[identity]:
            assert_same(f"{name} {identity}", content, wanted[identity])


def assert_same(place: str, found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), f"{place}: {sorted(found.keys() ^ wanted.keys())}"
        for column in wanted:
            assert_same(f"{place}.{column}", found[column], wanted[column])
    elif isinstance(wanted, list):
        assert isinstance(found, list) and len(found) == len(wanted), f"{place}: {found} is not {wanted}"
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            assert_same(f"{place}[{number}]", one, other)
    elif isinstance(wanted, float):
        is_near = found is not None and math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
        assert is_near, f"{place}: {found} is not {wanted}"
    else:
        assert found == wanted, f"{place}: {found!r} is not {wanted!r}"


def with_readable_cohorts(rows: list[Row]) -> list[Row]:
    """The oracle calls a cohort by its kind and first member, since ids are digests of the view's own."""
    first: dict[str, str] = {}
    for row in rows:
        first[row["cohort_id"]] = min(row["node_id"], first.get(row["cohort_id"], row["node_id"]))
    renamed = []
    for row in rows:
        name = f"{row['kind']} of {first[row['cohort_id']]}"
        new = {**row, "cohort_id": name}
        if "score_refs" in row:
            assert row["score_refs"] == [row["cohort_id"]]
            new |= {"score_refs": [name], "example_id": f"grpo_cohorts/{name}/{row['node_id']}"}
        renamed.append(new)
    return renamed
