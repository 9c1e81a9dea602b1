"""The README.md of a snapshot: YAML that `datasets.load_dataset(folder)` reads, and what a person should know."""

from typing import Any

import yaml

COLUMN_NOTES = {
    "step": (
        "`prompt` and `completion` are TRL's conversational prompt-completion columns: one answer per node, each "
        "node once."
    ),
    "path": "`messages` is TRL's conversational column: a whole path from its first node to its leaf.",
    "pairs": (
        "`prompt`, `chosen` and `rejected` are TRL's conversational preference columns; `gap` is the difference in "
        "fitness."
    ),
    "cohorts": (
        "`prompt` is TRL's column; `completion`, `reward` and `advantage` are what was sampled and how it scored "
        "within its `cohort_id`. Only cohorts with `same_prompt` train as one group."
    ),
    "values": (
        "One row per attempt, for regression. Columns up to `budget_left` are what the search knew when the attempt "
        "was scored; then comes its own score as it is known now. `gain`, `best_descendant_id`, "
        "`best_descendant_fitness` and `num_descendants` are labels and see the future: none of them may be an input. "
        "`gain` is unknown where nothing comparable was made from the attempt, and where it failed."
    ),
}
USES = {
    "step": "as it is for trl.SFTTrainer",
    "path": "as it is for trl.SFTTrainer",
    "pairs": "as it is for trl.DPOTrainer",
    "cohorts": "as it is for trl.GRPOTrainer",
    "values": 'rows.filter(lambda row: row["gain"] is not None) has the labelled ones',
}


def card_text(manifest: dict[str, Any], *, dataset_id: str) -> str:
    """The card's whole text; equal manifests give equal text."""
    header = {
        "configs": [
            {
                "config_name": "default",
                "data_files": [
                    {"split": split, "path": [shard["path"] for shard in content["shards"]]}
                    for split, content in manifest["splits"].items()
                ],
                "default": True,
            }
        ],
        "pretty_name": f"{manifest['view']} ({manifest['form']})",
        "tags": ["espalier", *([] if manifest["form"] == "values" else ["trl"]), manifest["form"]],
    }
    parts = [
        "---\n" + yaml.safe_dump(header, sort_keys=False, allow_unicode=True) + "---",
        f"# {manifest['view']} ({manifest['form']})",
        f"Snapshot `{dataset_id}` of `{manifest['view']}` at version {manifest['view_version']}, made for "
        f"{manifest['policy']['principal']} to {manifest['policy']['purpose']}. It never changes: `manifest.json` "
        "holds the digest of every file and the version of every input.",
        COLUMN_NOTES[manifest["form"]],
        _loading(manifest["form"]),
        _numbers(manifest),
        _left_out(manifest),
        _scores(manifest),
        _rights(manifest),
    ]
    return "\n\n".join(parts) + "\n"


def _loading(form: str) -> str:
    return (
        "```python\nfrom datasets import load_dataset\n\n"
        f'rows = load_dataset("PATH_OF_THIS_FOLDER", split="train")  # {USES[form]}\n```'
    )


def _numbers(manifest: dict[str, Any]) -> str:
    lines = ["| split | rows |", "| --- | --- |"]
    lines += [f"| {split} | {content['rows']} |" for split, content in manifest["splits"].items()]
    split = manifest["split"]
    rule = f"Split rule: {split['rule']} (salt `{split['salt']}`, test_percent {split['test_percent']})."
    return "## Rows\n\n" + "\n".join(lines) + f"\n\n{rule}"


def _left_out(manifest: dict[str, Any]) -> str:
    if not manifest["left_out"]:
        return "## Left out\n\nNothing."
    lines = ["| reason | rows |", "| --- | --- |"]
    lines += [f"| {reason} | {count} |" for reason, count in manifest["left_out"].items()]
    return "## Left out\n\n" + "\n".join(lines)


def _scores(manifest: dict[str, Any]) -> str:
    bases = manifest["fitness_bases"]
    named = ", ".join(f"`{basis}`" for basis in bases) or "unknown"
    text = f"## Scores\n\nFitness is higher-is-better; its basis: {named}."
    if any(basis.startswith("estimated") for basis in bases):
        text += " **Estimated scores are a model's estimate: nothing was run on a GPU.**"
    return text


def _rights(manifest: dict[str, Any]) -> str:
    tags = ", ".join(f"`{tag}`" for tag in manifest["tags"]) or "none"
    retracted = ", ".join(f"`{one}`" for one in manifest["retractions"]) or "none"
    return (
        f"## Right to use\n\nTags of its content: {tags}. Retractions already taken into account: {retracted}. Before "
        "you train on it again later, check that no newer retraction reached it; `espalier train` does."
    )
