"""Snapshots: what they hold, what they leave out and say so, and that equal manifests mean equal bytes."""

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow as pa
import pytest

from store.errors import BadInput, FlaggedByRetraction, NotEnoughData, RefusedByPolicy, UnknownName, WrongUse
from training import snapshots
from training.snapshot_folder import demand_not_flagged, open_snapshot
from training.snapshots import export_view
from training.splits import DatasetSettings, split_of, splits_of
from training_world import NOW, TrainingWorld, edit_prompt, member_row, pair_row, path_row, step, value_row
from views.registry import view_schema

PROMPT = edit_prompt("softmax", {"block": "1024", "warps": "4"})


@pytest.fixture
def world(tmp_path: Path) -> TrainingWorld:
    return TrainingWorld(tmp_path)


def load(directory: Path, split: str = "train") -> datasets.Dataset:
    return datasets.load_dataset(str(directory), split=split)


# ---- the forms -----------------------------------------------------------------------------------


def test_the_step_form_gives_each_node_once_with_its_own_prompt_and_answer(world: TrainingWorld) -> None:
    first, left = step("n1", PROMPT, "warps 8"), step("n2", PROMPT + "\nmask tail", "block 512", parent_id="n1")
    right = step("n3", PROMPT + "\nmask full", "warps 2", parent_id="n1")
    world.write("sft_trajectories", [path_row("n2", "t", [first, left]), path_row("n3", "t", [first, right])])
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", turns="step", now=NOW)
    rows = load(snapshot.dir)
    assert rows["node_id"] == ["n1", "n2", "n3"]
    assert rows[1]["prompt"] == [{"role": "user", "content": PROMPT + "\nmask tail"}]
    assert rows[1]["completion"] == [{"role": "assistant", "content": "block 512"}]
    assert rows["source_node_ids"] == [["n1"], ["n1", "n2"], ["n1", "n3"]]


def test_the_path_form_gives_whole_conversations(world: TrainingWorld) -> None:
    steps = [step("n1", PROMPT, "warps 8"), step("n2", "And now?", "block 512", parent_id="n1")]
    world.write("sft_trajectories", [path_row("n2", "t", steps)])
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", turns="path", now=NOW)
    (row,) = load(snapshot.dir).to_list()
    assert [(part["role"], part["content"]) for part in row["messages"]] == [
        ("user", PROMPT),
        ("assistant", "warps 8"),
        ("user", "And now?"),
        ("assistant", "block 512"),
    ]


def test_no_text_is_changed_on_the_way(world: TrainingWorld) -> None:
    odd = "  warps\t8\r\n\n… é 中 \u200b <|end|>\x00 \n"
    world.write("sft_trajectories", [path_row("n1", "t", [step("n1", odd, odd)])])
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    (row,) = load(snapshot.dir).to_list()
    assert (row["prompt"][0]["content"], row["completion"][0]["content"]) == (odd, odd)


def test_pairs_and_cohorts_have_the_columns_of_their_trainers(world: TrainingWorld) -> None:
    world.write("dpo_pairs", [pair_row("a", "b")])
    world.write("grpo_cohorts", [member_row("c", f"n{i}", reward=i, advantage=0.5 - i, answer="w") for i in (0, 1)])
    pairs = load(export_view(world.home, "dpo_pairs", world.folder / "p", now=NOW).dir)
    cohorts = load(export_view(world.home, "grpo_cohorts", world.folder / "c", now=NOW).dir)
    assert pairs[0]["chosen"] == [{"role": "assistant", "content": "warps 8"}]
    assert {"prompt", "chosen", "rejected", "gap"} <= set(pairs.column_names)
    assert not [name for name in pairs.column_names if name.startswith("ref_")]
    assert (cohorts["reward"], cohorts["advantage"], cohorts["cohort_id"]) == ([0.0, 1.0], [0.5, -0.5], ["c", "c"])


