"""What every command shares: --home, --json, --debug, one line per error, exit codes, progress on a terminal.

A command is a function that takes its `Call` first and returns an `Answer`; `command` registers it and adds
the shared options, so that people may type them before or after the command's name.

    exit 0   done
    exit 1   the answer is no: a check failed, a candidate was rejected
    exit 2   wrong use, bad input, or a fault of the program; one line on stderr says which
"""

import contextlib
import enum
import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from store.errors import HomeNotUsable, PipelineError
from store.home import Home, default_home, open_home

if TYPE_CHECKING:
    from rich.console import Console

DONE, ANSWER_IS_NO, FAILED = 0, 1, 2
INTERRUPTED = 130

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help="Folder of all data [ESPALIER_HOME, else ./data].", show_default=False),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, everything else on stderr.")]


class Engine(enum.Enum):
    """Who computes."""

    DUCKDB = "duckdb"
    SPARK = "spark"


EngineOption = Annotated[
    Engine,
    typer.Option("--engine", envvar="ESPALIER_ENGINE", help="Who computes; Spark is set up by conf/spark.yaml."),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@dataclass(frozen=True)
class Answer:
    """What a command found out.

    Args:
        content: The object that `--json` prints.
        draw: Prints the same for a person.
        exit_code: `DONE`, or `ANSWER_IS_NO`.
    """

    content: Mapping[str, Any]
    draw: "Callable[[Console], None]"
    exit_code: int = DONE


@dataclass(frozen=True)
class Call:
    """How a command was called: where the data lies, how to answer, when."""

    home_path: Path | None
    as_json: bool
    debug: bool
    now: datetime

    def with_options(self, home: Path | None, as_json: bool, debug: bool) -> "Call":
        """This call with what was typed further to the right."""
        return Call(home or self.home_path, as_json or self.as_json, debug or self.debug, self.now)

    def home(self) -> Home:
        """The home folder, created where it is missing: for commands that write.

        Raises:
            HomeNotUsable: It cannot be created or written.
        """
        return open_home(self.home_path)

    def existing_home(self) -> Home:
        """The home folder as it is: for commands that only read, which must not create one by a typing error.

        Raises:
            HomeNotUsable: There is none, or it cannot be written.
        """
        path = (self.home_path or default_home()).expanduser().absolute()
        if not Home(path).tables.is_dir():  # any other folder called data must not become one
            raise HomeNotUsable(
                f"no home folder at {path}; `espalier ingest PATH` or `make run` makes one, --home DIR names another."
            )
        return open_home(path)

    def progress(self, title: str) -> contextlib.AbstractContextManager["Progress"]:
        """A progress display on stderr, on a terminal only; its value is what functions take as `progress`."""
        return _progress(title)


class Progress:
    """The callback that long-running functions report to: a text, or how many are done of how many."""

    def __init__(self, show: Callable[[str | None, int | None, int | None], None]) -> None:
        self._show = show

    def __call__(self, *event: str | int | None) -> None:
        """Report (text), (done, total) or (text, done, total); an unknown total is None."""
        text = next((part for part in event if isinstance(part, str)), None)
        numbers = [part for part in event if not isinstance(part, str)]
        done, total = [*numbers, None, None][:2]
        self._show(text, done, total)


def progress_label(title: str, text: str | None) -> str:
    """What stands before the bar: the title and what is under way, which may begin with the title's own words."""
    if text is None:
        return title
    return text if text == title or text.startswith(f"{title} ") else f"{title}: {text}"


@contextlib.contextmanager
def _progress(title: str) -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield Progress(lambda text, done, total: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}", markup=False),
        TimeElapsedColumn(),
    )
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(title, total=None, count="")

        def show(text: str | None, done: int | None, total: int | None) -> None:
            description = progress_label(title, text)
            if done is None:
                display.update(task, description=description)
                return
            count = f"{done}" if total is None else f"{done} of {total}"
            display.update(task, description=description, completed=done, total=total, count=count)

        yield Progress(show)


