"""The two clocks of a change: the step from which a value holds, and the step at which it was written down."""

# What the search knew at a step. It was known then or it was not, so nothing of it can be written down later.
STATE_FIELDS = frozenset({"visits", "total_reward", "island", "best_so_far", "budget_left"})
ENDED = frozenset({"done", "failed"})  # statuses of a session that commits no further step


def is_correction(field: str, session_status: str | None) -> bool:
    """Whether a change that states no recorded_step corrects a finished session: it is written down after its end."""
    return field not in STATE_FIELDS and session_status in ENDED


def clock_fault(field: str, step: int, recorded_step: int) -> str | None:
    """Why a change with these clocks cannot be taken; None where it can."""
    if step > recorded_step:
        return f"step {step} is later than recorded_step {recorded_step}"
    if field in STATE_FIELDS and step < recorded_step:
        return (
            f"{field} is what the search knew at step {step} and was written down at {recorded_step}; its two clocks "
            "must be equal"
        )
    return None
