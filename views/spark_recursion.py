"""Recursive selects on Spark: level by level, each level computed once and kept.

Spark has recursive CTEs, but plans the whole select again for every level and computes a CTE again for every place
that names it. Here each CTE of a recursive file is computed once, and a recursive one grows by a join of its
newest rows until a level is empty.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from views.definition import load_definition
from views.spark_sql import render_tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Select = Callable[[exp.Expr], "DataFrame"]


def computed_once(session: "SparkSession", name: str, parameters: Mapping[str, Any]) -> "DataFrame":
    """The rows of a view, relation or staging relation, cut off from the plan that made them.

    A checkpoint, not a cache: the plan of a relation that stands on five others would hold each of theirs as often as
    it is named, and planning would take longer than computing by orders of magnitude.

    Args:
        session: Where the inputs are known as temporary views.
        name: Name of the SQL file.
        parameters: A value for each of its parameters.
    """
    tree = sqlglot.parse_one(load_definition(name).text, read="duckdb")

    def select(part: exp.Expr) -> "DataFrame":
        return session.sql(render_tree(part, parameters)).localCheckpoint(eager=False)

    with_ = tree.args.get("with_")
    if with_ is None or not with_.args.get("recursive"):
        return select(tree)
    known: dict[str, str] = {}
    for cte in with_.expressions:
        view = f"{name}__{cte.alias}"
        if _names(cte.this, cte.alias):
            assert isinstance(cte.this, exp.Union), "a recursive CTE is a union of its first rows and the next ones"
            first, following = _renamed(cte.this.left, known), _renamed(cte.this.right, {**known, cte.alias: view})
            rows = _grown(select, first, following, view)
        else:
            rows = select(_renamed(cte.this, known))
        rows.createOrReplaceTempView(view)
        known[cte.alias] = view
    tree.set("with_", None)
    rows = select(_renamed(tree, known))
    for view in known.values():
        session.catalog.dropTempView(view)
    return rows


def _grown(select: Select, first: exp.Expr, following: exp.Expr, view: str) -> "DataFrame":
    """All levels of a recursive CTE; `view` holds the newest while the next is computed."""
    level = select(first)
    partitions = level.sparkSession.conf.get("spark.sql.shuffle.partitions")
    levels = [level]
    while level.count():  # computes the level as well
        level.createOrReplaceTempView(view)
        level = select(following)
        levels.append(level)
    return reduce(lambda above, below: above.union(below), levels).coalesce(int(partitions or 1))


def _names(part: exp.Expr, name: str) -> bool:
    return any(table.name == name for table in part.find_all(exp.Table))


def _renamed(part: exp.Expr, views: Mapping[str, str]) -> exp.Expr:
    """A copy that reads the temporary views in the place of CTEs, under their names."""
    part = part.copy()
    for table in part.find_all(exp.Table):
        if table.name in views:
            alias = table.alias or table.name
            table.replace(exp.alias_(exp.to_table(views[table.name]), alias, table=True))
    return part
