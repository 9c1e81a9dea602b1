"""Judges hostile Triton kernel candidates without a GPU; see judge.py for the order of checks.

`Judge` is looked up when asked for, so that the sandboxed servers, which import this package too, hold neither the
tasks nor their references.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_search.judge.judge import Judge

__all__ = ["Judge"]


def __getattr__(name: str) -> Any:
    if name == "Judge":
        from kernel_search.judge.judge import Judge

        return Judge
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
