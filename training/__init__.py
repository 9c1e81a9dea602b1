"""Views to datasets to models: snapshots, TRL jobs, registry."""
