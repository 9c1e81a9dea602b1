"""The access log: who took what out, for what, under which policy; refused requests too."""

from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa

from store.delta import Tables
from store.ids import canonical_json, stable_id


def log_access(
    tables: Tables,
    *,
    principal: str,
    purpose: str,
    relation: str,
    policy_digest: str,
    num_allowed: int,
    left_out: Mapping[str, int],
    now: datetime,
) -> None:
    """Append one row to `access_log`; the same request at the same time is one row.

    Args:
        tables: Where.
        principal: Who asked.
        purpose: For what.
        relation: Table or view.
        policy_digest: `Policy.digest` of the rules that answered.
        num_allowed: Rows handed out; 0 for a refusal.
        left_out: Reason to number of rows held back.
        now: When.
    """
    row = {
        "principal": principal,
        "purpose": purpose,
        "relation": relation,
        "policy_digest": policy_digest,
        "num_allowed": num_allowed,
        "left_out": canonical_json(dict(left_out)),
        "recorded_at": now,
    }
    row["access_id"] = stable_id("access", canonical_json({**row, "recorded_at": now.isoformat()}))
    tables.upsert("access_log", pa.Table.from_pylist([row], schema=tables.schema("access_log").columns))