def test_value_examples_keep_their_own_columns_and_say_which_of_them_are_labels(world: TrainingWorld) -> None:
    rows = [value_row("a", gain=0.25, best="b"), value_row("b"), value_row("c", gain=math.inf, best="b")]
    world.write("value_examples", rows)
    snapshot = export_view(world.home, "value_examples", world.folder / "v", now=NOW)
    assert (snapshot.form, snapshot.rows, snapshot.left_out) == ("values", 2, {"not_finite": 1})
    loaded = load(snapshot.dir)
    assert (loaded["gain"], loaded["best_descendant_id"], loaded["step"]) == ([0.25, None], ["b", None], [1, 1])
    assert loaded["ancestor_failure_classes"] == [["syntax"], ["syntax"]]
    not_shown = {
        "session_seq",
        "score_refs",
        "row_digest",
        "fitness_text",
        "reward_text",
        "best_descendant_fitness_text",
    }
    assert set(loaded.column_names) == set(view_schema("value_examples").columns.names) - not_shown
    card = (snapshot.dir / "README.md").read_text()
    assert "none of them may be an input" in card and "trl" not in card


def test_tool_calls_keep_the_arguments_that_each_one_has(world: TrainingWorld) -> None:
    calls = [[{"name": "set", "arguments": {"warps": 0}}], [{"name": "set", "arguments": {"block": None}}]]
    steps = [step(f"n{number}", PROMPT, "") for number in range(3)]
    for one, call in zip(steps, calls, strict=False):
        one["tool_calls"] = json.dumps(call)
    steps[2]["answer"] = "warps 8"
    world.write("sft_trajectories", [path_row(one["node_id"], "t", [one]) for one in steps])
    rows = load(export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW).dir)
    assert [row["completion"][0]["tool_calls"] for row in rows] == [calls[0], calls[1], None]


def test_a_snapshot_without_rows_is_not_made_since_nothing_could_load_it(world: TrainingWorld) -> None:
    world.write("dpo_pairs", [pair_row("a", "b", rejected="")])
    with pytest.raises(NotEnoughData, match=r"gives no row to export \(1 empty_answer\)"):
        export_view(world.home, "dpo_pairs", world.folder / "d", now=NOW)
    assert not (world.folder / "d").exists()


# ---- left out, and said so -----------------------------------------------------------------------


def test_what_no_trainer_could_use_is_left_out_counted_and_on_the_card(world: TrainingWorld) -> None:
    unasked = pair_row("a4", "b4")
    unasked["prompt"] = None
    rows = [
        pair_row("a1", "b1"),
        pair_row("a2", "b2", rejected=" \n"),
        pair_row("a3", "b3", rejected="warps 8"),
        unasked,
    ]
    world.write("dpo_pairs", rows)
    snapshot = export_view(world.home, "dpo_pairs", world.folder / "d", now=NOW)
    assert snapshot.rows == 1
    assert snapshot.left_out == {"empty_answer": 1, "equal_answers": 1, "no_prompt": 1}
    assert json.loads(snapshot.manifest.read_text())["left_out"] == snapshot.left_out
    assert "| equal_answers | 1 |" in (snapshot.dir / "README.md").read_text()


def test_an_answer_without_a_visible_character_is_empty_and_a_number_that_is_none_is_left_out(
    world: TrainingWorld,
) -> None:
    huge = pair_row("a3", "b3")
    huge["gap"] = math.inf
    world.write("dpo_pairs", [pair_row("a1", "b1"), pair_row("a2", "b2", rejected="\u200b\u00a0"), huge])
    snapshot = export_view(world.home, "dpo_pairs", world.folder / "d", now=NOW)
    assert (snapshot.rows, snapshot.left_out) == (1, {"empty_answer": 1, "not_finite": 1})


def test_each_step_carries_the_basis_that_its_own_fitness_was_measured_by(world: TrainingWorld) -> None:
    steps = [step("n1", PROMPT, "warps 8"), step("n2", PROMPT, "warps 4", parent_id="n1")]
    steps[0]["fitness_basis"] = "measured"
    world.write("sft_trajectories", [path_row("n2", "t", steps)])
    rows = load(export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW).dir)
    assert rows["fitness_basis"] == ["measured", "estimated:h100:v1"]


