"""Logs to tables: readers, record types, ingest, quarantine, as-of reads."""
