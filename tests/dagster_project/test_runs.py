"""Runs of the graph on a small ledger: what they build, what they leave alone, what a failed check stops."""

import shutil

import dagster as dg
import pyarrow as pa
import pytest

from dagster_project.definitions import defs
from dagster_project.instance import open_instance
from dagster_project.loop_runs import StageFailed, metadata_of, reason, run_job
from dagster_project.resources import HomeResource
from ledger_world import answer, claim_from, commit_root, start, verdict
from store.delta import CHANGE, Tables
from store.home import open_home
from store.ledger import open_ledger
from views.registry import declare_views

DATASETS = ("sft_dataset", "dpo_dataset", "grpo_dataset", "value_dataset")


def grow(home, session_id, fitnesses):
    """A session of its own: a root, and one sibling per fitness from one prompt."""
    with open_ledger(home) as ledger:
        start(ledger, session_id=session_id, group_size=len(fitnesses))
        commit_root(ledger, session_id)
        claim = claim_from(ledger, session_id)
        for sibling, fitness in enumerate(fitnesses):
            said = answer(f"{session_id} edit {sibling}")
            ledger.commit_node(claim, sibling, said, verdict(fitness, fitness))


def run(job, home, instance):
    return run_job(defs, job, instance=instance, resources={"home": HomeResource(path=str(home.path))})


def run_to_its_end(job, home, instance):
    """Run a job that may fail."""
    return defs.resolve_job_def(job).execute_in_process(
        instance=instance, resources={"home": HomeResource(path=str(home.path))}, raise_on_error=False
    )


def built(result):
    return {event.asset_key.to_user_string() for event in result.get_asset_materialization_events()}


def versions(instance, *assets):
    return {
        asset: instance.get_latest_materialization_event(dg.AssetKey(asset)).asset_materialization.tags[
            "dagster/data_version"
        ]
        for asset in assets
    }


@pytest.fixture(scope="module")
def built_once(tmp_path_factory):
    """A home in which one small search went all the way to snapshots, and what that run said."""
    home = open_home(tmp_path_factory.mktemp("built") / "home")
    grow(home, "s1", [0.9, 0.5])
    with open_instance(home) as instance:
        return home, run("snapshots", home, instance)


@pytest.fixture
def home(tmp_path, built_once):
    """A copy of that home, Dagster's history included."""
    shutil.copytree(built_once[0].path, tmp_path / "home")
    return open_home(tmp_path / "home")


@pytest.fixture
def instance(home):
    with open_instance(home) as persistent:
        yield persistent


def test_the_ledger_becomes_tables_views_and_snapshots(built_once):
    first_run = built_once[1]
    rows = {name: metadata_of(first_run, name)["dagster/row_count"] for name in ("nodes", "dpo_pairs", *DATASETS)}
    assert rows == {
        "nodes": 3,
        "dpo_pairs": 1,
        "sft_dataset": 1,
        "dpo_dataset": 1,
        "grpo_dataset": 2,
        "value_dataset": 3,
    }
    assert all(check.passed for check in first_run.get_asset_check_evaluations())
    columns = metadata_of(first_run, "nodes")["dagster/column_schema"].columns
    meanings = {column.name: column.description for column in columns}
    assert meanings["step"] == "evaluation order in the session, from 0"


def test_a_run_that_changed_nothing_moves_no_data_version(home, instance):
    assets = ("nodes", "task_bars", "dpo_pairs", *DATASETS)
    before = versions(instance, *assets)
    again = run("snapshots", home, instance)
    assert versions(instance, *assets) == before
    assert {metadata_of(again, view)["mode"] for view in ("node_reach", "task_bars", "sft_trajectories")} == {"none"}


def test_new_nodes_are_refreshed_incrementally_and_move_the_data_version(home, instance):
    before = versions(instance, "dpo_pairs", "dpo_dataset")
    grow(home, "s2", [0.8, 0.2])
    again = run("snapshots", home, instance)
    said = metadata_of(again, "dpo_pairs")
    assert (said["mode"], said["inserted"], said["dagster/row_count"]) == ("incremental", 1, 2)
    after = versions(instance, "dpo_pairs", "dpo_dataset")
    assert all(after[asset] != before[asset] for asset in before)


def test_a_note_in_the_inbox_holds_nothing_up(home, instance):
    (home.inbox / "README.txt").write_text("logs of the night run come here\n")
    grow(home, "s2", [0.8, 0.2])
    again = run("snapshots", home, instance)
    assert again.success and metadata_of(again, "nodes")["dagster/row_count"] == 6


def spoil(home, table, **values):
    """Change one row behind everybody's back: the table's watermark and metadata stay as they are."""
    tables = Tables(home)
    declare_views(tables)
    (row, *_) = tables.read(table).to_pylist()
    changes = pa.Table.from_pylist([{**row, **values}], schema=tables.schema(table).columns)
    changes = changes.append_column(CHANGE, pa.array(["update"]))
    tables.commit_rows(table, changes, planned_at=tables.version(table), metadata=tables.metadata(table))


def test_a_failed_check_on_a_view_stops_its_snapshot_and_no_other(home, instance):
    spoil(home, "dpo_pairs", rejected_fitness=2.0)
    result = run_to_its_end("snapshots", home, instance)
    assert not result.success
    assert built(result) & set(DATASETS) == {"sft_dataset", "grpo_dataset", "value_dataset"}
    assert reason(result) == (
        "check dpo_pairs.chosen_is_better failed (1 of 1 rows); nothing that stands on it was built."
    )


def test_a_failed_check_on_the_nodes_stops_every_view(home, instance):
    spoil(home, "nodes", fitness=float("nan"))
    result = run_to_its_end("snapshots", home, instance)
    assert "nodes" in built(result)
    assert not built(result) & {"node_reach", "sft_trajectories", *DATASETS}


def test_a_failed_step_is_one_line_that_says_why(home, instance):
    for file in home.path.glob("ledger.sqlite*"):
        file.unlink()
    home.ledger_path.write_text("no database")
    with pytest.raises(StageFailed, match=r"^ingest: ledger .*ledger\.sqlite") as failed:
        run("refresh", home, instance)
    assert "\n" not in str(failed.value)


def test_a_search_that_automation_starts_past_its_limit_is_left_out(home, instance):
    for turn in range(2):
        instance.report_runless_asset_event(
            dg.AssetMaterialization(
                "model_search", metadata={"started_by": "automation"}, tags={"dagster/data_version": str(turn)}
            )
        )
    result = defs.resolve_job_def("second_search").execute_in_process(
        instance=instance,
        resources={"home": HomeResource(path=str(home.path))},
        tags={"dagster/from_automation_condition": "true"},
    )
    assert result.success
    assert not built(result)
    with open_ledger(home) as ledger:
        assert [session.session_id for session in ledger.sessions()] == ["s1"]


def test_an_engine_that_there_is_not_fails_the_run_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("ESPALIER_ENGINE", "pandas")
    home = open_home(tmp_path / "home")
    with open_instance(home) as instance, pytest.raises(StageFailed, match=r"'pandas' and must be duckdb or spark"):
        run("refresh", home, instance)
