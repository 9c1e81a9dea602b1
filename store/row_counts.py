"""How many rows a table holds, from its log alone."""

import pyarrow as pa

from store.delta import Tables


def count_rows(tables: Tables, name: str, *, version: int | None = None) -> int:
    """Rows of a version, or of the latest; 0 before the first commit. No data file is opened.

    Raises:
        VersionGone: That version cannot be read any more.
    """
    if not tables.exists(name):
        return 0
    counts: list[int] = pa.table(tables.open(name, version=version).get_add_actions(flatten=True))[
        "num_records"
    ].to_pylist()
    return sum(counts)
