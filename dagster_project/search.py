"""Group *search*: searches write to the ledger, which lies outside the graph; that is how the loop closes.

Automation may start `model_search` at most `generation_limit` times in a row (conf/loop.yaml). A search that a person
starts, in the page or with `make run`, counts from 0 again.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from dagster_project.automation import AUTOMATION_TAG, when_data_changed
from dagster_project.latest import latest_metadata
from dagster_project.logs import LEDGER
from dagster_project.loop_settings import SearchRound, read_loop_settings
from dagster_project.resources import HomeResource, JudgeDesk, Listener
from dagster_project.search_round import RoundModels, SearchDone, run_round

PERSON, AUTOMATION = "person", "automation"
ESTIMATE_NOTE = "times are a model's estimate, not run on a GPU"


class SearchConfig(dg.Config):
    """What differs from conf/loop.yaml; nothing by default."""

    proposers: list[str] | None = None
    tasks: list[str] | None = None
    attempts_per_task: int | None = None


@dg.asset(
    group_name="search",
    kinds={"python"},
    pool="judge",
    description="Kernel search with the rule-based proposer: where data comes from before there is a model.",
)
def rule_search(
    context: dg.AssetExecutionContext,
    config: SearchConfig,
    home: HomeResource,
    judges: dg.ResourceParam[JudgeDesk],
    listener: dg.ResourceParam[Listener],
) -> dg.MaterializeResult:
    """Search every task; needs no model and depends on nothing in the graph."""
    return _search(context, config, home, judges, listener, read_loop_settings().first_search, RoundModels())


@dg.multi_asset(
    name="model_search",
    specs=[
        dg.AssetSpec(
            "model_search",
            deps=["sft_model"],
            group_name="search",
            kinds={"python"},
            automation_condition=when_data_changed(),
            skippable=True,
            description="Kernel search with the newest model; automation stops at the generation limit.",
        )
    ],
    pool="judge",
)
def model_search(
    context: dg.AssetExecutionContext,
    config: SearchConfig,
    home: HomeResource,
    judges: dg.ResourceParam[JudgeDesk],
    listener: dg.ResourceParam[Listener],
) -> Iterator[dg.MaterializeResult]:
    """Search every task with the model that was trained last, unless automation has had its share."""
    settings = read_loop_settings()
    limit = settings.automation.generation_limit
    if started_by(context.run) == AUTOMATION:
        in_a_row = automated_searches_in_a_row(context.instance, at_most=limit)
        if in_a_row >= limit:
            context.log.warning(
                f"automation has searched {in_a_row} times in a row, and its generation limit is {limit}: no search. "
                "Start one here, or raise automation.generation_limit in conf/loop.yaml."
            )
            return
    models = _models(context, home, config)
    searches = settings.second_search.model_copy(update={"proposers": ("trained",)})
    yield _search(context, config, home, judges, listener, searches, models)


def started_by(run: dg.DagsterRun) -> str:
    """Who asked for a run: a person, or automation."""
    return AUTOMATION if run.tags.get(AUTOMATION_TAG) == "true" else PERSON


def automated_searches_in_a_row(instance: dg.DagsterInstance, *, at_most: int) -> int:
    """The newest searches that automation started, back to the last one that a person started (`at_most` are read)."""
    records = instance.fetch_materializations(dg.AssetKey("model_search"), limit=max(at_most, 1)).records
    count = 0
    for record in records:
        materialization = record.asset_materialization
        if materialization is None or materialization.metadata["started_by"].value != AUTOMATION:
            break
        count += 1
    return count


def _models(context: dg.AssetExecutionContext, home: HomeResource, config: SearchConfig) -> RoundModels:
    trained = Path(str(latest_metadata(context.instance, "sft_model")["directory"]))
    if "untrained" not in (config.proposers or []):
        return RoundModels(trained)
    from training.save import untrained_model

    opened = home.open()
    control = opened.models / f"{trained.name}-untrained"
    return RoundModels(trained, untrained_model(opened, trained, control, now=datetime.now(UTC)))


def _search(
    context: dg.AssetExecutionContext,
    config: SearchConfig,
    home: HomeResource,
    judges: JudgeDesk,
    listener: Listener,
    searches: SearchRound,
    models: RoundModels,
) -> dg.MaterializeResult:
    from store.ledger import open_ledger

    opened = home.open()
    given = {name: value for name, value in config.model_dump().items() if value is not None}
    tasks = tuple(given.pop("tasks", read_loop_settings().tasks))
    settings = read_loop_settings().model_copy(update={"tasks": tasks})
    searches = SearchRound.model_validate({**searches.model_dump(), **given})
    with open_ledger(opened) as ledger:
        seed = len(ledger.sessions())  # a later round never repeats an earlier one
    with judges.judge(settings) as judge:
        done = run_round(opened, searches, settings, judge=judge, seed=seed, models=models, tell=listener.tell)
    _report_ledger(context, done, uri=str(opened.ledger_path))
    return dg.MaterializeResult(
        metadata={
            "attempts": sum(search.attempts for search in done),
            "valid": sum(search.valid for search in done),
            "sessions": dg.MetadataValue.json([search.as_dict() for search in done]),
            "started_by": started_by(context.run),
            "seed": seed,
            "note": ESTIMATE_NOTE,
        }
    )


def _report_ledger(context: dg.AssetExecutionContext, done: list[SearchDone], *, uri: str) -> None:
    """Say in the ledger's own history that rows were added: it is external, so this is how the page shows it."""
    context.log_event(
        dg.AssetMaterialization(
            LEDGER,
            metadata={"attempts": sum(search.attempts for search in done), "sessions": len(done), "dagster/uri": uri},
        )
    )
