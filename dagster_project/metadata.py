"""What an asset says of its Delta table: rows, place, columns, and the last version that changed a row."""

from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    from store.delta import Tables

NEVER_COMMITTED = "none"  # data version of a table that nothing was written to yet


def data_version(tables: "Tables", name: str) -> str:
    """The last Delta version that changed a row, as Dagster's data version.

    Empty and compaction commits do not move it, so that a refresh that changed nothing rebuilds nothing.
    """
    version = tables.data_version(name)
    return NEVER_COMMITTED if version is None else str(version)


def column_schema(tables: "Tables", name: str) -> dg.TableSchema:
    """The declared columns with their meaning."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                str(field.type),
                description=(field.metadata or {}).get(b"about", b"").decode() or None,
            )
            for field in tables.schema(name).columns
        ]
    )


def table_result(tables: "Tables", name: str, **more: Any) -> dg.MaterializeResult:
    """What a step yields for a table or view that is now up to date; `more` is added to the metadata."""
    from store.row_counts import count_rows

    version = tables.version(name)
    at = {} if version is None else {"delta_version": version}
    return dg.MaterializeResult(
        asset_key=name,
        metadata={
            "dagster/row_count": count_rows(tables, name),
            "dagster/uri": str(tables.path(name)),
            "dagster/column_schema": column_schema(tables, name),
            **at,
            **more,
        },
        data_version=dg.DataVersion(data_version(tables, name)),
    )
