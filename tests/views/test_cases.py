"""Cases that a reader can check by hand: rows, what the views then hold, a change, what they hold after it.

Each file in `cases/` is one topic, each entry one case. `world` and `change` list what is done, by the names of
`World`'s methods; `before` and `after` list, per view, exactly its rows by the columns that the case is about.
Messages are written as `role: content`.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from memory_tables import MemoryTables
from store.home import open_home
from view_checks import assert_same, assert_views_equal_the_oracle, pass_over, with_readable_cohorts
from views.registry import view_schema
from views.settings import read_view_settings
from world import World, act

FOLDER = Path(__file__).parent / "cases"
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['case']}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for case in yaml.safe_load(path.read_text(encoding="utf-8"))
]
MESSAGE_COLUMNS = ("messages", "prompt", "chosen", "rejected", "completion")


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_view_settings().model_copy(update=case.get("settings", {}))
    monkeypatch.setattr("views.refresh.read_view_settings", lambda: settings)
    home = open_home(tmp_path / "home")
    world = World(home, tables=MemoryTables(home, tmp_path))
    for stage, expected in (("world", "before"), ("change", "after")):
        if stage not in case:
            continue
        for action in case[stage]:
            act(world, action)
        world.save()
        pass_over(world)
        for name, rows in case[expected].items():
            assert_holds(world, name, rows)
        assert_views_equal_the_oracle(world, settings)


def assert_holds(world: World, name: str, expected: list[dict[str, Any]]) -> None:
    found = list(world.tables.versions[name][-1].values())  # type: ignore[attr-defined]
    if name in ("cohorts", "grpo_cohorts"):
        found = with_readable_cohorts(found)
    columns = list(dict.fromkeys(column for row in expected for column in row))
    shown = [{column: short(column, row[column]) for column in columns} for row in found]
    key = [column for column in view_schema(name).key if column in columns]
    shown.sort(key=lambda row: [str(row[column]) for column in key])
    expected.sort(key=lambda row: [str(row[column]) for column in key])
    assert len(shown) == len(expected), f"{name} holds {shown}"
    for row, wanted in zip(shown, expected, strict=True):
        assert_same(name, row, {column: wanted.get(column) for column in columns})


def short(column: str, value: Any) -> Any:
    if column in MESSAGE_COLUMNS and value is not None:
        return [f"{turn['role']}: {turn['content']}" for turn in value]
    if column == "steps":
        return [[*short("prompt", step["prompt"]), f"assistant: {step['answer']}"] for step in value]
    return value
