"""Turns rules into Dagster checks that Great Expectations runs: one check per rule, one frame per group of rules."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dagster as dg

from dagster_project.resources import HomeResource

if TYPE_CHECKING:
    import pandas as pd

    from store.home import Home

Frame = Callable[["Home"], "pd.DataFrame"]


@dataclass(frozen=True)
class Rule:
    """One sentence that must hold for every row of a frame."""

    name: str
    about: str
    expectation: str  # a class of great_expectations.expectations, named so that importing this loads nothing
    arguments: Mapping[str, Any] = field(default_factory=dict)
    blocking: bool = True  # False: a warning, for what a foreign log may say without our data being wrong


@dataclass(frozen=True)
class Facts:
    """A frame made for the rules that read it, such as one row per cohort."""

    frame: Frame
    rules: tuple[Rule, ...]


def checks_on(asset: str, facts: Sequence[Facts]) -> dg.AssetChecksDefinition:
    """Checks on one asset, in a step of their own.

    A failed blocking one stops what stands on this asset and nothing else: the assets beside it were written by
    another step.
    """
    specs = [
        dg.AssetCheckSpec(rule.name, asset=asset, blocking=rule.blocking, description=rule.about)
        for group in facts
        for rule in group.rules
    ]

    @dg.multi_asset_check(name=f"check_{asset}", specs=specs)
    def run_checks(home: HomeResource) -> Iterator[dg.AssetCheckResult]:
        opened = home.open()
        for group in facts:
            for rule, passed, said in judge_frame(group.frame(opened), group.rules):
                severity = dg.AssetCheckSeverity.ERROR if rule.blocking else dg.AssetCheckSeverity.WARN
                yield dg.AssetCheckResult(
                    asset_key=asset, check_name=rule.name, passed=passed, severity=severity, metadata=said
                )

    return run_checks


def judge_frame(frame: "pd.DataFrame", rules: Sequence[Rule]) -> list[tuple[Rule, bool, dict[str, Any]]]:
    """Hold a frame against its rules.

    Returns:
        Per rule, in order: the rule, whether it holds, and counts with a few of the values that broke it.

    Raises:
        RuntimeError: Great Expectations could not evaluate a rule, which is never a pass.
    """
    gx = _great_expectations()
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}
    batch = (
        context.data_sources.add_pandas("frame")
        .add_dataframe_asset("rows")
        .add_batch_definition_whole_dataframe("all")
        .get_batch({"dataframe": frame})
    )
    judged = []
    for rule in rules:
        result = batch.validate(getattr(gx.expectations, rule.expectation)(**rule.arguments))
        if (error := _raised(result.exception_info)) is not None:
            raise RuntimeError(f"check {rule.name} could not be evaluated: {error}")
        judged.append((rule, bool(result.success), _said(len(frame), result.result)))
    return judged


def _great_expectations() -> ModuleType:
    """The library, loaded on first use: no telemetry, no Spark, and quiet about the deprecated modules it imports.

    It tries to import PySpark, which our frames never need. PySpark's Connect client takes a process whose main
    module is no file for a doctest run and *ends* it with status 0; the processes that Dagster runs jobs in are such.
    """
    os.environ["GX_ANALYTICS_ENABLED"] = "false"
    with _hidden("pyspark", "pyspark.sql.connect"), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import great_expectations
        import great_expectations.expectations
    return great_expectations


@contextmanager
def _hidden(*modules: str) -> Iterator[None]:
    """While the block runs, importing these modules fails as if they were not installed; loaded ones stay."""
    hidden = [name for name in modules if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # None is how Python marks a module that cannot be imported
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _raised(info: Mapping[str, Any] | None) -> str | None:
    """The message of an exception inside an evaluation; the library nests them under a metric's id at times."""
    for entry in (info, *(info or {}).values()):
        if isinstance(entry, Mapping) and entry.get("raised_exception"):
            return str(entry.get("exception_message"))
    return None


def _said(num_rows: int, result: Mapping[str, Any]) -> dict[str, Any]:
    unexpected = result.get("partial_unexpected_list") or []
    counts = {key: value for key, value in result.items() if key in {"unexpected_count", "missing_count"} and value}
    broken = {"unexpected": dg.MetadataValue.json([str(value) for value in unexpected[:5]])} if unexpected else {}
    return {"rows": num_rows, **counts, **broken}
