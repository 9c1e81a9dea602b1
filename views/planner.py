"""How a view will be refreshed, and why: not at all, from the feeds, or in full."""

from dataclasses import dataclass, field
from typing import Any

from store.artifacts import artifact_path
from store.delta import LostRace, Tables
from store.errors import VersionGone
from views.cost import estimate_cost
from views.crossing import CrossingChanges, crossing_changes
from views.definition import WALKED, load_definition, table_inputs, view_digest
from views.engine import EVERYTHING, Engine, Scope
from views.feeds import Feeds
from views.moved_bars import MovedBars
from views.reach_walk import ReachChanges, reach_changes
from views.settings import ViewSettings
from views.tag_walk import TagChanges, tag_changes
from views.touched import touched_sessions, touched_tasks


@dataclass(frozen=True)
class ViewState:
    """A view as its latest commit left it; version None: not built."""

    version: int | None
    metadata: dict[str, Any]

    @property
    def watermarks(self) -> dict[str, int | None] | None:
        """Input versions that its rows stand for; None before the first refresh."""
        return self.metadata.get("watermarks")

    @property
    def was_built(self) -> bool:
        """Whether it was ever refreshed, even if its latest commit is somebody else's and says nothing of it."""
        return bool(self.version)

    @property
    def input_tables(self) -> dict[str, str | None]:
        """Which tables these are versions of, by Delta's ids."""
        return self.metadata.get("input_tables") or {}

    @property
    def missing_artifacts(self) -> list[str]:
        """Digests of texts, at most so many as a commit lists, whose files its rows had to do without."""
        return self.metadata.get("missing_artifacts") or []

    @property
    def input_commits(self) -> dict[str, str | None]:
        """Which commits these versions were."""
        return self.metadata.get("input_commits") or {}


@dataclass(frozen=True)
class Plan:
    """What a refresh of one view does.

    `changed_keys` counts the sessions, tasks, single leaves, or moved nodes and edges that are computed again; None is
    all.
    """

    name: str
    mode: str  # full | incremental | none
    reason: str
    changed_keys: int | None
    input_versions: dict[str, int | None]
    digest: str
    state: ViewState
    scope: Scope = EVERYTHING
    moved: CrossingChanges | TagChanges | ReachChanges | None = field(default=None, repr=False)
    moved_bars: MovedBars = field(default=MovedBars(), repr=False)
    replaces_all: bool = False  # no stored row can be equal to a new one

    @property
    def costly_scope(self) -> Scope:
        """What following the feeds is taken to cost: the sessions of leaves that are let in count whole."""
        if self.scope.session_seqs is None:
            return self.scope
        return Scope(session_seqs=self.scope.session_seqs | set(self.moved_bars.gained.values()))


