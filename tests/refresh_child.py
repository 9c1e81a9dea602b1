"""Run as a program: refreshes a home in a process of its own, which may be killed.

python tests/refresh_child.py HOME at POINT VIEW   refreshes, and dies by SIGKILL at that point of that view
python tests/refresh_child.py HOME loop            says `ready`, then refreshes once per line that it is given and
                                                   answers with one JSON object
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import deltalake

import store.delta
import store.log_entry
from store.data_files import FileWriter
from store.delta import Tables
from store.home import Home, open_home
from store.row_files import RowFiles
from views.refresh import Chain, refresh

CHANGED = (
    "reads a feed",
    "parted the touched files",
    "writes half a data file",
    "wrote a data file",
    "writes half of the change data",
    "wrote the change data",
    "writes half of the log entry",
    "has the log entry beside",
    "linked the log entry",
    "writes a checkpoint",
    "wrote a checkpoint",
    "finished the view",
)
BUILT = (
    "makes the folder",
    "made the folder",
    "writes half a data file",
    "wrote a data file",
    "commits with delta-rs",
    "committed with delta-rs",
)
REPLACED = ("writes half a data file", "wrote a data file", "commits with delta-rs", "committed with delta-rs")
now = {"view": ""}


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL came back")


def main() -> None:
    home, mode = open_home(Path(sys.argv[1])), sys.argv[2]
    if mode == "at":
        arm(*sys.argv[3:5])
        refresh(home)
    else:
        loop(home)


def arm(point: str, view: str) -> None:
    """Patch what writes, so that it ends this process at the point."""

    def here(name: str) -> bool:
        return name == point and now["view"] == view

    refresh_view = Chain.refresh

    def refresh_and_say(self: Chain, name: str, **options: Any) -> Any:
        now["view"] = name
        result = refresh_view(self, name, **options)
        if here("finished the view"):
            die()
        return result

    Chain.refresh = refresh_and_say  # type: ignore[method-assign]
    around(Tables, "changes", after=lambda: here("reads a feed"))
    around(Tables, "create", before=lambda: here("makes the folder"), after=lambda: here("made the folder"))
    around(RowFiles, "split", after=lambda: here("parted the touched files"))
    around(
        Tables,
        "_commit",
        before=lambda: here("commits with delta-rs"),
        after=lambda: here("committed with delta-rs"),
    )
    arm_files(here)
    arm_log(here)


def around(
    owner: type, name: str, before: Callable[[], bool] = lambda: False, after: Callable[[], bool] = lambda: False
) -> None:
    method = getattr(owner, name)

    def dying(*arguments: Any, **options: Any) -> Any:
        if before():
            die()
        result = method(*arguments, **options)
        if after():
            die()
        return result

    setattr(owner, name, dying)


def cut_in_half(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def arm_files(here: Callable[[str], bool]) -> None:
    write = FileWriter.write

    def write_and_die(self: FileWriter, *arguments: Any) -> Any:
        action = write(self, *arguments)
        if here("writes half a data file"):
            cut_in_half(self.folder / action.path)
            die()
        if here("wrote a data file"):
            die()
        return action

    FileWriter.write = write_and_die  # type: ignore[method-assign]
    write_changes = store.log_entry.write_change_data

    def write_changes_and_die(root: Path, *arguments: Any) -> Any:
        action = write_changes(root, *arguments)
        if here("writes half of the change data"):
            cut_in_half(root / action["cdc"]["path"])
            die()
        if here("wrote the change data"):
            die()
        return action

    store.delta.write_change_data = write_changes_and_die  # type: ignore[attr-defined]


def arm_log(here: Callable[[str], bool]) -> None:
    fsync, link = os.fsync, os.link

    def fsync_and_die(number: int) -> None:
        fsync(number)
        if here("writes half of the log entry"):
            os.ftruncate(number, os.fstat(number).st_size // 2)
            die()

    def link_and_die(source: Any, target: Any) -> None:
        if here("has the log entry beside"):
            die()
        link(source, target)
        if here("linked the log entry"):
            die()

    class CheckpointDies(deltalake.DeltaTable):
        def create_checkpoint(self) -> None:
            if here("writes a checkpoint"):
                die()
            super().create_checkpoint()
            if here("wrote a checkpoint"):
                die()

    os.fsync, os.link = fsync_and_die, link_and_die
    store.log_entry.CHECKPOINT_EVERY = 1  # type: ignore[misc]
    store.log_entry.DeltaTable = CheckpointDies  # type: ignore[misc]


def loop(home: Home) -> None:
    lost = 0
    commit_rows = Tables.commit_rows

    def count_lost(self: Tables, *arguments: Any, **options: Any) -> Any:
        nonlocal lost
        try:
            return commit_rows(self, *arguments, **options)
        except Exception:
            lost += 1
            raise

    Tables.commit_rows = count_lost  # type: ignore[method-assign]
    print("ready", flush=True)
    for _ in sys.stdin:
        lost = 0
        results = refresh(home)
        moved = {name: [one.mode, one.inserted, one.updated, one.deleted] for name, one in results.items()}
        print(json.dumps({"views": moved, "lost_races": lost}), flush=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
