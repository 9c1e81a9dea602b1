"""Run as a program: refreshes a home and is killed by SIGKILL right after so many commits.

python tests/refresh_killed.py HOME COMMITS
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from store.delta import Commit, Tables
from store.home import open_home
from views.refresh import refresh


def main() -> None:
    home, left = open_home(Path(sys.argv[1])), int(sys.argv[2])
    commit_rows = Tables.commit_rows

    def commit_then_die(self: Tables, *arguments: Any, **options: Any) -> Commit:
        nonlocal left
        commit = commit_rows(self, *arguments, **options)
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return commit

    Tables.commit_rows = commit_then_die  # type: ignore[method-assign]
    refresh(home)


if __name__ == "__main__":
    main()
