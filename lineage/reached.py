"""What rests on a set of nodes: rows of tables and views, and the datasets, runs and models made from them."""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from store.delta import Tables, quiet_connection
from store.home import Home
from views.registry import TRAINING_VIEWS, declare_views

TABLES_OF_NODES = ("nodes", "prompt_history", "change_log")


@dataclass(frozen=True)
class Reached:
    """Row counts by table and by view (as they stand before the next refresh), and ids from the registry, sorted."""

    tables: dict[str, int]
    views: dict[str, int]
    datasets: tuple[str, ...]
    runs: tuple[str, ...]
    models: tuple[str, ...]


def reached_by(home: Home, node_ids: Collection[str]) -> Reached:
    """Count what holds content or scores of these nodes.

    A view's row is counted where one of the nodes is among its source_node_ids; a cohort's other members, whose
    advantage moves with it, are not. A dataset, run or model is one that was made from such rows, at any time.
    """
    tables = Tables(home)
    declare_views(tables)
    ids = pa.table({"node_id": pa.array(sorted(node_ids), pa.string())})
    by_id = "node_id in (select node_id from reached)"
    by_source = "list_has_any(source_node_ids, (select list(node_id) from reached))"
    in_tables = {name: _count(tables, name, by_id, ids) for name in TABLES_OF_NODES}
    in_views = {name: _count(tables, name, by_source, ids) for name in TRAINING_VIEWS}
    wanted = set(node_ids)
    datasets = {
        row["dataset_id"]
        for row in tables.read("datasets", columns=["dataset_id", "source_node_ids"]).to_pylist()
        if wanted.intersection(row["source_node_ids"] or ())
    }
    runs = {
        row["run_id"]
        for row in tables.read("runs", columns=["run_id", "dataset_ids"]).to_pylist()
        if datasets.intersection(row["dataset_ids"] or ())
    }
    models = {
        row["model_id"]
        for row in tables.read("models", columns=["model_id", "run_id"]).to_pylist()
        if row["run_id"] in runs
    }
    return Reached(in_tables, in_views, tuple(sorted(datasets)), tuple(sorted(runs)), tuple(sorted(models)))


def _count(tables: Tables, name: str, condition: str, ids: pa.Table) -> int:
    files = tables.files(name)
    if not files or ids.num_rows == 0:
        return 0
    with quiet_connection() as connection:
        connection.register("reached", ids)
        answer = connection.execute(
            f"select count(*) from read_parquet($files, union_by_name = true) where {condition}", {"files": files}
        ).fetchone()
    assert answer is not None
    return int(answer[0])
