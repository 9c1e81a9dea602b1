"""The search and its judge: `search` and `judge`. Every number of theirs is a model's estimate."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cli.program import ANSWER_IS_NO, DONE, FAILED, Answer, Call, command
from store.errors import BadInput, WrongUse

VERDICT = ("verdict", "failure_class", "checks", "metrics", "fitness", "reward", "fitness_basis", "environment_digest")


def add_commands(app: typer.Typer) -> None:
    """Register the commands of this file."""
    command(app, "search")(search)
    command(app, "judge")(judge)


def search(
    call: Call,
    task: Annotated[
        str | None, typer.Option("--task", help="vector_add, softmax, rms_norm or matmul.", show_default=False)
    ] = None,
    policy: Annotated[str, typer.Option("--policy", help="How parents are chosen.")] = "greedy",
    proposer: Annotated[str, typer.Option("--proposer", help="Who proposes: rules, uniform or model.")] = "rules",
    steps: Annotated[int, typer.Option("--steps", min=1, help="Attempts; the seed kernel is not counted.")] = 40,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Candidates judged at the same time.")] = 1,
    group_size: Annotated[int, typer.Option("--group-size", min=1, help="Siblings from one prompt.")] = 4,
    seed: Annotated[int, typer.Option("--seed", help="Seed of every random choice.")] = 0,
    model: Annotated[
        Path | None, typer.Option("--model", help="Model folder, for --proposer model.", show_default=False)
    ] = None,
    resume: Annotated[
        str | None, typer.Option("--resume", metavar="SESSION", help="Go on with a session.", show_default=False)
    ] = None,
) -> Answer:
    """Search for faster Triton kernels; every attempt becomes a node in the tables."""
    from kernel_search.tasks import kernel_task

    if (task is None) == (resume is None):
        raise WrongUse("`espalier search` takes either --task, for a new session, or --resume SESSION.")
    if (proposer == "model") != (model is not None) and resume is None:
        raise WrongUse(
            "--proposer model and --model DIR go together; `espalier models` lists the folders of trained ones."
        )
    if task is not None:
        kernel_task(task)
    from kernel_search.search import resume_session, run_search
    from transforms.ingest import ingest_ledger

    home = call.home()
    with call.progress("search") as progress:
        if resume is not None:
            summary = resume_session(home, resume, workers=workers, progress=progress)
        else:
            assert task is not None
            summary = run_search(
                home,
                task=task,
                policy=policy,
                proposer=proposer,
                steps=steps,
                workers=workers,
                group_size=group_size,
                seed=seed,
                model_dir=model,
                progress=progress,
            )
    with call.progress("ledger to tables"):
        ingest_ledger(home, now=call.now)
    from cli.output import plain

    content = {**plain(summary), "estimates": _heading()}
    return Answer(content, lambda console: _draw_summary(console, content))


def judge(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="One Python file: Triton kernels and run(*inputs).")],
    task: Annotated[str, typer.Option("--task", help="vector_add, softmax, rms_norm or matmul.", show_default=False)],
    seed: Annotated[int, typer.Option("--seed", help="Seed of the inputs.")] = 0,
) -> Answer:
    """Judge one candidate kernel: compiled, run in the interpreter against a reference, estimated."""
    from kernel_search.tasks import kernel_task

    the_task = kernel_task(task)
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"candidate {file} cannot be read ({reason}); name one Python file.") from error
    from kernel_search.judge import Judge

    with call.progress("judge"), Judge(workers=1) as judging:
        verdict = judging.judge(source, the_task, seed=seed)
    content = {key: getattr(verdict, key) for key in VERDICT}
    content |= {"outcome": verdict.outcome, "verifier": verdict.verifier, "seconds": verdict.seconds}
    content |= {"evidence": verdict.evidence, "estimates": _heading()}
    by_verdict = DONE if verdict.is_accepted else ANSWER_IS_NO
    return Answer(
        content,
        lambda console: _draw_verdict(console, str(file), content),
        FAILED if verdict.outcome == "unknown" else by_verdict,
    )


def _heading() -> str:
    from store.verdicts import ESTIMATE_HEADING

    return ESTIMATE_HEADING


def _draw_summary(console: Console, content: dict[str, Any]) -> None:
    from cli.output import draw_fields

    counts = {key: value for key, value in content.items() if not isinstance(value, dict | list) and key != "estimates"}
    draw_fields(console, counts, title="Searched")
    if content.get("best"):
        best = content["best"] if isinstance(content["best"], dict) else {"best": content["best"]}
        draw_fields(console, best, title=f"\nBest ({_heading()})")
    for name in ("failure_classes", "kinds_used"):
        if content.get(name):
            draw_fields(console, content[name], title=f"\n{name.replace('_', ' ')}")


def _draw_verdict(console: Console, file: str, content: dict[str, Any]) -> None:
    from cli.output import draw_metrics, draw_table, plain

    because = f" ({content['failure_class']})" if content["failure_class"] else ""
    console.print(
        f"{content['verdict']}{because}: {file}", style="green" if content["verdict"] == "accepted" else "red"
    )
    checks = [(check["name"], check["passed"], check["detail"]) for check in plain(content["checks"])]
    draw_table(console, ["check", "passed", "detail"], checks)
    draw_metrics(console, {"fitness": content["fitness"], "reward": content["reward"], **content["metrics"]})