def command(app: typer.Typer, name: str, **settings: Any) -> Callable[[Callable[..., Answer]], Callable[..., Answer]]:
    """Register a function as a command; its docstring is the help, its first argument the `Call`."""

    def register(function: Callable[..., Answer]) -> Callable[..., Answer]:
        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [
            inspect.Parameter("shared_home", keyword, default=None, annotation=HomeOption),
            inspect.Parameter("shared_json", keyword, default=False, annotation=JsonOption),
            inspect.Parameter("shared_debug", keyword, default=False, annotation=DebugOption),
        ]
        context = inspect.Parameter("context", keyword, annotation=typer.Context)
        parameters = [context, *(parameter.replace(kind=keyword) for parameter in own), *shared]

        @functools.wraps(function)
        def run_command(**arguments: Any) -> None:
            outer: Call = arguments.pop("context").obj
            home, as_json, debug = (arguments.pop(f"shared_{option}") for option in ("home", "json", "debug"))
            call = outer.with_options(home, as_json, debug)
            raise typer.Exit(_answer(call, lambda: function(call, **arguments)))

        del run_command.__wrapped__  # typer would follow it to the function's own signature
        run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run_command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name, **settings)(run_command)
        return function

    return register


def shared_options(
    context: typer.Context, home: HomeOption = None, as_json: JsonOption = False, debug: DebugOption = False
) -> None:
    """Keep the options that were typed before a command's or a group's name; without a command, show the help."""
    outer = context.obj if isinstance(context.obj, Call) else Call(None, False, False, datetime.now(UTC))
    context.obj = outer.with_options(home, as_json, debug)
    if context.invoked_subcommand is None and context.obj.as_json:
        message = f"no command was named; `{context.command_path} --help` lists them."
        raise typer.Exit(report_error("WrongUse", message, as_json=True))
    if context.invoked_subcommand is None:
        print(context.get_help())


def _answer(call: Call, function: Callable[[], Answer]) -> int:
    """Run a command and print what it answers; return the exit code."""
    with _stdout_for_the_answer(call.as_json) as stdout:
        try:
            answer = function()
            _print(answer, call, stdout)
        except typer.Exit as leaving:
            return leaving.exit_code
        except KeyboardInterrupt:
            print("Interrupted: stopped as asked; what was committed stays.", file=sys.stderr)
            return INTERRUPTED
        except BaseException as error:  # a panic of a Rust library is no Exception
            if isinstance(error, SystemExit):
                raise
            return _report(error, call, stdout)
        return answer.exit_code


def _print(answer: Answer, call: Call, stdout: TextIO) -> None:
    from cli.output import json_text, terminal

    try:
        if call.as_json:
            print(json_text(answer.content), file=stdout, flush=True)
        else:
            answer.draw(terminal(stdout))
            stdout.flush()
    except (BrokenPipeError, SystemExit):  # the reader, such as `head`, has seen enough; rich leaves by SystemExit
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout.fileno())


def _report(error: BaseException, call: Call, stdout: TextIO) -> int:
    if call.debug:
        traceback.print_exception(error)
    return report_error(type(error).__name__, error_message(error), as_json=call.as_json, stdout=stdout)


def report_error(name: str, message: str, *, as_json: bool, stdout: TextIO | None = None) -> int:
    """Print one line on stderr and, for a script, the object {error, message} on stdout; return the exit code."""
    print(f"{name}: {message}", file=sys.stderr, flush=True)
    if as_json:
        from cli.output import json_text

        print(json_text({"error": name, "message": message}), file=stdout or sys.stdout, flush=True)
    return FAILED


def error_message(error: BaseException) -> str:
    """One line for a person; for a fault of the program it says where the details are."""
    message = " ".join(str(error).split())
    if isinstance(error, PipelineError):
        return message
    return f"{message or 'no message'} (a fault of the program; --debug shows where)"


@contextlib.contextmanager
def _stdout_for_the_answer(keep_clean: bool) -> Iterator[TextIO]:
    """Hand out stdout; with `keep_clean` whatever else is printed meanwhile, by children too, goes to stderr."""
    stdout = sys.stdout
    if not keep_clean:
        yield stdout
        return
    with contextlib.ExitStack() as undo:
        undo.enter_context(contextlib.redirect_stdout(sys.stderr))
        try:
            real = stdout.fileno()
            error_stream = sys.stderr.fileno()
        except (OSError, ValueError, AttributeError):  # a test's stand-in has no file descriptor
            yield stdout
            return
        stdout.flush()
        answer_stream = os.fdopen(os.dup(real), "w", encoding="utf-8", errors="backslashreplace")
        kept = os.dup(real)
        os.dup2(error_stream, real)
        undo.callback(os.close, kept)
        undo.callback(os.dup2, kept, real)
        undo.enter_context(answer_stream)
        yield answer_stream
