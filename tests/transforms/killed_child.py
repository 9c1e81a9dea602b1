"""Child process of the crash tests: ingests, and kills itself with no chance to clean up at a named point."""

import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from store.home import open_home
from transforms.ingest import ingest_ledger, ingest_paths


def main() -> None:
    home, point, what, *paths = sys.argv[1:]

    def progress(line: str) -> None:
        if line == point:
            os.kill(os.getpid(), signal.SIGKILL)

    now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
    if what == "ledger":
        ingest_ledger(open_home(home), now=now, progress=progress)
    else:
        ingest_paths(open_home(home), [Path(path) for path in paths], now=now, progress=progress)


if __name__ == "__main__":
    main()
