"""A search that is killed with SIGKILL, anywhere, goes on as if nothing had happened."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from search_child import start_session, work
from store.ledger import open_ledger
from store.ledger_schema import FED_TABLES

ATTEMPTS = 14  # the root, three groups of four, and a last one of two
CHILD = Path(__file__).parent.parent / "search_child.py"
ROOT = CHILD.parent.parent
UNORDERED = {"seconds", "tokens"}  # what two equal runs may differ in

DEATHS = [
    ("after claim", 1),
    ("after claim", 3),
    ("after proposals saved", 1),
    ("after proposals saved", 4),
    ("after judged", 1),
    ("after judged", 7),
    ("mid-commit", 1),
    ("mid-commit", 6),
    ("mid-commit", 15),
    ("after commit", 5),
]


def everything(url):
    """All fed rows of a ledger by table, without times and feed numbers, in the order in which they were written."""
    with open_ledger(url) as ledger:
        rows = {table: [] for table in FED_TABLES}
        for entry in ledger.feed(0, 100_000):
            rows[entry.table].append({key: value for key, value in entry.row.items() if key not in UNORDERED})
        rows["nodes"].sort(key=lambda row: row["step"])
        return rows


def start(folder):
    url = f"sqlite:///{folder}/ledger.sqlite"
    with open_ledger(url, ledger_id="ledger_test") as ledger:
        start_session(ledger, "s1", ATTEMPTS)
    return url


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken")
    url = start(folder)
    work(url, "s1", folder / "paid")
    return everything(url)


def kill_at(url, folder, point, arrivals):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    child = subprocess.run(
        [sys.executable, str(CHILD), url, "s1", str(folder / "paid"), point, str(arrivals)],
        env=environment,
        capture_output=True,
        timeout=60,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()


def test_the_unbroken_search_is_one_worth_comparing_with(unbroken):
    nodes = unbroken["nodes"]
    assert [node["step"] for node in nodes] == list(range(ATTEMPTS + 1))
    assert len({node["parent_id"] for node in nodes}) >= 3
    assert len({node["failure_class"] for node in nodes}) >= 2


@pytest.mark.parametrize(("point", "arrivals"), DEATHS)
def test_a_search_killed_at_a_named_point_ends_as_the_unbroken_one(unbroken, tmp_path, point, arrivals):
    url = start(tmp_path)
    kill_at(url, tmp_path, point, arrivals)
    work(url, "s1", tmp_path / "paid")
    assert everything(url) == unbroken
    paid = (tmp_path / "paid").read_text().split()
    assert len(paid) == len(set(paid)) == ATTEMPTS


def test_a_search_that_is_killed_again_and_again_still_ends_as_the_unbroken_one(unbroken, tmp_path):
    url = start(tmp_path)
    for point, arrivals in [("mid-commit", 2), ("after proposals saved", 1), ("after judged", 3), ("after commit", 4)]:
        kill_at(url, tmp_path, point, arrivals)
    work(url, "s1", tmp_path / "paid")
    assert everything(url) == unbroken
    paid = (tmp_path / "paid").read_text().split()
    assert len(paid) == len(set(paid)) == ATTEMPTS


def test_two_living_workers_share_a_session_without_losing_or_doubling_a_node(tmp_path):
    url = start(tmp_path)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
    children = [
        subprocess.Popen(
            [sys.executable, str(CHILD), url, "s1", str(tmp_path / f"paid{number}")],
            env=environment,
            stderr=subprocess.PIPE,
        )
        for number in range(2)
    ]
    errors = [child.communicate(timeout=60)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0], errors
    nodes = everything(url)["nodes"]
    assert [node["step"] for node in nodes] == list(range(ATTEMPTS + 1))
    assert len({node["node_id"] for node in nodes}) == ATTEMPTS + 1
    assert all(node["selected_step"] < node["step"] for node in nodes[1:])
    root = nodes[0]
    assert root["visits"] == ATTEMPTS + 1
