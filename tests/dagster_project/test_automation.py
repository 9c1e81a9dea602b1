"""What runs by itself: nothing after a refresh that changed nothing, each state of a watched thing once."""

import dagster as dg
import pytest

from dagster_project.automation import inbox_sensor, ledger_sensor
from dagster_project.definitions import defs
from dagster_project.resources import HomeResource
from dagster_project.search import automated_searches_in_a_row

VIEWS = ("sft_trajectories", "dpo_pairs", "grpo_cohorts", "value_examples")
LOOP = (*VIEWS, "sft_dataset", "dpo_dataset", "grpo_dataset", "value_dataset", "sft_model")


@pytest.fixture
def instance():
    with dg.instance_for_test() as persistent:
        yield persistent


def built(instance, asset, version, **metadata):
    """Report what a run would have reported: the asset stands at this data version."""
    instance.report_runless_asset_event(
        dg.AssetMaterialization(asset, metadata=metadata, tags={"dagster/data_version": version})
    )


def checked(instance, *assets, passed=True):
    """Report the outcome of every blocking check on these assets' newest data."""
    for key in defs.resolve_asset_graph().asset_check_keys:
        if key.asset_key.to_user_string() in assets:
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    asset_key=key.asset_key, check_name=key.name, passed=passed, metadata={}, blocking=True
                )
            )


def requested(instance, cursor=None):
    built_by_automation = dg.AssetSelection.groups("datasets", "models", "search")
    result = dg.evaluate_automation_conditions(
        defs=defs, instance=instance, asset_selection=built_by_automation, cursor=cursor
    )
    names = {key.to_user_string() for key in (r.key for r in result.results if r.true_subset.size)}
    return names, result.cursor


@pytest.fixture
def built_loop(instance):
    """Everything was built once, and automation has looked at it."""
    for asset in LOOP:
        built(instance, asset, "1")
    built(instance, "model_search", "1", started_by="person")
    checked(instance, *VIEWS)
    names, cursor = requested(instance)
    assert names == set()
    return cursor


def test_a_refresh_that_changed_nothing_requests_nothing(instance, built_loop):
    for view in VIEWS:
        built(instance, view, "1")
    checked(instance, *VIEWS)
    assert requested(instance, built_loop)[0] == set()


def test_a_view_whose_rows_changed_requests_its_dataset_and_no_other(instance, built_loop):
    built(instance, "sft_trajectories", "2")
    built(instance, "dpo_pairs", "1")
    checked(instance, "sft_trajectories", "dpo_pairs")
    names, cursor = requested(instance, built_loop)
    assert names == {"sft_dataset"}
    assert requested(instance, cursor)[0] == set()


def test_a_failed_blocking_check_keeps_the_dataset_from_being_built(instance, built_loop):
    built(instance, "dpo_pairs", "2")
    checked(instance, "dpo_pairs", passed=False)
    names, cursor = requested(instance, built_loop)
    assert names == set()
    checked(instance, "dpo_pairs", passed=True)
    assert requested(instance, cursor)[0] == {"dpo_dataset"}


def test_an_equal_snapshot_of_a_changed_view_requests_no_training(instance, built_loop):
    built(instance, "sft_dataset", "1")
    assert requested(instance, built_loop)[0] == set()


def test_a_changed_snapshot_requests_training_and_a_changed_model_a_search(instance, built_loop):
    built(instance, "sft_dataset", "2")
    names, cursor = requested(instance, built_loop)
    assert names == {"sft_model"}
    built(instance, "sft_model", "2")
    assert requested(instance, cursor)[0] == {"model_search"}


def tick(sensor, instance, home):
    context = dg.build_sensor_context(instance=instance, resources={"home": HomeResource(path=str(home.path))})
    return sensor(context)


def run_ended(instance, request, status):
    instance.add_run(dg.DagsterRun(job_name="refresh", status=status, tags={**request.tags}))


def test_an_empty_inbox_asks_for_nothing(instance, home):
    assert isinstance(tick(inbox_sensor, instance, home), dg.SkipReason)


def test_a_file_in_the_inbox_asks_for_one_refresh(instance, home):
    (home.inbox / "run.jsonl").write_text("{}\n")
    request = tick(inbox_sensor, instance, home)
    assert request.run_key.endswith(":1")

    run_ended(instance, request, dg.DagsterRunStatus.SUCCESS)
    assert isinstance(tick(inbox_sensor, instance, home), dg.SkipReason)


def test_a_file_that_grows_or_is_touched_asks_again(instance, home):
    log = home.inbox / "deep" / "run.jsonl"
    log.parent.mkdir()
    log.write_text("{}\n")
    first = tick(inbox_sensor, instance, home)
    run_ended(instance, first, dg.DagsterRunStatus.SUCCESS)
    log.write_text("{}\n{}\n")
    assert tick(inbox_sensor, instance, home).run_key != first.run_key


def test_a_half_copied_hidden_file_does_not_count(instance, home):
    (home.inbox / ".run.jsonl.part").write_text("{")
    assert isinstance(tick(inbox_sensor, instance, home), dg.SkipReason)


def test_a_failed_run_is_tried_again_under_a_new_key_until_the_tries_are_used_up(instance, home):
    (home.inbox / "run.jsonl").write_text("{}\n")
    keys = []
    for _ in range(3):
        request = tick(inbox_sensor, instance, home)
        keys.append(request.run_key)
        run_ended(instance, request, dg.DagsterRunStatus.FAILURE)
    assert len(set(keys)) == 3
    skipped = tick(inbox_sensor, instance, home)
    assert "3 runs on its present state failed" in skipped.skip_message


def test_a_run_under_way_is_not_asked_for_twice(instance, home):
    (home.inbox / "run.jsonl").write_text("{}\n")
    run_ended(instance, tick(inbox_sensor, instance, home), dg.DagsterRunStatus.STARTED)
    assert isinstance(tick(inbox_sensor, instance, home), dg.SkipReason)


def test_looking_for_a_ledger_does_not_create_one(instance, home):
    assert isinstance(tick(ledger_sensor, instance, home), dg.SkipReason)
    assert not home.ledger_path.exists()


@pytest.mark.parametrize(
    ("started_by", "in_a_row"),
    [
        ([], 0),
        (["automation"], 1),
        (["person", "automation", "automation"], 2),
        (["automation", "automation", "person"], 0),
        (["automation"] * 5, 3),
    ],
)
def test_searches_of_automation_are_counted_back_to_the_last_one_of_a_person(instance, started_by, in_a_row):
    for turn, who in enumerate(started_by):
        built(instance, "model_search", str(turn), started_by=who)
    assert automated_searches_in_a_row(instance, at_most=3) == in_a_row
