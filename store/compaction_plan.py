"""Which files a compaction rewrites, and which rows go together.

Files that lie well are *settled*; the rest (small, overlapping, far too large) are *loose*. A loose file is taken
apart: each of its sessions goes to the settled file whose range holds it, which is then rewritten, or into the gap
between two. Neighbouring parts make a *run*, which is written anew as files of the target size. So a compaction
rewrites what loose rows touch and leaves the rest of a large table alone; where nothing would be joined or
parted it does nothing.
"""

import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from store.layout import DataFile, Layout, settled_files


@dataclass
class Run:
    """A stretch of the axis that is written anew.

    `whole` are files that lie in it entirely; of the files in `parts` it takes the rows of its `sessions` only.
    """

    whole: list[DataFile] = field(default_factory=list)
    parts: set[DataFile] = field(default_factory=set)
    sessions: set[int] = field(default_factory=set)

    @property
    def files(self) -> set[DataFile]:
        """Every file that it reads."""
        return {*self.whole, *self.parts}


def loose_files(layout: Layout) -> list[DataFile]:
    """The files that do not lie well."""
    return sorted(set(layout.files) - set(settled_files(layout)))


def plan_runs(layout: Layout, sessions: Mapping[DataFile, Iterable[int]]) -> list[Run]:
    """The runs to write anew, in order along the axis; none where nothing would be gained.

    Args:
        layout: Of a table with a session_seq.
        sessions: Every loose file with the places on the axis of its rows.
    """
    settled = settled_files(layout)
    firsts = [file.first for file in settled]
    places: dict[DataFile, dict[int, tuple[int, bool]]] = {}
    touched: set[int] = set()
    for file, numbers in sessions.items():
        places[file] = {}
        for session in numbers:
            before = bisect.bisect_right(firsts, session) - 1
            is_inside = before >= 0 and session <= settled[before].last
            places[file][session] = (before, is_inside)
            if is_inside:
                touched.add(before)
    untouched = [number for number in range(len(settled)) if number not in touched]
    runs: dict[int, Run] = {}
    for number in sorted(touched):
        runs.setdefault(bisect.bisect_left(untouched, number), Run()).whole.append(settled[number])
    for file, placed in places.items():
        for session, (before, is_inside) in placed.items():
            after = bisect.bisect_left(untouched, before if is_inside else before + 1)
            run = runs.setdefault(after, Run())
            run.parts.add(file)
            run.sessions.add(session)
    return [run for group in _groups(runs) if _is_worth_it(group, layout) for run in group]


def _groups(runs: dict[int, Run]) -> list[list[Run]]:
    """Runs that share a file can only be written together, since the file is removed as a whole."""
    groups: list[list[Run]] = []
    owner: dict[DataFile, list[Run]] = {}
    for _, run in sorted(runs.items()):
        joined = [run]
        for group in {id(owner[file]): owner[file] for file in run.parts if file in owner}.values():
            joined = [*group, *joined]
            groups = [other for other in groups if other is not group]
        groups.append(joined)
        for member in joined:
            for file in member.parts:
                owner[file] = joined
    return groups


def _is_worth_it(group: list[Run], layout: Layout) -> bool:
    """A file by itself is only worth parting: where it lies on both sides of settled ones, or is far too large."""
    files = {file for run in group for file in run.files}
    if len(files) > 1 or len(group) > 1:
        return True
    (file,) = files
    return layout.is_too_large(file)
