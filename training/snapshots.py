"""Exports a training view as an immutable Hugging Face dataset: written whole, or not at all.

Law 2, *same manifest, same rows, same order*: a manifest holds no time and no path, only what its bytes follow
from; so equal manifests name byte-equal shards, on any day and in any folder.
"""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from lineage.access import log_access
from lineage.policy import Policy, read_policy
from store.delta import Tables
from store.errors import BadInput, FlaggedByRetraction, HomeNotUsable, NotEnoughData, WrongUse
from store.home import Home
from store.ids import canonical_json
from store.settings import read_settings
from training.current_reach import demand_current, held_nodes, newly_reached, tags_now
from training.example_rows import Examples, examples_of, form_of
from training.registry import register_dataset
from training.snapshot_card import card_text
from training.snapshot_files import write_splits
from training.snapshot_folder import MANIFEST_FILE, manifest_id, open_snapshot
from training.snapshot_manifest import PinnedView, make_manifest, pin_view, union_over
from training.splits import DatasetSettings
from views.registry import declare_views, view_schema

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Snapshot:
    """An exported snapshot."""

    dir: Path
    rows: int
    left_out: dict[str, int]  # reason → rows
    manifest: Path
    dataset_id: str
    form: str  # path, step, pairs, cohorts or values
    splits: dict[str, int]  # split → rows


def export_view(
    home: Home,
    view: str,
    directory: Path | str,
    *,
    turns: str | None = None,
    principal: str = "local",
    purpose: str = "train",
    version: int | None = None,
    now: datetime,
    progress: Progress | None = None,
) -> Snapshot:
    """Write a snapshot of a view into a new folder that `datasets.load_dataset` reads offline.

    Where the folder already holds the equal snapshot, nothing is written.

    Args:
        home: Where the view lies and the snapshot is registered.
        view: sft_trajectories, dpo_pairs, grpo_cohorts or value_examples.
        directory: A new or empty folder.
        turns: For sft_trajectories alone: `step` (prompt and completion per node; None means it) or `path`
            (messages per path).
        principal: For whom; see conf/governance.yaml.
        purpose: For what; see conf/governance.yaml.
        version: Delta version of the view; None is the latest.
        now: When, for registry and access log; in no digest.
        progress: Called with a line of text now and then.

    Raises:
        WrongUse: The view is none of the four or has no such form, or the folder holds something else.
        UnknownName: The view was never built.
        VersionGone: That version cannot be read any more.
        RefusedByPolicy: The policy refuses this principal or purpose outright, or tags wait for a refresh.
        NotEnoughData: The view has no row, or every row is left out; no folder is made.
        FlaggedByRetraction: The version holds nodes that a retraction has reached since, or retractions wait
            for a refresh.
    """
    say = progress or (lambda text: None)
    form = form_of(view, turns)
    policy = read_policy()
    target = Path(directory).absolute()
    if not target.name:
        raise WrongUse(f"{target} is the root of the file system; name a folder of its own for the snapshot.")
    tables = Tables(home)
    declare_views(tables)
    _demand_purpose(tables, policy, view, principal, purpose, now)
    demand_current(tables)
    pinned = pin_view(tables, view, version)
    say(f"reading {view} version {pinned.version}")
    rows = tables.read(view, version=pinned.version)
    rows = rows.sort_by([(column, "ascending") for column in view_schema(view).key])
    _demand_not_reached(tables, view, pinned, rows)
    examples = examples_of(
        rows,
        form,
        lambda tags: policy.check(principal, purpose, tags),
        newer_tags=tags_now(tables),
        tell=lambda done: say(f"{done} rows checked"),
    )
    _demand_rows(examples, view, pinned)
    request = {"principal": principal, "purpose": purpose, "digest": policy.digest}
    snapshot = _write(target, view, pinned, examples, request, tables, say)
    _register(home, tables, view, pinned, examples, snapshot, request, now)
    return snapshot


def _demand_purpose(tables: Tables, policy: Policy, view: str, principal: str, purpose: str, now: datetime) -> None:
    """Refuse a principal or purpose outright, and write down that it was asked."""
    decision = policy.check(principal, purpose, ())
    if not decision.allowed:
        log_access(
            tables,
            principal=principal,
            purpose=purpose,
            relation=view,
            policy_digest=policy.digest,
            num_allowed=0,
            left_out={f"policy: {decision.reason}": 1},
            now=now,
        )
    policy.demand(principal, purpose)