def test_every_folder_that_holds_a_snapshot_is_registered(world: TrainingWorld) -> None:
    world.paths([("t", PROMPT, "warps 8")])
    one, two = (export_view(world.home, "sft_trajectories", world.folder / name, now=NOW) for name in ("one", "two"))
    assert one.dataset_id == two.dataset_id
    folders = world.tables.read("datasets", columns=["directory"])["directory"].to_pylist()
    assert sorted(folders) == [str(one.dir), str(two.dir)]


def test_rows_that_the_policy_withholds_are_left_out_by_tag_and_the_rest_is_exported(world: TrainingWorld) -> None:
    edits = [("t", PROMPT, "warps 8")]
    world.paths(edits, first=1)
    world.paths(edits, first=2, tags=("pii",))
    world.paths(edits, first=3, tags=("invented",))
    world.paths(edits, first=4, tags=("licence:mit",))
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    assert load(snapshot.dir)["node_id"] == ["n1", "n4"]
    assert snapshot.left_out == {"policy: tag pii": 1, "policy: unknown tag invented": 1}
    (access,) = world.tables.read("access_log").to_pylist()
    assert (access["relation"], access["num_allowed"]) == ("sft_trajectories", 2)
    assert json.loads(access["left_out"]) == snapshot.left_out


def test_an_unknown_principal_gets_nothing_and_the_access_log_says_so(world: TrainingWorld) -> None:
    world.random_paths(1)
    with pytest.raises(RefusedByPolicy, match="unknown principal stranger"):
        export_view(world.home, "sft_trajectories", world.folder / "d", principal="stranger", now=NOW)
    assert not (world.folder / "d").exists()
    (access,) = world.tables.read("access_log").to_pylist()
    assert (access["principal"], access["num_allowed"]) == ("stranger", 0)


# ---- law 2 and immutability ------------------------------------------------------------------------


def test_equal_manifests_have_equal_bytes_in_any_process_and_folder(world: TrainingWorld) -> None:
    world.random_paths(25)
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "here", now=NOW)
    program = (
        "import sys; from datetime import datetime, timezone; from store.home import open_home; "
        "from training.snapshots import export_view; "
        "export_view(open_home(sys.argv[1]), 'sft_trajectories', sys.argv[2], now=datetime.now(timezone.utc))"
    )
    there = world.folder / "elsewhere" / "there"
    root = Path(snapshots.__file__).parent.parent
    subprocess.run([sys.executable, "-c", program, str(world.home.path), str(there)], check=True, cwd=root)
    files = sorted(path.relative_to(there) for path in there.rglob("*") if path.is_file())
    assert [file.name.split("-")[0] for file in files] == ["README.md", "train", "manifest.json"]
    assert all((snapshot.dir / file).read_bytes() == (there / file).read_bytes() for file in files)


def test_an_old_version_gives_its_old_rows_after_the_view_has_moved_on(world: TrainingWorld) -> None:
    world.random_paths(3)
    before = export_view(world.home, "sft_trajectories", world.folder / "before", now=NOW)
    world.paths([("t", PROMPT, "warps 8")], first=100)
    again = export_view(world.home, "sft_trajectories", world.folder / "again", version=1, now=NOW)
    after = export_view(world.home, "sft_trajectories", world.folder / "after", now=NOW)
    assert again.dataset_id == before.dataset_id != after.dataset_id
    assert (again.rows, after.rows) == (3, 4)


def test_the_order_of_rows_is_the_order_of_the_views_key(world: TrainingWorld) -> None:
    world.write("dpo_pairs", [pair_row("b", "x"), pair_row("a", "z"), pair_row("a", "y")])
    rows = load(export_view(world.home, "dpo_pairs", world.folder / "d", now=NOW).dir)
    assert list(zip(rows["chosen_id"], rows["rejected_id"], strict=True)) == [("a", "y"), ("a", "z"), ("b", "x")]


