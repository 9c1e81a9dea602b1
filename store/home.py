"""Where everything of one installation lies: one folder, `--home` or ESPALIER_HOME, default ./data."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from store.errors import HomeNotUsable

# delta-rs reads these as something else, and would write beside the folder or not at all.
NOT_IN_A_PATH = re.compile(r"[\[\]\\^|\x00-\x1f\x7f\ud800-\udfff]|%[0-9A-Fa-f]{2}")


@dataclass(frozen=True)
class Home:
    """The folder that holds tables, ledger, artifacts, datasets, models and Dagster's history."""

    path: Path

    @property
    def tables(self) -> Path:
        """Every Delta table, maintained relation and view, one folder each."""
        return self.path / "tables"

    @property
    def ledger_path(self) -> Path:
        """The SQLite file of the search ledger."""
        return self.path / "ledger.sqlite"

    @property
    def ledger_url(self) -> str:
        """SQLAlchemy address of the search ledger; ESPALIER_LEDGER_URL names another."""
        return os.environ.get("ESPALIER_LEDGER_URL") or f"sqlite:///{self.ledger_path}"

    @property
    def artifacts(self) -> Path:
        """Artifacts over 16 KiB, compressed, under their SHA-256."""
        return self.path / "artifacts"

    @property
    def datasets(self) -> Path:
        """Snapshots that the pipeline itself exports."""
        return self.path / "datasets"

    @property
    def models(self) -> Path:
        """Trained models, one folder each."""
        return self.path / "models"

    @property
    def runs(self) -> Path:
        """Work folders and logs of training runs."""
        return self.path / "runs"

    @property
    def inbox(self) -> Path:
        """Logs dropped here are ingested by a Dagster sensor."""
        return self.path / "inbox"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME of this installation."""
        return self.path / "dagster"


def default_home() -> Path:
    """The folder that `--home` defaults to."""
    return Path(os.environ.get("ESPALIER_HOME") or "data")


def open_home(path: Path | str | None = None) -> Home:
    """Open a home folder and create what is missing in it.

    Raises:
        HomeNotUsable: The folder cannot be created or written, or its path cannot hold tables.
    """
    root = Path(path if path is not None else default_home()).expanduser().absolute()
    if found := NOT_IN_A_PATH.search(str(root)):
        raise HomeNotUsable(
            f"home {str(root)!r} has {found.group()!r} in its path, which Delta tables cannot lie under; name another "
            "with --home DIR or ESPALIER_HOME."
        )
    home = Home(root)
    try:
        for folder in (home.tables, home.artifacts, home.datasets, home.models, home.runs, home.inbox, home.dagster):
            folder.mkdir(parents=True, exist_ok=True)
        probe = root / f".write-probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise HomeNotUsable(
            f"home {root} cannot be written ({error.strerror}); name another with --home DIR or ESPALIER_HOME."
        ) from error
    return home
