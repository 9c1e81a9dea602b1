"""Runs histories, alone or side by side in one set of tables, and holds every refresh against the oracle.

Side by side, the ids of each history get a prefix and its sessions numbers of their own, so that nothing of one
concerns another: what a refresh touches and what it must leave alone stand in the same tables, and a pass costs
little more than that of a single history.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from memory_tables import MemoryTables
from oracle_walks import Row
from store.delta import Tables
from store.home import open_home
from store.schema import TABLES
from table_upkeep import do_upkeep
from view_checks import FeedReplay, assert_rows_equal, assert_views_equal_a_recompute
from view_histories import WRITE_ORDER, Declared, History, Pass
from view_oracle import expected_views
from views.refresh import Chain, EngineName, with_inputs
from views.registry import VIEW_ORDER
from views.settings import ViewSettings, read_view_settings
from world import World, act

IDS = {
    *("node_id", "parent_id", "copy_of", "src", "dst", "session_id", "task_id", "source_id", "user_id", "model"),
    *("verifier", "tag", "target_id", "assignment_id", "retraction_id", "scope_id", "reinstates"),
}
SESSIONS_APART = 1_000  # numbers between the first sessions of two histories


class Side:
    """One history among those of a group."""

    def __init__(self, history: History, number: int, prefix: str) -> None:
        self.history = history
        self.prefix = prefix
        self.first_seq = number * SESSIONS_APART
        self.world = World(None, tables=Declared())  # type: ignore[arg-type]
        self.saved: dict[str, list[Row]] = {table: [] for table in TABLES}
        self.expected: dict[str, list[Row]] = {}
        self.expected_for: Any = None

    def renamed(self, table: str) -> list[Row]:
        """Rows of a table as they will be saved, under the names of this side."""
        rows = self.world.rows_of(table)
        return [dict(row) for row in rows] if not self.prefix else [self._renamed(row) for row in rows]

    def _renamed(self, row: Row) -> Row:
        new = dict(row)
        for column in IDS & row.keys():
            if row[column] is not None:
                new[column] = self.prefix + row[column]
        if new.get("context"):
            new["context"] = [{**item, "node_id": self.prefix + item["node_id"]} for item in new["context"]]
        if "session_seq" in new:
            new["session_seq"] += self.first_seq
        return new

    def oracle(self, settings: ViewSettings) -> dict[str, list[Row]]:
        """What the views must hold of this side; told again only when something moved."""
        if self.expected_for != settings:
            self.expected = expected_views(self.saved, settings)
            self.expected_for = settings
        return self.expected


class Group:
    """Histories that run side by side; all have equally many passes, and the first one's settings and upkeep count."""

    def __init__(self, histories: Sequence[History], tables: Tables, engines: Sequence[EngineName]) -> None:
        prefixes = [""] if len(histories) == 1 else [f"h{number:02d}." for number in range(len(histories))]
        self.sides = [Side(history, number, prefixes[number]) for number, history in enumerate(histories)]
        self.engines = engines  # of the first pass, the second, and so on in turn
        self.world = World(tables.home, tables=tables)
        self.replay = FeedReplay()
        self.counts: Counter[str] = Counter()

    def run(self, patch: pytest.MonkeyPatch) -> Counter[str]:
        """Run every pass; returns what happened, by kind.

        Raises:
            AssertionError: A view differs from the oracle, or a row was rewritten that did not change.
        """
        settings = read_view_settings()
        for number, leading in enumerate(self.sides[0].history.passes):
            settings, before = self._settings(leading), settings
            self.counts["change parameters"] += number > 0 and settings != before
            patch.setattr("views.refresh.read_view_settings", lambda settings=settings: settings)
            self._run_pass(number, leading, settings)
        assert_views_equal_a_recompute(self.world)
        return self.counts

    def _settings(self, leading: Pass) -> ViewSettings:
        plain = read_view_settings()
        changed = dict(leading.settings)
        if "from_nodes" in changed:
            changed["cost"] = plain.cost.model_copy(update={"from_nodes": changed.pop("from_nodes")})
        if "nodes_at_once" in changed:  # as many portions as one history alone would have
            changed["nodes_at_once"] *= len(self.sides)
        staying = changed.get("tags_that_stay", [])
        changed["tags_that_stay"] = [side.prefix + tag for side in self.sides for tag in staying]
        return plain.model_copy(update=changed)

    def _run_pass(self, number: int, leading: Pass, settings: ViewSettings) -> None:
        rounds = [side.history.passes[number].rounds for side in self.sides]
        last = max(map(len, rounds), default=0) - 1
        for place in range(last + 1):
            for side, own in zip(self.sides, rounds, strict=True):
                self._do(side, own[place] if place < len(own) else ())
            if place < last or leading.arrives == "before":
                self._save()
            elif leading.arrives == "torn":
                self._save(WRITE_ORDER[: WRITE_ORDER.index(leading.torn_after) + 1])
        if last >= 0 and leading.arrives != "before":
            self.counts[{"torn": "cut an ingest short", "during": "ingest during a refresh"}[leading.arrives]] += 1
        for kind in leading.upkeep:
            for name in VIEW_ORDER:  # a vacuum by force takes feeds away
                if self.world.tables.exists(name):
                    self.replay.follow(self.world.tables, name)
            self.counts[kind] += do_upkeep(self.world, kind)
        order = with_inputs(leading.names)
        if leading.names:
            self.counts["refresh one view alone"] += 1
        engine = self.engines[number % len(self.engines)]
        self._refresh(order, engine, disturbed=leading.arrives == "during")
        for name in order:
            expected = [row for side in self.sides for row in side.oracle(settings)[name]]
            rows = self.replay.follow(self.world.tables, name)
            assert_rows_equal(name, rows, expected)
        if engine == "spark" and leading.names is None and leading.arrives != "during":
            assert_views_equal_a_recompute(self.world)  # by the other engine: equal digests too
        if leading.arrives == "during":
            self._save()  # what it saw is checked: now the sides may say what is there

    def _do(self, side: Side, steps: Sequence[Any]) -> None:
        for step in steps:
            self.counts[step.kind] += 1
            for action in step.actions:
                # In a history that is being made smaller, what an action is about may be gone.
                with suppress(KeyError):
                    act(side.world, action)

    def _save(self, tables: Sequence[str] = WRITE_ORDER) -> None:
        self._save_tables(tables)
        self._tell(tables)

    def _save_tables(self, tables: Sequence[str]) -> None:
        for table in tables:
            rows = [row for side in self.sides for row in side.renamed(table)]
            key = TABLES[table].key
            self.world.rows[table] = {tuple(row[column] for column in key): row for row in rows}
            if rows or table in self.world.written:
                self.world.save(table)

    def _tell(self, tables: Sequence[str]) -> None:
        for side in self.sides:
            for table in tables:
                rows = side.renamed(table)
                if rows != side.saved[table]:
                    side.saved[table] = rows
                    side.expected_for = None

    def _refresh(self, order: Sequence[str], engine: EngineName, *, disturbed: bool) -> None:
        """One pass of the chain; where it is disturbed, new rows arrive after its second relation."""
        self.counts[f"refresh on {engine}"] += 1
        chain = Chain(self.world.tables, order, engine)
        try:
            chain.engine.run("set threads = 1")
            for place, name in enumerate(order):
                if disturbed and place == 2:
                    self._save_tables(WRITE_ORDER)
                result = chain.refresh(name)
                self.counts[f"{result.mode}: {_sort_of(result.reason)}"] += 1
                if moved := re.search(r"moved bars let in (\d+) and shut out (\d+) leaves", result.reason):
                    self.counts["leaf let in by a moved bar"] += int(moved[1])
                    self.counts["leaf shut out by a moved bar"] += int(moved[2])
        finally:
            chain.close()


def _sort_of(reason: str) -> str:
    """A plan's reason without its numbers and names of tables."""
    if reason.startswith("a feed cannot be read"):
        return "a feed cannot be read"
    one_or_more = reason.replace("session touched", "sessions touched").replace("task touched", "tasks touched")
    return re.sub(r"[\d ]+$|^\d+ |:.*| \(.*|;.*", "", one_or_more).strip()


def run_group(histories: Sequence[History], kind: str, engines: Sequence[EngineName] = ("duckdb",)) -> Counter[str]:
    """Run histories side by side in a home of their own, in `memory` or in `delta`; returns what happened, by kind."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        home = open_home(Path(folder) / "home")
        tables = MemoryTables(home, Path(folder)) if kind == "memory" else Tables(home)
        return Group(histories, tables, engines).run(patch)
