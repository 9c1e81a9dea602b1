"""What turns a view's old rows into the rows just computed; equal rows are in neither."""

import pyarrow as pa

from store.delta import CHANGE
from views.engine import Engine
from views.registry import view_schema


def difference(engine: Engine, name: str, old_rows: str) -> pa.Table:
    """Compare the temporary table `computed` with old rows, by key and content.

    Args:
        engine: Where `computed` is.
        name: The view.
        old_rows: A select over the view's old rows that `computed` stands against.

    Returns:
        The view's columns plus `_change` (insert, update or delete), in the view's sort order.
    """
    schema = view_schema(name)
    columns = schema.columns.names
    same_key = " and ".join(f"old.{column} is not distinct from computed.{column}" for column in schema.key)
    compared = ["row_digest"] if "row_digest" in columns else [name for name in columns if name not in schema.key]
    kept = old_columns(name)
    engine.run(f"create or replace temp table old as select {', '.join(kept)} from ({old_rows})")
    differs = " or ".join(f"old.{column} is distinct from computed.{column}" for column in compared)
    new_rows = ", ".join(f"computed.{column}" for column in columns)
    order = ", ".join(f"computed.{column}" for column in schema.sort)
    moved = f"""
        select {new_rows}, case when old.is_there is null then 'insert' else 'update' end as {CHANGE}
        from computed left join (select *, true as is_there from old) as old on {same_key}
        where old.is_there is null or {differs}
        order by {order}
    """
    gone = f"""
        select {", ".join(f"old.{column}" for column in kept)} from old
        where not exists (select 1 from computed where {same_key})
    """
    shape = pa.schema([*schema.columns, pa.field(CHANGE, pa.string())])
    removed = engine.arrow(gone)
    absent = {field.name: pa.nulls(removed.num_rows, field.type) for field in schema.columns}
    absent |= {column: removed[column].cast(schema.columns.field(column).type) for column in kept}
    absent[CHANGE] = pa.array(["delete"] * removed.num_rows, pa.string())
    return pa.concat_tables([engine.arrow(moved).cast(shape), pa.table(absent, schema=shape)])


def old_columns(name: str) -> list[str]:
    """Columns of old rows that a comparison reads: the key, where the row lies, and what tells its content."""
    schema = view_schema(name)
    columns = schema.columns.names
    compared = ["row_digest"] if "row_digest" in columns else [name for name in columns if name not in schema.key]
    placed = [column for column in ("session_seq", "task_id") if column in columns and column in schema.statistics]
    return list(dict.fromkeys([*schema.key, *placed, *compared]))
