"""One OpenEvolve program as a node: its score, whether it is a copy, and the conversation that made it."""

from typing import Any

from transforms.logs.json_values import parse_json
from transforms.logs.openevolve_launches import Launch, ProgramHead
from transforms.records import MessageRecord, NodeRecord
from transforms.scoring import Score, as_count, as_number, reward_of, score_metric

FORMAT = "openevolve"
OPERATORS = {"diff_user": "diff", "full_rewrite_user": "full_rewrite"}


def program_record(
    content: dict[str, Any],
    head: ProgramHead,
    parent: ProgramHead | None,
    launch: Launch,
    features: frozenset[str],
) -> NodeRecord:
    """The node of a program.

    Args:
        content: The program's JSON object.
        head: Its head.
        parent: Its parent's head, where the folder holds it.
        launch: The launch it belongs to.
        features: Names of the map's feature dimensions, which are no score.
    """
    node_id, session_id = launch.node_id(head.native_id, FORMAT), launch.session_of(head.native_id)
    metadata = content.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    copy_kind = _copy_kind(content, metadata, head, parent)
    score = program_score(content["metrics"], features)
    parent_id = None if head.parent_id is None else launch.node_id(head.parent_id, FORMAT)
    turns, template = chat_turns(content)
    island = metadata.get("island")
    return NodeRecord(
        node_id,
        session_id,
        launch.task_id,
        parent_id=parent_id,
        order=head.order,
        generation=as_count(content.get("generation")),
        island=None if island is None else str(island),
        operator=_operator(head, copy_kind, template),
        copy_of=parent_id if copy_kind else None,
        copy_kind=copy_kind,
        artifact=content["code"],
        fitness=score.fitness,
        reward=reward_of(score, None),
        metrics=content["metrics"],
        is_buggy=score.is_buggy,
        failure_class=score.failure_class,
        evidence=_evidence(content, metadata, score),
        outcome="failed" if score.is_buggy else "succeeded",
        messages=tuple(
            MessageRecord(node_id, session_id, turn, role, content=text, place=f"prompts.{template}")
            for turn, (role, text) in enumerate(turns)
        ),
        place=head.file.name,
    )


def program_score(metrics: dict[str, Any], features: frozenset[str]) -> Score:
    """The score of a program: `combined_score`, else the mean of its other numbers; everything is maximised.

    An error text or a timeout is a failure, and so is a score of 0 that stands alone: the writer puts it there when
    the evaluation broke. A 0 beside other metrics is a bad score.
    """
    error = metrics.get("error")
    if metrics.get("timeout") is True:
        return Score(None, True, "timeout")
    if isinstance(error, str):
        return Score(None, True, "evaluation_error")
    if "combined_score" in metrics:
        stated = metrics["combined_score"]
        if set(metrics) == {"combined_score"} and as_number(stated) == 0.0:
            return Score(None, True, "no_metric")
        return score_metric(stated, "max")
    numbers = [as_number(value) for name, value in metrics.items() if name not in features]
    kept = [number for number in numbers if number is not None]
    if not kept:
        return Score(None, True, "no_metric" if not metrics else "non_numeric_metric")
    return score_metric(sum(kept) / len(kept), "max")


def chat_turns(content: dict[str, Any]) -> tuple[list[tuple[str, str]], str | None]:
    """The turns (role, text) of the call that made the program, and the name of its prompt template.

    A template without an answer made no program. Where the model was asked again, the last answer counts.
    """
    prompts = content.get("prompts")
    if not isinstance(prompts, dict):
        return [], None
    for template in sorted(prompts, key=lambda name: (name not in OPERATORS, name)):
        call = prompts[template]
        answers = call.get("responses") if isinstance(call, dict) else None
        texts = [answer for answer in answers if isinstance(answer, str)] if isinstance(answers, list) else []
        if not texts:
            continue
        asked = [(role, call.get(role)) for role in ("system", "user")]
        turns = [(role, text) for role, text in asked if isinstance(text, str) and text]
        return [*turns, ("assistant", texts[-1])], template
    return [], None


def _copy_kind(
    content: dict[str, Any], metadata: dict[str, Any], head: ProgramHead, parent: ProgramHead | None
) -> str | None:
    """Whether the program is no attempt of its own.

    A migrant says so. An island is seeded with a copy that nobody proposed: no prompt, no description of a change, no
    parent's metrics to compare with, and, where its parent is at hand, the parent's code.
    """
    if head.parent_id is None:
        return None
    if metadata.get("migrant") is True:
        return "migrant"
    was_proposed = content.get("prompts") or "changes" in metadata or "parent_metrics" in metadata
    if was_proposed or content.get("changes_description"):
        return None
    return "island_seed" if parent is None or parent.code_digest == head.code_digest else None


def _operator(head: ProgramHead, copy_kind: str | None, template: str | None) -> str | None:
    if head.parent_id is None:
        return "seed"
    return None if copy_kind else OPERATORS.get(template or "", "mutate")


def _evidence(content: dict[str, Any], metadata: dict[str, Any], score: Score) -> dict[str, Any]:
    evidence: dict[str, Any] = {}
    if score.is_buggy and isinstance(content["metrics"].get("error"), str):
        evidence["error"] = content["metrics"]["error"]
    if isinstance(metadata.get("changes"), str):
        evidence["changes"] = metadata["changes"]
    artifacts = content.get("artifacts_json")
    if isinstance(artifacts, str):
        try:
            evidence["artifacts"] = parse_json(artifacts)
        except ValueError:
            evidence["artifacts"] = artifacts
    elif artifacts is not None:
        evidence["artifacts"] = artifacts
    return evidence
