"""The asset graph: logs → tables → views → datasets → models → search, merged from one module per group.

Importing this loads neither torch nor pyspark; each asset imports what it needs when it runs.
"""

import dagster as dg

from dagster_project.automation import jobs, refresh_schedule, sensors
from dagster_project.checks.rules import checks
from dagster_project.datasets import snapshot_assets
from dagster_project.logs import external_logs
from dagster_project.maintenance import compact_job, compaction, compaction_schedule
from dagster_project.models import sft_model
from dagster_project.resources import EngineResource, HomeResource, JudgeDesk, Listener
from dagster_project.search import model_search, rule_search
from dagster_project.tables import lakehouse_tables
from dagster_project.views import training_views

defs = dg.Definitions(
    assets=[
        *external_logs,
        lakehouse_tables,
        training_views,
        *snapshot_assets,
        sft_model,
        rule_search,
        model_search,
        compaction,
    ],
    asset_checks=checks,
    jobs=[*jobs, compact_job],
    schedules=[refresh_schedule, compaction_schedule],
    sensors=sensors,
    resources={
        "home": HomeResource(),
        "engine": EngineResource(),
        "judges": JudgeDesk(),
        "listener": Listener(),
        "trainer": dg.PipesSubprocessClient(),
    },
    executor=dg.in_process_executor,
)