class Planner:
    """Plans refreshes against one vector of pinned versions."""

    def __init__(self, tables: Tables, pins: dict[str, int | None], settings: ViewSettings, engine: Engine) -> None:
        self.tables = tables
        self.pins = pins
        self.settings = settings
        self.engine = engine
        self.feeds = Feeds(tables, pins)
        self._table_ids: dict[str, str | None] = {}
        self._commit_digests: dict[tuple[str, int], str | None] = {}

    def state(self, name: str) -> ViewState:
        """The view's latest version and what its commit says."""
        if not self.tables.exists(name):
            return ViewState(None, {})
        version, metadata = self.tables.latest(name)
        return ViewState(version, metadata)

    def plan(self, name: str, *, full: bool = False, by_feeds: bool = False) -> Plan:
        """Decide how to refresh a view; `by_feeds` follows the feeds wherever they can be read, whatever it costs.

        Raises:
            LostRace: Another refresh built it from newer inputs than ours; pin again.
        """
        state = self.state(name)
        self.pins[name] = state.version  # the rows that a walk stands on are those it is compared with
        digest = view_digest(name, self.settings)
        versions = {table: self.pins[table] for table in table_inputs(name)}
        watermarks = state.watermarks
        if state.version is not None and not self.tables.has_declared_columns(name):
            reason = "its columns changed"
            return Plan(name, "full", reason, None, versions, digest, state, replaces_all=True)
        if watermarks is None:
            reason = "its last commit does not say what it stands for" if state.was_built else "first build"
            return Plan(name, "full", reason, None, versions, digest, state)
        if state.metadata.get("view_digest") != digest:
            reason = "its definition or parameters changed"
            # A row's digest holds the view's, so every row with one is another; of a walk, rows may be equal.
            return Plan(name, "full", reason, None, versions, digest, state, replaces_all=name not in WALKED)
        replaced = self._replaced(name, state, watermarks, versions)
        if full:
            return Plan(name, "full", "asked for in full", None, versions, digest, state)
        if replaced is not None:
            return Plan(name, "full", replaced, None, versions, digest, state)
        if any(artifact_path(self.tables.home, digest).exists() for digest in state.missing_artifacts):
            return Plan(name, "full", "texts whose files were missing are there", None, versions, digest, state)
        if watermarks == versions:
            return Plan(name, "none", "inputs unchanged", 0, versions, digest, state)
        try:
            return self._incremental(name, watermarks, versions, digest, state, by_feeds=by_feeds)
        except VersionGone as error:
            return Plan(name, "full", f"a feed cannot be read: {error}", None, versions, digest, state)

    def input_tables(self, versions: dict[str, int | None]) -> dict[str, str | None]:
        """Delta's ids of the tables that these are versions of; None where not created."""
        for table, pin in versions.items():
            if pin is not None and table not in self._table_ids:
                self._table_ids[table] = self.tables.table_id(table)
        return {table: None if pin is None else self._table_ids[table] for table, pin in versions.items()}

    def input_commits(self, versions: dict[str, int | None]) -> dict[str, str | None]:
        """What tells the commits of these versions from others; None where not created, or not known any more."""
        return {table: None if pin is None else self._commit_digest(table, pin) for table, pin in versions.items()}

    def _commit_digest(self, table: str, version: int) -> str | None:
        if (table, version) not in self._commit_digests:
            self._commit_digests[table, version] = self.tables.commit_digest(table, version)
        return self._commit_digests[table, version]

    def _replaced(
        self, name: str, state: ViewState, watermarks: dict[str, int | None], versions: dict[str, int | None]
    ) -> str | None:
        """Why the feeds cannot tell what changed: an input is another table, or lies behind the watermark."""
        if watermarks.keys() != versions.keys():
            return "its inputs are others than before"
        tables = self.input_tables(versions)
        for table, seen in watermarks.items():
            pinned = versions[table]
            seen_table = state.input_tables.get(table)
            if None not in (seen_table, tables[table]) and seen_table != tables[table]:
                return f"{table} was replaced: it is another table than the one that was seen"
            if seen is None:
                continue
            if pinned is not None and pinned >= seen:
                seen_commit, is_now = state.input_commits.get(table), self._commit_digest(table, seen)
                if None not in (seen_commit, is_now) and seen_commit != is_now:
                    return f"{table} was replaced: its version {seen} is another commit than the one that was seen"
                continue
            latest = self.tables.version(table)
            if latest is not None and latest >= seen:
                raise LostRace(f"{name} was refreshed from {table}@{seen}, pinned at {pinned}")
            there = "it is gone" if latest is None else f"it is at version {latest}"
            return f"{table} was replaced: {there}, seen at {seen}"
        return None

    def _incremental(
        self,
        name: str,
        watermarks: dict[str, int | None],
        versions: dict[str, int | None],
        digest: str,
        state: ViewState,
        *,
        by_feeds: bool,
    ) -> Plan:
        moved_inputs = ", ".join(
            f"{table} {'-' if watermarks[table] is None else watermarks[table]} to {versions[table]}"
            for table in versions
            if watermarks[table] != versions[table]
        )
        if name in WALKED:
            moved = self._walk_changes(name, watermarks)
            reason = f"{moved.num_keys} nodes, edges and rows moved ({moved_inputs})"
            return Plan(name, "incremental", reason, moved.num_keys, versions, digest, state, moved=moved)
        bars = MovedBars()
        if load_definition(name).maintained_by == "task_id":
            tasks = touched_tasks(self.feeds, name, watermarks)
            num_keys, scope, noun = len(tasks), Scope(task_ids=frozenset(tasks)), "task"
        else:
            touched = touched_sessions(self.engine, self.feeds, name, watermarks)
            num_keys, scope, noun = len(touched.session_seqs), Scope(session_seqs=touched.session_seqs), "session"
            bars = touched.moved_bars
        reason = f"{num_keys} {noun}{'' if num_keys == 1 else 's'} touched ({moved_inputs})"
        if bars != MovedBars():
            reason = f"{reason}; {bars}"
        num_keys += len(bars.gained) + len(bars.lost)
        plan = Plan(name, "incremental", reason, num_keys, versions, digest, state, scope, moved_bars=bars)
        cost = estimate_cost(self.engine, name, plan.costly_scope, self.settings.cost)
        if cost.is_full_cheaper and not by_feeds:
            return Plan(name, "full", f"cheaper in full: {cost}", None, versions, digest, state)
        return plan

    def _walk_changes(
        self, name: str, watermarks: dict[str, int | None]
    ) -> CrossingChanges | TagChanges | ReachChanges:
        if name == "crossing_edges":
            return crossing_changes(self.feeds, watermarks)
        if name == "node_tags":
            return tag_changes(self.feeds, watermarks)
        return reach_changes(self.feeds, watermarks, self.engine)