def test_a_snapshot_is_never_overwritten_by_another_and_an_equal_one_stays_as_it_is(world: TrainingWorld) -> None:
    world.random_paths(2)
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    stamp = snapshot.manifest.stat().st_mtime_ns
    assert export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW) == snapshot
    assert snapshot.manifest.stat().st_mtime_ns == stamp
    world.paths([("t", PROMPT, "warps 8")], first=100)
    with pytest.raises(WrongUse, match="holds another snapshot"):
        export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    assert len(load(snapshot.dir)) == 2


def test_a_folder_with_other_files_is_refused_and_keeps_them(world: TrainingWorld) -> None:
    world.random_paths(2)
    (world.folder / "d").mkdir()
    (world.folder / "d" / "mine.txt").write_text("mine")
    with pytest.raises(WrongUse, match="holds something else"):
        export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    assert [path.name for path in (world.folder / "d").iterdir()] == ["mine.txt"]


def test_an_export_that_dies_half_way_leaves_no_folder_and_the_next_one_tidies_up(
    world: TrainingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.random_paths(2)
    abandoned = world.folder / ".d.partial-999999999"  # what a killed process leaves: no process has this number
    abandoned.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(snapshots, "card_text", lambda *args, **named: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    assert not [path for path in world.folder.iterdir() if "d" in path.name.split(".")]
    assert export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW).rows == 2


def test_the_registry_names_every_source_node_and_the_whole_manifest(world: TrainingWorld) -> None:
    world.paths([("t", PROMPT, "warps 8"), ("t", PROMPT, "warps 2")], tags=("licence:mit",))
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    (row,) = world.tables.read("datasets").to_pylist()
    assert (row["dataset_id"], row["form"], row["num_rows"]) == (snapshot.dataset_id, "step", 2)
    assert (row["source_node_ids"], row["tags"]) == (["n0", "n1"], ["licence:mit"])
    assert json.loads(row["manifest"]) == json.loads(snapshot.manifest.read_text())


def test_a_folder_of_the_same_name_never_answers_from_the_cache_of_another_snapshot(world: TrainingWorld) -> None:
    world.random_paths(3)
    first = load(export_view(world.home, "sft_trajectories", world.folder / "a" / "d", now=NOW).dir)
    world.paths([("t", PROMPT, "warps 8")], first=100)
    second = load(export_view(world.home, "sft_trajectories", world.folder / "b" / "d", now=NOW).dir)
    assert (len(first), len(second)) == (3, 4)


# ---- splits ----------------------------------------------------------------------------------------


def test_a_split_follows_the_task_alone_and_train_is_never_empty() -> None:
    settings = DatasetSettings(split_salt="s", test_percent=30, rows_per_shard=10, rows_per_group=10)
    tasks = [f"t{number}" for number in range(200)]
    of_task = dict(zip(tasks, splits_of(tasks, settings), strict=True))
    assert 30 < sum(split == "test" for split in of_task.values()) < 90
    assert splits_of([*tasks, "newcomer"], settings)[:200] == list(of_task.values())
    lonely = next(task for task in tasks if split_of(task, settings) == "test")
    assert splits_of([lonely, lonely], settings) == ["train", "train"]


def test_siblings_never_straddle_the_splits(world: TrainingWorld) -> None:
    edits = [(f"task{number % 40}", PROMPT, f"warps {number}") for number in range(80)]
    world.paths(edits)
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    train, test = set(load(snapshot.dir)["task_id"]), set(load(snapshot.dir, "test")["task_id"])
    assert train and test and not train & test
    assert snapshot.splits["train"] + snapshot.splits["test"] == 80


# ---- retraction, damage, wrong use -------------------------------------------------------------------


def reach(world: TrainingWorld, node_id: str, retraction_id: str = "r1") -> None:
    row = {"retraction_id": retraction_id, "node_id": node_id, "session_seq": 1, "effect": "self", "kind": "withdraw"}
    world.write("node_reach", [row])


def test_a_view_that_lags_behind_a_retraction_is_not_exported(world: TrainingWorld) -> None:
    world.random_paths(3)
    reach(world, "n1")
    with pytest.raises(FlaggedByRetraction, match=r"n1, by r1\); run `espalier refresh`"):
        export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    assert not (world.folder / "d").exists()


def test_a_retraction_after_the_export_flags_the_snapshot_and_one_elsewhere_does_not(world: TrainingWorld) -> None:
    world.random_paths(3)
    snapshot = open_snapshot(export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW).dir)
    reach(world, "another")
    demand_not_flagged(world.home, snapshot)
    reach(world, "n2", "r2")
    with pytest.raises(FlaggedByRetraction, match="1 of 3 examples rest on nodes retracted since by r2"):
        demand_not_flagged(world.home, snapshot)


