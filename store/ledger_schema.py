"""The tables of the search ledger, in SQL: the lakehouse's columns, and what a running search needs beside them.

The five tables that flow on into the lakehouse take their columns from `store.schema`, so the two cannot drift.
`feed_seq` numbers their rows in the order of the commits that wrote them; an updated row gets a new number.
Columns under "ledger only" never leave it.
"""

from typing import Any

import pyarrow as pa
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.types import TypeEngine

from store.schema import TABLES

SCHEMA_VERSION = 1
FED_TABLES = ("tasks", "sessions", "nodes", "prompt_history", "change_log")
NOT_IN_THE_LEDGER = frozenset({"session_seq", "source_id"})  # an ingest gives these

metadata = MetaData()


def _column_type(kind: pa.DataType) -> TypeEngine[Any]:
    if pa.types.is_list(kind):
        return JSON(none_as_null=True)
    if pa.types.is_boolean(kind):
        return Boolean()
    if pa.types.is_floating(kind):
        return Double()
    return BigInteger() if pa.types.is_integer(kind) else Text()


def fed_columns(name: str) -> tuple[str, ...]:
    """The columns of one fed table, in the lakehouse's order and under its names."""
    return tuple(field.name for field in TABLES[name].columns if field.name not in NOT_IN_THE_LEDGER)


def _fed_table(name: str, *extra: Column[Any] | UniqueConstraint | Index, primary_key: tuple[str, ...]) -> Table:
    schema = TABLES[name].columns
    columns = [
        Column(column, _column_type(schema.field(column).type), primary_key=column in primary_key)
        for column in fed_columns(name)
    ]
    feed_seq = Column("feed_seq", BigInteger, nullable=False, unique=True)
    return Table(name, metadata, *columns, feed_seq, *extra)


ledger = Table(
    "ledger",
    metadata,
    Column("ledger_id", Text, primary_key=True),
    Column("schema_version", BigInteger, nullable=False),
    Column("feed_seq", BigInteger, nullable=False),
)

tasks = _fed_table("tasks", primary_key=("task_id",))

sessions = _fed_table(
    "sessions",
    # ledger only
    Column("seed", BigInteger, nullable=False),
    Column("group_size", BigInteger, nullable=False),
    Column("failure_reward", Double),
    Column("attempts_limit", BigInteger, nullable=False),
    Column("attempts_reserved", BigInteger, nullable=False),
    Column("attempts_settled", BigInteger, nullable=False),
    Column("next_ordinal", BigInteger, nullable=False),
    Column("best_fitness", Double),
    Column("best_node_id", Text),
    Column("status_reason", Text),
    Column("model_dir", Text),
    primary_key=("session_id",),
)

nodes = _fed_table(
    "nodes",
    # ledger only
    Column("ordinal", BigInteger, nullable=False),
    Column("sibling", BigInteger, nullable=False),
    UniqueConstraint("session_id", "ordinal", "sibling"),
    Index("nodes_of_a_session", "session_id", "step"),
    primary_key=("node_id",),
)

prompt_history = _fed_table("prompt_history", primary_key=("node_id", "turn"))

change_log = _fed_table(
    "change_log",
    Index("changes_of_a_field", "session_id", "node_id", "field", "step", "recorded_step", "n", unique=True),
    primary_key=(),
)

claims = Table(
    "claims",
    metadata,
    Column("claim_id", Text, primary_key=True),
    Column("session_id", Text, ForeignKey("sessions.session_id"), nullable=False),
    Column("ordinal", BigInteger, nullable=False),
    Column("parent_id", Text),
    Column("group_size", BigInteger, nullable=False),
    Column("num_committed", BigInteger, nullable=False),
    Column("prompt", JSON, nullable=False),
    Column("prompt_digest", Text),
    Column("seed", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("worker_id", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("lease_until", Double, nullable=False),
    Column("heartbeat_at", Double, nullable=False),
    Column("tries", BigInteger, nullable=False),
    Column("selected_step", BigInteger),
    Column("policy_numbers", JSON, nullable=False),
    UniqueConstraint("session_id", "ordinal"),
    Index("claims_by_state", "session_id", "state", "ordinal"),
)

proposals = Table(
    "proposals",
    metadata,
    Column("claim_id", Text, ForeignKey("claims.claim_id"), primary_key=True),
    Column("sibling", BigInteger, primary_key=True),
    Column("content", JSON, nullable=False),
)

commit_conflicts = Table(
    "commit_conflicts",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("ordinal", BigInteger, primary_key=True),
    Column("sibling", BigInteger, primary_key=True),
    Column("digest_seen", Text, primary_key=True),
    Column("digest_stored", Text, nullable=False),
    Column("recorded_at", Double, nullable=False),
)

FED: dict[str, Table] = {
    "tasks": tasks,
    "sessions": sessions,
    "nodes": nodes,
    "prompt_history": prompt_history,
    "change_log": change_log,
}
