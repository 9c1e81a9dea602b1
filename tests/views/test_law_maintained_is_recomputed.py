"""Law 1: after any history, what was maintained equals what a recompute and the oracle give."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from memory_tables import MemoryTables
from store.home import open_home
from view_checks import assert_views_equal_a_recompute, assert_views_equal_the_oracle, pass_over
from view_histories import OPERATIONS, new_world, operate
from views.settings import ViewSettings, read_view_settings
from world import World

DEFAULTS = read_view_settings()
SETTINGS = st.builds(
    lambda **changed: DEFAULTS.model_copy(update=changed),
    buggy_ancestors=st.sampled_from(["cut", "drop"]),
    buggy_rejected=st.booleans(),
    pair_across_prompts=st.booleans(),
    max_pairs_per_parent=st.sampled_from([2, 16]),
    cohort_kinds=st.sampled_from([["parent"], ["parent", "depth", "generation"]]),
    tags_that_stay=st.sampled_from([[], ["local"]]),
)
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
seen: Counter[str] = Counter()


@pytest.mark.timeout(1200)
@settings(max_examples=16, deadline=None, suppress_health_check=QUIET, derandomize=True)
@given(data=st.data(), chosen=SETTINGS)
def test_views_equal_the_oracle_after_any_history(
    monkeypatch: pytest.MonkeyPatch, data: st.DataObject, chosen: ViewSettings
) -> None:
    monkeypatch.setattr("views.refresh.read_view_settings", lambda: chosen)
    with TemporaryDirectory() as folder:
        home = open_home(Path(folder) / "home")
        world = new_world(World(home, tables=MemoryTables(home, Path(folder))))
        for times in (12, *data.draw(st.lists(st.integers(1, 2), min_size=3, max_size=4))):
            seen.update(operate(world, data.draw, times=times))
            world.save()
            pass_over(world)
            assert_views_equal_the_oracle(world, chosen)
        assert_views_equal_a_recompute(world)


def test_histories_held_every_kind_of_operation() -> None:
    missing = {operation.__name__ for operation in OPERATIONS} - seen.keys()
    assert not seen or not missing, f"no history had {sorted(missing)} in {seen}"


@settings(max_examples=2, deadline=None, suppress_health_check=QUIET, derandomize=True, phases=[Phase.generate])
@given(data=st.data())
def test_views_over_delta_tables_equal_the_oracle_after_any_history(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        world = new_world(World(open_home(Path(folder) / "home")))
        for _ in range(3):
            operate(world, data.draw, times=6)
            world.save()
            pass_over(world)
            assert_views_equal_the_oracle(world, DEFAULTS)
        assert_views_equal_a_recompute(world)
