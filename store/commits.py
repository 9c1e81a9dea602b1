"""What every Delta commit carries, and how a commit that lost a race is planned again."""

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from deltalake import CommitProperties, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from store.errors import CommitConflict
from store.ids import canonical_json

PATIENCE_SECONDS = 60.0
COMPACTION = "compaction"  # key of userMetadata: what a compaction did
OF_ONE_COMMIT = {"data_version", COMPACTION}  # keys that speak of their own commit; the next one does not repeat them
Result = TypeVar("Result")


class LostRace(Exception):
    """Another writer committed between planning and committing; plan again."""


@contextlib.contextmanager
def lost_races() -> Iterator[None]:
    """Turns what delta-rs raises when somebody else committed first into LostRace."""
    try:
        yield
    except CommitFailedError as error:
        raise LostRace(str(error)) from error
    except DeltaError as error:
        if "conflict" in str(error).lower() or "transaction" in str(error).lower():
            raise LostRace(str(error)) from error
        raise


def plan_again_until_committed(attempt: Callable[[], Result], *, patience_seconds: float = PATIENCE_SECONDS) -> Result:
    """Run a plan-and-commit function again, with jitter, for as long as it loses races.

    Raises:
        CommitConflict: It still lost after `patience_seconds`.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(LostRace),
        wait=wait_random_exponential(multiplier=0.05, max=2.0),
        stop=stop_after_delay(patience_seconds),
    )
    try:
        return retrying(attempt)
    except RetryError as error:
        raise CommitConflict(
            f"another writer kept committing first for {patience_seconds:.0f} s; run the command again."
        ) from error


def commit_properties(
    metadata: dict[str, Any], data_version: int, transaction: tuple[str, int] | None = None
) -> CommitProperties:
    """The properties of one commit: `userMetadata` as canonical JSON, and the transaction (application, n)."""
    text = metadata_text(metadata, data_version)
    transactions = [Transaction(transaction[0], transaction[1])] if transaction else None
    return CommitProperties(custom_metadata={"userMetadata": text}, max_commit_retries=0, app_transactions=transactions)


def metadata_text(metadata: dict[str, Any], data_version: int) -> str:
    """What stands under `userMetadata` of a commit."""
    return canonical_json({**metadata, "data_version": data_version})


def user_metadata(entry: dict[str, Any]) -> dict[str, Any]:
    """`userMetadata` of one history entry; {} where it has none, or another program's text."""
    text = entry.get("userMetadata")
    try:
        value = json.loads(text) if text else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def version_ranges(versions: list[int]) -> str:
    """Ascending versions as text for a person: `0 to 3, 7`."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and version == parts[-1][1] + 1:
            parts[-1][1] = version
        else:
            parts.append([version, version])
    return ", ".join(f"{first} to {last}" if first != last else str(first) for first, last in parts)
