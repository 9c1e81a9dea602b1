"""A refresh whose SQL relations Spark computes and commits, as `--engine spark` does it; the driver plans and walks."""

from typing import TYPE_CHECKING

from store.delta import Commit
from views.definition import WALKED
from views.planner import Plan
from views.refresh import APPLICATION, Chain, RefreshResult
from views.registry import VIEW_ORDER
from views.spark_engine import SparkEngine, Work, handed_over
from world import World

if TYPE_CHECKING:
    from collections.abc import Iterable


class SparkChain(Chain):
    """One pass over the views of a world, on Spark."""

    def __init__(self, world: World, order: "Iterable[str]" = VIEW_ORDER) -> None:
        super().__init__(world.tables, order)
        self.spark = SparkEngine(self.tables, self.pins, self.settings)

    def close(self) -> None:
        self.spark.close()
        super().close()

    def work(self, plan: Plan) -> Work:
        planned_at = plan.state.version
        if planned_at is None:
            self.tables.create(plan.name)
            planned_at = 0
        number = int(plan.state.metadata.get("refresh", 0)) + 1
        metadata = {
            "watermarks": plan.input_versions,
            "view_digest": plan.digest,
            "mode": plan.mode,
            "reason": plan.reason,
            "refresh": number,
        }
        return Work(
            plan.name,
            plan.digest,
            planned_at,
            metadata,
            (APPLICATION, number),
            plan.scope,
            plan.has_other_columns,
            handed_over(self.engine, plan.name, plan.scope),
        )

    def _commit(self, plan: Plan) -> Commit:
        return super()._commit(plan) if plan.name in WALKED else self.spark.refresh(self.work(plan))


def spark_pass(world: World, *, full: bool = False) -> dict[str, RefreshResult]:
    """Bring every view up to the tables."""
    chain = SparkChain(world)
    try:
        return {name: chain.refresh(name, full=full) for name in VIEW_ORDER}
    finally:
        chain.close()
