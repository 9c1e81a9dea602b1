"""What turns a view's old rows into the rows just computed; equal rows are in neither."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from store.delta import CHANGE
from store.known_logs import PRUNED_BY
from views.engine import Engine, Scope
from views.registry import view_schema


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
    kept = old_columns(name)
    # No digest holds the cluster key, but a session that came back under another number is looked for there.
    compared = [column for column in kept if column not in schema.key and column != "task_id"]
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


def joined(engine: Engine, name: str, parts: Sequence[pa.Table]) -> pa.Table:
    """Differences of several scopes as one; a row that left one for another is an update."""
    changes = pa.concat_tables(parts)
    kinds = set(changes[CHANGE].to_pylist())
    if not {"insert", "delete"} <= kinds:
        return changes
    schema = view_schema(name)
    engine.keep("changes", changes)
    same_key = " and ".join(f"one.{column} is not distinct from other.{column}" for column in schema.key)
    has = f"exists (select 1 from changes as other where {same_key} and other.{CHANGE} = '{{kind}}')"
    columns = ", ".join(f"one.{column}" for column in schema.columns.names)
    return engine.arrow(f"""
        select {columns}, case when one.{CHANGE} = 'insert' and {has.format(kind="delete")} then 'update'
            else one.{CHANGE} end as {CHANGE}
        from changes as one where not (one.{CHANGE} = 'delete' and {has.format(kind="insert")})
    """).cast(changes.schema)


def lost_rows(engine: Engine, name: str, *, version: int, leaves: Mapping[str, int]) -> pa.Table:
    """Deletes of the rows of leaves that reach their bar no more, as `difference` has them.

    Args:
        engine: Over the pinned tables.
        name: The view, one row per leaf.
        version: The version that its rows are taken from.
        leaves: Node_id to session_seq, of sessions that nothing else touches.
    """
    if not leaves:
        return _deletes(name, None)
    scope = Scope(session_seqs=frozenset(leaves.values()))
    old = engine.select_from(name, scope, version=version, columns=old_columns(name))
    engine.keep_texts("lost_leaves", leaves)
    return _deletes(name, engine.arrow(f"select * from ({old}) where leaf_id in (select item from lost_leaves)"))


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
    placed = [column for column in PRUNED_BY if column in columns and column in schema.statistics]
    return list(dict.fromkeys([*schema.key, *placed, *compared]))
