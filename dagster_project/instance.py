"""Dagster's own store of one home: run history, sensor cursors, and the settings it starts with."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from store.home import Home
from store.settings import conf_folder

if TYPE_CHECKING:
    from dagster import DagsterInstance

SETTINGS_FILE = "dagster.yaml"


def prepare_dagster_home(home: Home) -> Path:
    """Make <home>/dagster ready: our settings file in it, telemetry off for this process and its children."""
    shutil.copyfile(conf_folder() / SETTINGS_FILE, home.dagster / SETTINGS_FILE)
    os.environ["DAGSTER_HOME"] = str(home.dagster)
    os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"
    return home.dagster


def open_instance(home: Home) -> "DagsterInstance":
    """The persistent instance of a home; `make run` writes its history here and `make ui` shows it."""
    import dagster as dg

    return dg.DagsterInstance.from_config(str(prepare_dagster_home(home)))
