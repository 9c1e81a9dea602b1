"""What a refresh would do, without doing it."""

from dataclasses import dataclass

from store.delta import Tables, plan_again_until_committed
from store.home import Home
from views.definition import table_inputs
from views.planner import Plan
from views.refresh import Chain, with_inputs
from views.registry import VIEW_ORDER


@dataclass(frozen=True)
class Explanation:
    """The plan of one view. `changed_keys` is None where everything is computed again.

    `refreshed_first` names the maintained relations that would be refreshed before it; what they change may add keys.
    """

    name: str
    mode: str
    reason: str
    changed_keys: int | None
    input_versions: dict[str, int | None]
    refreshed_first: tuple[str, ...]


def explain(home: Home, name: str) -> Explanation:
    """Plan the refresh of a view against the tables as they are now.

    Raises:
        UnknownName: There is no such view.
        CommitConflict: Refreshes kept running ahead of it.
    """
    order = with_inputs([name])

    def attempt() -> dict[str, Plan]:
        chain = Chain(Tables(home), order)
        try:
            return {view: chain.planner.plan(view) for view in order}
        finally:
            chain.close()

    plans = plan_again_until_committed(attempt)
    plan = plans[name]
    first = tuple(view for view in VIEW_ORDER if view in table_inputs(name) and plans[view].mode != "none")
    mode, reason = plan.mode, plan.reason
    if first and mode == "none":
        mode, reason = "incremental", "inputs are refreshed first"
    if first and mode == "incremental":
        verb = "is" if len(first) == 1 else "are"
        reason = f"{reason}; {', '.join(first)} {verb} refreshed first and may touch more"
    return Explanation(name, mode, reason, plan.changed_keys, plan.input_versions, first)
