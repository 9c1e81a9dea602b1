"""Changes of a finished session: each takes the session's next step as the step at which it was written down.

A line that states no recorded_step has no clock of its own to be known again by. It is known by what it says: the
n-th line of a file that says so is stored already where the tables hold n rows that say so.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from transforms.records import ChangeRecord
from transforms.stored import Stored
from transforms.structure import Row


class Corrections:
    """What is said and how far each session has come, at one place of the logs."""

    def __init__(self, stored: Stored) -> None:
        self.last_node_step: dict[str, int] = {}
        self.last_recorded_step: dict[str, int] = {}
        self.rows: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in stored.nodes.values():
            self.add_node(row)
        for row in stored.changes.values():
            if row["origin"] == "recorded":
                self.add_change(row)

    def add_node(self, row: Row) -> None:
        """Pass a node; one without a step gets the one after the last, as `number_steps` will give it."""
        last = self.last_node_step.get(row["session_id"], -1)
        self.last_node_step[row["session_id"]] = max(last, last + 1 if row["step"] is None else row["step"])

    def add_change(self, row: Row) -> None:
        """Pass a recorded change."""
        last = self.last_recorded_step.get(row["session_id"], -1)
        self.last_recorded_step[row["session_id"]] = max(last, row["recorded_step"])
        self.rows[_said(row)].append(row)

    def recorded_step(self, record: ChangeRecord) -> int:
        """The step at which a correction is written down here: the next one of its session."""
        clocks = (self.last_node_step, self.last_recorded_step)
        return max(record.step, *(last.get(record.session_id, -1) + 1 for last in clocks))

    def stored_row(self, record: ChangeRecord, row: Row) -> Row | None:
        """The row that holds this line already, `row` being what it says; None: it is new."""
        same: Iterable[Row] = self.rows[_said(row)]
        if not record.has_nodes:  # corrections on their own: another file that says the same says it anew
            same = (known for known in same if known["source_id"] == row["source_id"])
        return next((known for place, known in enumerate(same) if place == record.said_before), None)


def _said(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("session_id", "node_id", "field", "step", "new_value"))
