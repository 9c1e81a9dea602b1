"""Shared by all tests: a clean environment, caches that nobody else sees, a home of one's own."""

import os
from pathlib import Path

import pytest

from store.home import Home, open_home

# Before any test imports a library that reads them: no hub, no telemetry, one thread for each process.
os.environ.update(
    HF_HUB_OFFLINE="1",
    DAGSTER_DISABLE_TELEMETRY="1",
    GX_ANALYTICS_ENABLED="false",
    OMP_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
    TRITON_DEFAULT_FP_FUSION="1",
)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

OURS = ("ESPALIER_HOME", "ESPALIER_CONF", "ESPALIER_LEDGER_URL", "DAGSTER_HOME", "COLUMNS")


@pytest.fixture(scope="session", autouse=True)
def caches_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Hugging Face's caches lie in this run's temporary folder, so that no earlier run's data comes back."""
    folder = tmp_path_factory.mktemp("huggingface")
    os.environ["HF_HOME"] = str(folder)
    os.environ["HF_DATASETS_CACHE"] = str(folder / "datasets")


@pytest.fixture(autouse=True)
def settings_of_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that the person who runs the tests has set must not steer them."""
    for name in OURS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A new, empty home."""
    return open_home(tmp_path / "home")


@pytest.fixture(scope="session")
def sample_logs() -> Path:
    """The folder of real logs; skips where ESPALIER_SAMPLE_LOGS does not name one."""
    named = os.environ.get("ESPALIER_SAMPLE_LOGS")
    if not named:
        pytest.skip("needs real logs: set ESPALIER_SAMPLE_LOGS to their folder")
    folder = Path(named)
    if not folder.is_dir():
        pytest.fail(f"ESPALIER_SAMPLE_LOGS names {folder}, which is no folder")
    return folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The laws' long histories go first: last, one process would be at them alone."""
    items.sort(key=lambda item: not item.path.name.startswith("test_law"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests counted (`record_property`), from every worker."""
    for reports in list(terminalreporter.stats.values()):
        for report in reports:
            if getattr(report, "when", None) == "call" and report.user_properties:
                terminalreporter.section(report.nodeid.split("::")[-1], sep="-")
                for name, value in report.user_properties:
                    terminalreporter.write_line(f"{name}: {value}")