def test_a_retraction_that_the_view_already_took_into_account_flags_nothing(world: TrainingWorld) -> None:
    reach(world, "n1")  # its score was invalidated; its text may still be the prompt of a child
    version = world.tables.version("node_reach")
    world.write(
        "sft_trajectories", [path_row("n2", "t", [step("n2", PROMPT, "w 1", parent_id="n1")])], node_reach=version
    )
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    demand_not_flagged(world.home, open_snapshot(snapshot.dir))
    assert json.loads(snapshot.manifest.read_text())["retractions"] == ["r1"]


def test_a_tag_that_came_after_the_view_was_built_counts_at_once(world: TrainingWorld) -> None:
    world.random_paths(3)
    world.write("node_tags", [{"node_id": "n1", "session_seq": 1, "tag": "pii"}])
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    assert (snapshot.rows, snapshot.left_out) == (2, {"policy: tag pii": 1})


@pytest.mark.parametrize(
    ("table", "row", "error"),
    [
        ("retractions", {"retraction_id": "r1", "scope_kind": "node", "scope_id": "n1"}, FlaggedByRetraction),
        ("tag_assignments", {"assignment_id": "a1", "target_kind": "node", "target_id": "n1"}, RefusedByPolicy),
    ],
)
def test_nothing_is_exported_while_a_retraction_or_a_tag_waits_for_a_refresh(
    world: TrainingWorld, table: str, row: dict, error: type[Exception]
) -> None:
    world.random_paths(3)
    dataset = open_snapshot(export_view(world.home, "sft_trajectories", world.folder / "before", now=NOW).dir)
    columns = world.tables.schema(table).columns
    world.tables.upsert(table, pa.Table.from_pylist([row], schema=columns))
    with pytest.raises(error, match="does not know yet; run `espalier refresh` first"):
        export_view(world.home, "sft_trajectories", world.folder / "after", now=NOW)
    if error is FlaggedByRetraction:
        with pytest.raises(error):
            demand_not_flagged(world.home, dataset)


def test_a_shard_that_was_changed_by_hand_is_noticed(world: TrainingWorld) -> None:
    world.random_paths(3)
    snapshot = export_view(world.home, "sft_trajectories", world.folder / "d", now=NOW)
    (shard,) = (snapshot.dir / "data").iterdir()
    shutil.copyfile(snapshot.manifest, shard)
    with pytest.raises(BadInput, match="is not the file that was exported"):
        open_snapshot(snapshot.dir)


def test_wrong_names_are_answered_with_the_right_ones(world: TrainingWorld) -> None:
    with pytest.raises(WrongUse, match="there are sft_trajectories, dpo_pairs, grpo_cohorts, value_examples"):
        export_view(world.home, "nodes", world.folder / "d", now=NOW)
    with pytest.raises(WrongUse, match="there are step and path"):
        export_view(world.home, "sft_trajectories", world.folder / "d", turns="all", now=NOW)
    with pytest.raises(WrongUse, match="'path' says nothing to dpo_pairs"):
        export_view(world.home, "dpo_pairs", world.folder / "d", turns="path", now=NOW)
    with pytest.raises(WrongUse, match="root of the file system"):
        export_view(world.home, "dpo_pairs", "/", now=NOW)
    with pytest.raises(UnknownName, match="espalier refresh"):
        export_view(world.home, "dpo_pairs", world.folder / "d", now=NOW)