def _demand_not_reached(tables: Tables, view: str, pinned: PinnedView, rows: pa.Table) -> None:
    """Refuse rows that a retraction reached after they were made: law 3 holds for old versions too."""
    reached = newly_reached(tables, pinned.inputs.get("node_reach"))
    if reached:
        hits = sorted(set().union(*held_nodes(rows)) & set(reached))
        if hits:
            raise FlaggedByRetraction(
                f"{view}@{pinned.version} holds {len(hits)} nodes retracted since it was built (first: {hits[0]}, by "
                f"{reached[hits[0]]}); run `espalier refresh` and export the latest version."
            )


def _demand_rows(examples: Examples, view: str, pinned: PinnedView) -> None:
    if not examples.rows:
        reasons = ", ".join(f"{count} {reason}" for reason, count in examples.left_out.items()) or "nothing left out"
        raise NotEnoughData(
            f"{view}@{pinned.version} gives no row to export ({reasons}), and `load_dataset` cannot read a dataset "
            "without rows; search or ingest more, then refresh."
        )


def _write(
    directory: Path,
    view: str,
    pinned: PinnedView,
    examples: Examples,
    request: dict[str, str],
    tables: Tables,
    say: Progress,
) -> Snapshot:
    """Write into a folder beside the target, then rename; an equal snapshot that is there already stays."""
    settings = read_settings(DatasetSettings, "datasets.yaml")
    partial = directory.with_name(f".{directory.name}.partial-{os.getpid()}")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(directory)
        partial.mkdir()
        say(f"writing {len(examples.rows)} rows")
        splits = write_splits(examples, partial, settings)
        manifest = make_manifest(view, pinned, examples, request, splits, settings, tables)
        dataset_id = manifest_id(manifest)
        (partial / MANIFEST_FILE).write_text(canonical_json(manifest) + "\n", encoding="utf-8")
        (partial / "README.md").write_text(card_text(manifest, dataset_id=dataset_id), encoding="utf-8")
        _move_into_place(partial, directory, dataset_id)
    except OSError as error:
        raise HomeNotUsable(
            f"{error.filename or directory} cannot be written ({error.strerror or error}); name another DIR."
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Snapshot(
        directory,
        len(examples.rows),
        examples.left_out,
        directory / MANIFEST_FILE,
        dataset_id,
        examples.form,
        {split: content["rows"] for split, content in splits.items()},
    )


def _move_into_place(partial: Path, directory: Path, dataset_id: str) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        try:
            there = open_snapshot(directory).dataset_id
        except BadInput:
            there = None
        if there != dataset_id:
            what = "something else" if there is None else f"another snapshot ({there})"
            raise WrongUse(f"{directory} holds {what}, and a snapshot is never overwritten; name a new folder.")
        return
    if directory.exists():
        directory.rmdir()
    partial.rename(directory)


def _remove_abandoned(directory: Path) -> None:
    """Remove what exports into this folder left behind when they were killed."""
    pattern = re.compile(re.escape(f".{directory.name}.partial-") + r"(\d+)")
    for folder in directory.parent.iterdir():
        match = pattern.fullmatch(folder.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _register(
    home: Home,
    tables: Tables,
    view: str,
    pinned: PinnedView,
    examples: Examples,
    snapshot: Snapshot,
    request: dict[str, str],
    now: datetime,
) -> None:
    registered = {
        (row["dataset_id"], row["directory"])
        for row in tables.read("datasets", columns=["dataset_id", "directory"]).to_pylist()
    }
    if (snapshot.dataset_id, str(snapshot.dir)) not in registered:
        register_dataset(
            home,
            {
                "dataset_id": snapshot.dataset_id,
                "view": view,
                "form": snapshot.form,
                "directory": str(snapshot.dir),
                "view_version": pinned.version,
                "data_version": pinned.data_version,
                "num_rows": snapshot.rows,
                "source_node_ids": union_over(examples, "source_node_ids"),
                "tags": union_over(examples, "tags"),
                "principal": request["principal"],
                "purpose": request["purpose"],
                "manifest": snapshot.manifest.read_text(encoding="utf-8").strip(),
                "created_at": now,
            },
        )
    log_access(
        tables,
        principal=request["principal"],
        purpose=request["purpose"],
        relation=view,
        policy_digest=request["digest"],
        num_allowed=snapshot.rows,
        left_out=snapshot.left_out,
        now=now,
    )
