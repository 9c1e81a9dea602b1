"""When things run by themselves: two sensors and a schedule refresh, and data that changed is built on.

A sensor asks for a run once per state of what it watches. The state is in the run's tags; a run that failed gives the
same state another try under a new run key, until `automation.tries` of conf/loop.yaml are used up.
"""

import dagster as dg

from dagster_project.logs import inbox_state, ledger_state
from dagster_project.loop_settings import read_loop_settings
from dagster_project.resources import HomeResource

STATE_TAG = "espalier/state"
AUTOMATION_TAG = "dagster/from_automation_condition"

refresh_job = dg.define_asset_job(
    "refresh",
    selection=dg.AssetSelection.groups("tables", "views"),
    description="Logs to tables to views, with their checks.",
)
snapshots_job = dg.define_asset_job(
    "snapshots",
    selection=dg.AssetSelection.groups("tables", "views", "datasets"),
    description="Logs to tables to views to dataset snapshots, with their checks.",
)
train_job = dg.define_asset_job(
    "train", selection=dg.AssetSelection.groups("models"), description="Train on the newest snapshot."
)
first_search_job = dg.define_asset_job(
    "first_search", selection=["rule_search"], description="Search with the rules alone; needs no model."
)
second_search_job = dg.define_asset_job(
    "second_search", selection=["model_search"], description="Search with the newest model."
)
jobs = [refresh_job, snapshots_job, train_job, first_search_job, second_search_job]


def when_data_changed() -> dg.AutomationCondition:
    """Build once when everything it needs is there, and again when the *data* of something it needs changed.

    Not `eager()`: that also fires after a refresh that changed nothing.
    """
    condition = dg.AutomationCondition
    return (
        (condition.newly_missing() | condition.any_deps_match(condition.data_version_changed())).since_last_handled()
        & ~condition.any_deps_missing()
        & ~condition.any_deps_in_progress()
        & ~condition.in_progress()
        & condition.all_deps_blocking_checks_passed()
    ).with_label("when the data changed")


def request_once(
    context: dg.SensorEvaluationContext, watched: str, state: str | None, *, tries: int
) -> dg.RunRequest | dg.SkipReason:
    """Ask for a refresh of this state of the watched thing unless one succeeded, runs, or failed too often."""
    if state is None:
        return dg.SkipReason(f"{watched}: nothing new")
    tag = {STATE_TAG: f"{watched}:{state}"}
    runs = context.instance.get_runs(dg.RunsFilter(job_name=refresh_job.name, tags=tag))
    failed = [run for run in runs if run.status in (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)]
    if len(failed) < len(runs):
        return dg.SkipReason(f"{watched}: its present state was read, or is being read")
    if len(failed) >= tries:
        return dg.SkipReason(f"{watched}: {len(failed)} runs on its present state failed; read their logs")
    return dg.RunRequest(run_key=f"{watched}:{state}:{len(failed) + 1}", tags=tag)


_settings = read_loop_settings().automation


@dg.sensor(
    job=refresh_job,
    minimum_interval_seconds=_settings.sensor_seconds,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Reads <home>/inbox when a file there comes, grows or is touched.",
)
def inbox_sensor(context: dg.SensorEvaluationContext, home: HomeResource) -> dg.RunRequest | dg.SkipReason:
    """Refresh when the inbox changed."""
    return request_once(context, "inbox", inbox_state(home.open()), tries=_settings.tries)


@dg.sensor(
    job=refresh_job,
    minimum_interval_seconds=_settings.sensor_seconds,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Reads the search ledger when it has rows that the tables lack.",
)
def ledger_sensor(context: dg.SensorEvaluationContext, home: HomeResource) -> dg.RunRequest | dg.SkipReason:
    """Refresh when a search committed."""
    return request_once(context, "ledger", ledger_state(home.open()), tries=_settings.tries)


refresh_schedule = dg.ScheduleDefinition(
    name="refresh_schedule",
    job=refresh_job,
    cron_schedule=_settings.refresh_cron,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Picks up what no sensor sees, such as a retraction from the command line.",
)

rebuild_sensor = dg.AutomationConditionSensorDefinition(
    "rebuild_what_changed",
    target=dg.AssetSelection.groups("datasets", "models", "search"),
    minimum_interval_seconds=_settings.sensor_seconds,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Builds datasets, models and searches whose input data changed; see docs/dagster.md for its limit.",
)

sensors = [inbox_sensor, ledger_sensor, rebuild_sensor]
