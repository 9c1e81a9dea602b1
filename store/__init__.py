"""Tables and engines: schemas, Delta verbs, the DuckDB engine, artifacts, and the search ledger."""
