"""What must change so that stored rows equal new ones, key by key."""

import pyarrow as pa

from store.duckdb_connection import short_connection
from store.schema import TableSchema

CHANGE = "_change"  # insert, update or delete


def changed_rows(schema: TableSchema, *, rows: pa.Table, there: pa.Table, update: bool) -> pa.Table:
    """The rows to insert and, with `update`, those to rewrite, plus `_change`; equal rows are in neither.

    Args:
        schema: The table's; its key says which rows are the same one, NULLs being equal.
        rows: What the table must hold; a key that stands twice among them is a wrong assumption of the caller's.
        there: What it holds now, at least every row with a key of `rows`.
        update: Whether a row whose content differs is rewritten, or left as it is.
    """
    same_key = " and ".join(f'there."{column}" is not distinct from rows."{column}"' for column in schema.key)
    differs = " or ".join(
        f'there."{column}" is distinct from rows."{column}"'
        for column in schema.columns.names
        if column not in schema.key
    )
    selected = ", ".join(f'rows."{column}"' for column in schema.columns.names)
    with short_connection() as connection:
        connection.register("rows", rows)
        key = ", ".join(f'"{column}"' for column in schema.key)
        twice = connection.sql(f"select {key} from rows group by all having count(*) > 1 limit 1").fetchall()
        assert not twice, f"{schema.name}: key {twice[0]} stands twice in one batch, so which row counts is unknown"
        connection.register("there", there)
        inserts = connection.sql(
            f"select {selected}, 'insert' as {CHANGE} from rows where not exists (select 1 from there where {same_key})"
        ).to_arrow_table()
        parts = [inserts]
        if update and differs:
            updates = connection.sql(
                f"select {selected}, 'update' as {CHANGE} from rows inner join there on {same_key} where {differs}"
            ).to_arrow_table()
            parts.append(updates)
    shape = pa.schema([*schema.columns, pa.field(CHANGE, pa.string())])
    return pa.concat_tables([part.cast(shape) for part in parts])
