"""`make ui`: a page on a free port, and nothing left behind when it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from dagster_project.instance import prepare_dagster_home
from dagster_project.ui import free_port, wait_until_up
from process_watch import is_alive, wait_for
from store.errors import PipelineError, WrongUse


@pytest.fixture
def taken_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_port_that_is_named_and_taken_is_one_clear_error(taken_port):
    with pytest.raises(WrongUse, match=f"port {taken_port} is taken; name another with --port"):
        free_port(taken_port)


def test_without_a_name_the_first_free_port_is_taken(monkeypatch, taken_port):
    monkeypatch.setattr("dagster_project.ui.FIRST_PORT", taken_port)
    assert free_port(None) > taken_port


def test_the_home_gets_the_settings_of_the_repository(home, monkeypatch):
    for name in ("DAGSTER_HOME", "DAGSTER_DISABLE_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)
    folder = prepare_dagster_home(home)
    settings = yaml.safe_load((folder / "dagster.yaml").read_text())
    assert folder == home.dagster
    assert settings["telemetry"] == {"enabled": False}
    assert os.environ["DAGSTER_HOME"] == str(home.dagster)


def test_while_it_starts_it_says_how_long_it_has_taken(home, monkeypatch, capsys):
    monkeypatch.setattr("dagster_project.ui.START_SECONDS", 1.0)
    monkeypatch.setattr("dagster_project.ui.LINE_EVERY_SECONDS", 0.2)
    with pytest.raises(PipelineError, match="did not answer within 1 s"):
        wait_until_up(0, [], home)
    assert "still starting, 0 s" in capsys.readouterr().out


def descendants(process_id):
    """Ids of all processes that this one started, and that those started."""
    children = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:  # ended since the listing
            continue
        children.setdefault(int(fields[1]), []).append(int(status.parent.name))
    found = list(children.get(process_id, []))
    for child in found:
        found += children.get(child, [])
    return found


@pytest.mark.slow
def test_the_page_answers_and_leaves_no_process_behind(tmp_path):
    home, output = tmp_path / "home", tmp_path / "ui.out"
    with output.open("w") as written:
        page = subprocess.Popen(
            [sys.executable, "-m", "dagster_project.ui", "--home", str(home)], stdout=written, stderr=written
        )
    try:
        address = wait_for(lambda: re.search(r"http://127\.0\.0\.1:\d+", output.read_text()), seconds=120).group()
        with urllib.request.urlopen(f"{address}/server_info", timeout=10) as answer:
            assert b"dagster_webserver_version" in answer.read()
        started = descendants(page.pid)
        assert len(started) >= 4  # two leashes, the page, the daemon
    finally:
        page.send_signal(signal.SIGTERM)
    assert page.wait(timeout=60) == 0
    assert output.read_text().count("stopping …") == 1
    wait_for(lambda: not any(is_alive(process_id) for process_id in started))
