"""How a table's files lie, from the Delta log's statistics alone: which are small, which overlap.

Files of a table with a `session_seq` lie on one axis, each from its least to its greatest session_seq. A lookup of
one session opens every file whose range holds it, so a good layout has files of about the target size whose
ranges do not overlap. Two files may share a session at their ends: one that is larger than a file.
"""

import bisect
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from deltalake import DeltaTable

from store.storage_settings import CompactWhen, FileSettings

AXIS = "session_seq"
NO_SESSION = -1  # where rows without a session_seq lie; real ones begin at 0
OVERSIZED = 4  # times the target: a file that is worth cutting


@dataclass(frozen=True, order=True)
class DataFile:
    """One data file: where it lies on the axis (0 to 0 in a table without one), and how large it is."""

    first: int
    last: int
    path: str  # as the log has it: relative to the table
    size_bytes: int
    num_rows: int


@dataclass(frozen=True)
class Layout:
    """The data files of one version of a table."""

    files: tuple[DataFile, ...]
    is_clustered: bool
    target_bytes: int
    small_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)

    @property
    def num_small(self) -> int:
        """Files below the share of the target that counts as small."""
        return sum(file.size_bytes < self.small_bytes for file in self.files)

    @property
    def num_large(self) -> int:
        """Files far above the target that could be cut between sessions: a merge writes one for all that it touched."""
        return sum(self.is_too_large(file) for file in self.files)

    def is_too_large(self, file: DataFile) -> bool:
        """Whether a file is so large that it is worth cutting, and can be."""
        return file.size_bytes > OVERSIZED * self.target_bytes and file.first < file.last

    @cached_property
    def files_per_lookup(self) -> int:
        """How many files a lookup of one session opens in the worst case; a table without sessions is read whole."""
        if not self.is_clustered:
            return len(self.files)
        steps = sorted([(file.first, 0) for file in self.files] + [(file.last, 1) for file in self.files])
        worst = depth = 0
        for _, is_end in steps:
            depth += -1 if is_end else 1
            worst = max(worst, depth)
        return worst

    @cached_property
    def mean_files_per_lookup(self) -> float | None:
        """The same on average over the sessions that the ranges span; None where there is no file."""
        if not self.files:
            return None
        if not self.is_clustered:
            return float(len(self.files))
        steps = sorted([(file.first, 1) for file in self.files] + [(file.last + 1, -1) for file in self.files])
        opened = sessions = depth = 0
        for (at, change), (following, _) in zip(steps, [*steps[1:], steps[-1]], strict=True):
            depth += change
            opened += depth * (following - at)
            sessions += (following - at) if depth else 0
        return opened / sessions

    def needs_compaction(self, when: CompactWhen) -> str | None:
        """Why the table should be compacted; None where it is good as it is."""
        if self.num_small > when.small_files:
            return f"{self.num_small} small files (at most {when.small_files})"
        if self.num_large > when.large_files:
            return f"{self.num_large} files far too large (at most {when.large_files})"
        if self.is_clustered and self.files_per_lookup > when.files_per_lookup:
            return f"a lookup opens {self.files_per_lookup} files (at most {when.files_per_lookup})"
        return None


def read_layout(table: DeltaTable, sort: tuple[str, ...], settings: FileSettings) -> Layout:
    """The layout of the version that a handle stands at; no data file is opened.

    A table that is sorted by something else first (task_scores, by its tasks) has small files like those along the
    axis, and is otherwise kept like a table without one.
    """
    has_axis = any(field.name == AXIS for field in table.schema().fields)
    is_clustered = has_axis and sort[0] == AXIS
    actions = pa.table(table.get_add_actions(flatten=True))
    files = []
    for action in actions.to_pylist():
        first, last = (action.get(f"{end}.{AXIS}") for end in ("min", "max")) if is_clustered else (0, 0)
        has_no_session = first is None or bool(action.get(f"null_count.{AXIS}"))
        files.append(
            DataFile(
                first=NO_SESSION if has_no_session else first,
                last=NO_SESSION if last is None else last,
                path=action["path"],
                size_bytes=action["size_bytes"],
                num_rows=action["num_records"],
            )
        )
    target = settings.target_bytes(is_clustered=has_axis, table_bytes=sum(file.size_bytes for file in files))
    return Layout(tuple(sorted(files)), is_clustered, target, int(target * settings.small_share))


def settled_files(layout: Layout) -> list[DataFile]:
    """Files that lie well: of a good size, none overlapping another, sorted along the axis; the larger go first."""
    chosen: list[DataFile] = []
    for file in sorted(layout.files, key=lambda file: (-file.size_bytes, file)):
        if file.size_bytes < layout.small_bytes:
            break
        place = bisect.bisect(chosen, file)  # what does not overlap its neighbours overlaps nothing
        if not layout.is_too_large(file) and not any(
            _overlap(file, other) for other in chosen[max(place - 1, 0) : place + 1]
        ):
            chosen.insert(place, file)
    return chosen


def _overlap(one: DataFile, other: DataFile) -> bool:
    """Whether two files share more of the axis than an end."""
    return one.first < other.last and other.first < one.last
