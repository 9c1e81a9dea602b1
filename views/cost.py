"""What a refresh would cost, one way and the other, from the Delta log's statistics alone.

    incremental = read * MiB of the files that hold touched keys + compute * touched nodes / 1000 + key * touched keys
    full        = read * MiB of all files                        + compute * all nodes / 1000

Feeds are read before the choice and the changed rows written after it, both alike either way, so neither counts. The
constants are seconds on the machine of `make bench-planner`, which prints them; only their ratios matter.
"""

from dataclasses import dataclass

from views.definition import table_inputs
from views.engine import EVERYTHING, Engine, Scope
from views.settings import CostSettings

MIB = 2**20


@dataclass(frozen=True)
class Amount:
    """What one way goes through: MiB of files, nodes whose rows are computed, keys that are picked out one by one."""

    mebibytes: float
    nodes: int
    keys: int


@dataclass(frozen=True)
class Cost:
    """Seconds that a refresh should take either way, and what they were figured from."""

    incremental: float
    full: float
    touched: Amount
    everything: Amount
    from_nodes: int

    @property
    def is_full_cheaper(self) -> bool:
        """Whether everything should be computed again."""
        return self.everything.nodes >= self.from_nodes and self.full < self.incremental

    def __str__(self) -> str:
        return (
            f"about {self.touched.nodes} of {self.everything.nodes} nodes touched, "
            f"{self.incremental:.2f} s against {self.full:.2f} s in full"
        )


def estimate_cost(engine: Engine, name: str, scope: Scope, settings: CostSettings) -> Cost:
    """Estimate both ways of a refresh whose touched keys are known."""
    keys, num_keys = (scope.session_seqs, "sessions") if scope.session_seqs is not None else (scope.task_ids, "tasks")
    num_touched = len(keys or ())
    all_keys = max(_rows(engine, num_keys), num_touched)
    all_nodes = _rows(engine, "nodes")
    share = num_touched / all_keys if all_keys else 0.0
    touched = Amount(_mebibytes(engine, name, scope), round(share * all_nodes), num_touched)
    everything = Amount(_mebibytes(engine, name, EVERYTHING), all_nodes, 0)
    return cost_of(name, touched, everything, settings)


def cost_of(name: str, touched: Amount, everything: Amount, settings: CostSettings) -> Cost:
    """The cost of refreshing a view, from what each way goes through."""
    return Cost(
        incremental=_seconds(name, touched, settings),
        full=_seconds(name, everything, settings),
        touched=touched,
        everything=everything,
        from_nodes=settings.from_nodes,
    )


def _seconds(name: str, amount: Amount, settings: CostSettings) -> float:
    # A view that nobody measured is taken to be as dear as the dearest.
    per_node = settings.compute.get(name, max(settings.compute.values(), default=0.0)) / 1000
    read, compute = settings.read * amount.mebibytes, per_node * amount.nodes
    return read + compute + settings.key * amount.keys


def _rows(engine: Engine, table: str) -> int:
    pin = engine.pins[table] if table in engine.pins else engine.tables.version(table)
    return 0 if pin is None else engine.tables.num_rows(table, version=pin)


def _mebibytes(engine: Engine, name: str, scope: Scope) -> float:
    """Size of the input files, and of the view's own, that can hold rows of the scope."""
    size = 0
    for table in (name, *table_inputs(name)):
        pin = engine.pins[table]
        if pin is None:
            continue
        if scope == EVERYTHING:
            size += engine.tables.size_bytes(table, version=pin)
            continue
        files = engine.tables.data_files(
            table, version=pin, session_seqs=scope.session_seqs, task_ids=scope.prunable_tasks, must_exist=False
        )
        size += sum(file.size_bytes for file in files)
    return size / MIB
