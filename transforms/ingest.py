"""Logs to tables: the two ways in, files and the search ledger."""

from transforms.counts import IngestReport
from transforms.drain import ingest_ledger

__all__ = ["IngestReport", "ingest_ledger"]
