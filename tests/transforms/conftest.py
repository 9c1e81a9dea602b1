from pathlib import Path

import pytest

from small_logs import NOW
from store.home import Home
from transforms.counts import IngestReport
from transforms.ingest import ingest_paths


@pytest.fixture
def ingest(home: Home):
    def run(*paths: Path, **options: object) -> IngestReport:
        return ingest_paths(home, paths, now=NOW, **options)

    return run
