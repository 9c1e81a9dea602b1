"""Group *datasets*: an immutable Hugging Face snapshot of each training view, one folder per build."""

import json
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from dagster_project.automation import when_data_changed
from dagster_project.resources import HomeResource, Listener
from store.ids import canonical_json, sha256_text

# name of the asset → the view, and the form that its trainer reads
SNAPSHOTS = {
    "sft_dataset": "sft_trajectories",  # in its per-step form: what the small model of the kernel search is asked in
    "dpo_dataset": "dpo_pairs",
    "grpo_dataset": "grpo_cohorts",
    "value_dataset": "value_examples",
}


def content_digest(manifest: Path) -> str:
    """Digest of a snapshot's files alone.

    Not the dataset_id: that covers the versions of all inputs, which move where no row of the snapshot does, and a
    model must not be trained again for that.
    """
    splits = json.loads(manifest.read_text(encoding="utf-8"))["splits"]
    return sha256_text(canonical_json(splits))[:24]


def _snapshot_asset(name: str, view: str) -> dg.AssetsDefinition:
    @dg.asset(
        name=name,
        deps=[view],
        group_name="datasets",
        kinds={"huggingface", "parquet"},
        automation_condition=when_data_changed(),
        description=f"Snapshot of {view} under the training policy; load it with `datasets.load_dataset(folder)`.",
    )
    def snapshot(
        context: dg.AssetExecutionContext, home: HomeResource, listener: dg.ResourceParam[Listener]
    ) -> dg.MaterializeResult:
        from store.delta import Tables
        from training.snapshots import export_view

        opened = home.open()
        version = Tables(opened).open(view).version()
        directory = opened.datasets / view / f"v{version}-{context.run.run_id[:8]}"
        exported = export_view(
            opened, view, directory, version=version, now=datetime.now(UTC), progress=context.log.info
        )
        return dg.MaterializeResult(
            metadata={
                "dagster/row_count": exported.rows,
                "dagster/uri": str(exported.dir),
                "directory": dg.MetadataValue.path(str(exported.dir)),
                "manifest": dg.MetadataValue.path(str(exported.manifest)),
                "dataset_id": exported.dataset_id,
                "left_out": dg.MetadataValue.json(exported.left_out),
            },
            data_version=dg.DataVersion(content_digest(exported.manifest)),
        )

    return snapshot


snapshot_assets = [_snapshot_asset(name, view) for name, view in SNAPSHOTS.items()]
