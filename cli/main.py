"""The program `espalier`: assembles the commands, and leaves with an exit code that holds."""

import io
import logging
import os
import sys

import typer

from cli import datasets, governance, health, logs, maintenance, nodes, registry, search, tables
from cli.program import FAILED, INTERRUPTED, report_error, shared_options

app = typer.Typer(
    name="espalier",
    help="Exploration logs to tables, views, datasets and models, and back to search.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
app.callback(invoke_without_command=True)(shared_options)
for group in (logs, maintenance, tables, nodes, datasets, search, governance, registry, health):
    group.add_commands(app)


def run(arguments: list[str]) -> int:
    """Run the program on its arguments and return the exit code; prints to stdout and stderr."""
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # a refused query is one line, ours
    try:
        code = app(args=arguments, prog_name="espalier", standalone_mode=False)
    except typer.TyperException as error:
        return report_error("WrongUse", _usage_message(error), as_json="--json" in arguments)
    except typer.Abort:
        return INTERRUPTED
    return code if isinstance(code, int) else 0


def _usage_message(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "espalier"
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{message}; `{path} --help` says what is possible."


def main() -> None:
    """Entry of the program.

    It flushes and leaves by `os._exit`: a process that read tables with deltalake and pyarrow sometimes aborts
    while the interpreter shuts down, and the exit code must say what the command found.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to fail
    try:
        code = run(sys.argv[1:])
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else FAILED
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        pass
    os._exit(code)
