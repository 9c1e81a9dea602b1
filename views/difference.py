"""What turns a view's old rows into the rows just computed; equal rows are in neither."""

from collections.abc import Iterable

import pyarrow as pa

from store.delta import CHANGE
from views.engine import Engine, Scope
from views.registry import view_schema
from views.touched import RaisedBar


def difference(engine: Engine, name: str, old_rows: str) -> pa.Table:
    """Compare the temporary table `computed` with old rows, by key and content.

    Args:
        engine: Where `computed` is.
        name: The view.
        old_rows: A select over the view's old rows that `computed` stands against.

    Returns:
        The view's columns plus `_change` (insert, update or delete).
    """
    schema = view_schema(name)
    columns = schema.columns.names
    same_key = " and ".join(f"old.{column} is not distinct from computed.{column}" for column in schema.key)
    compared = ["row_digest"] if "row_digest" in columns else [name for name in columns if name not in schema.key]
    kept = old_columns(name)
    engine.run(f"create or replace temp table old as select {', '.join(kept)} from ({old_rows})")
    differs = " or ".join(f"old.{column} is distinct from computed.{column}" for column in compared)
    new_rows = ", ".join(f"computed.{column}" for column in columns)
    moved = f"""
        select {new_rows}, case when old.is_there is null then 'insert' else 'update' end as {CHANGE}
        from computed left join (select *, true as is_there from old) as old on {same_key}
        where old.is_there is null or {differs}
    """
    gone = f"""
        select {", ".join(f"old.{column}" for column in kept)} from old
        where not exists (select 1 from computed where {same_key})
    """
    shape = pa.schema([*schema.columns, pa.field(CHANGE, pa.string())])
    return pa.concat_tables([engine.arrow(moved).cast(shape), _deletes(name, engine.arrow(gone))])


def fallen_rows(engine: Engine, name: str, version: int, raised_bars: Iterable[RaisedBar]) -> pa.Table:
    """Deletes of the rows whose leaf was good enough for a bar and is not for the higher one, as `difference` has them.

    Args:
        engine: Over the pinned tables.
        name: The view.
        version: The version that its rows are taken from.
        raised_bars: Each with the sessions that nothing else touches.
    """
    parts = [_deletes(name, None)]
    for raised in raised_bars:
        scope = Scope(session_seqs=raised.session_seqs)
        wanted = [*old_columns(name), "fitness", "fitness_basis", "environment_digest"]
        engine.keep(
            "raised_bar",
            pa.table(
                {
                    "task_id": pa.array([raised.task_id], pa.string()),
                    "fitness_basis": pa.array([raised.fitness_basis], pa.string()),
                    "environment_digest": pa.array([raised.environment_digest], pa.string()),
                    "bar": pa.array([raised.bar], pa.float64()),
                }
            ),
        )
        parts.append(
            _deletes(
                name,
                engine.arrow(f"""
                    select {", ".join(f"old.{column}" for column in old_columns(name))}
                    from ({engine.select_from(name, scope, version=version, columns=wanted)}) as old
                    inner join raised_bar on old.task_id = raised_bar.task_id
                        and old.fitness_basis is not distinct from raised_bar.fitness_basis
                        and old.environment_digest is not distinct from raised_bar.environment_digest
                    where old.fitness < raised_bar.bar
                """),
            )
        )
    return pa.concat_tables(parts)


def _deletes(name: str, rows: pa.Table | None) -> pa.Table:
    """Old rows, in the columns of `old_columns`, as changes; columns that nobody read are NULL."""
    columns = view_schema(name).columns
    shape = pa.schema([*columns, pa.field(CHANGE, pa.string())])
    if rows is None:
        return shape.empty_table()
    absent = {field.name: pa.nulls(rows.num_rows, field.type) for field in columns}
    absent |= {column: rows[column].cast(columns.field(column).type) for column in rows.column_names}
    absent[CHANGE] = pa.array(["delete"] * rows.num_rows, pa.string())
    return pa.table(absent, schema=shape)


def old_columns(name: str) -> list[str]:
    """Columns of old rows that a comparison reads: the key, where the row lies, and what tells its content."""
    schema = view_schema(name)
    columns = schema.columns.names
    compared = ["row_digest"] if "row_digest" in columns else [name for name in columns if name not in schema.key]
    placed = [column for column in ("session_seq", "task_id") if column in columns and column in schema.statistics]
    return list(dict.fromkeys([*schema.key, *placed, *compared]))
