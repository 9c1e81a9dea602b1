"""Policies by name: each is a pure function from frontier rows to a choice of parent."""

from functools import partial

from kernel_search.policies.greedy import choose_greedy
from kernel_search.search_settings import SearchSettings
from store.errors import UnknownName
from store.ledger_rows import Chooser

POLICIES = ("greedy",)

__all__ = ["POLICIES", "make_policy"]


def make_policy(name: str, settings: SearchSettings) -> Chooser:
    """The policy of that name.

    Raises:
        UnknownName: There is none; the message lists those there are.
    """
    if name not in POLICIES:
        raise UnknownName(f"no policy is named {name!r}; there are {', '.join(POLICIES)}.")
    return partial(choose_greedy, settings=settings.greedy)
