"""Several workers, a process each: they share the ledger and nothing else."""

import multiprocessing
import os
import signal
import sys
import time
from types import FrameType

from kernel_search.worker import Progress
from store.errors import PipelineError
from store.home import Home, open_home
from store.ledger import Ledger, open_ledger

LOOK_SECONDS = 0.5  # between two looks at how far the workers are
INTERRUPTED = 130  # exit code of a process that Ctrl-C stopped


def work_in_processes(
    home: Home, ledger: Ledger, session_id: str, *, workers: int, progress: Progress | None = None
) -> None:
    """Run workers until the session's budget is settled or all of them have ended.

    Raises:
        PipelineError: The workers ended without finishing; the message is the session's own reason.
    """
    context = multiprocessing.get_context("spawn")  # tables and judges do not survive a fork
    processes = [context.Process(target=_work, args=(str(home.path), session_id)) for _ in range(workers)]
    for process in processes:
        process.start()
    try:
        while any(process.is_alive() for process in processes):
            time.sleep(LOOK_SECONDS)
            if progress is not None:
                state = ledger.session(session_id)
                progress(state.attempts_settled, state.attempts_limit)
    except KeyboardInterrupt:
        for process in processes:
            if process.pid is not None and process.is_alive():  # the signal may have reached this process alone
                os.kill(process.pid, signal.SIGINT)
        for process in processes:
            process.join()
        if ledger.session(session_id).status == "running":  # a worker that had not begun leaves no word
            ledger.set_status(session_id, "paused", KeyboardInterrupt.__name__)
        raise
    finally:
        for process in processes:
            process.join()
    state = ledger.session(session_id)
    if state.status == "running" or any(process.exitcode for process in processes):
        reason = state.status_reason or "a worker process ended without a word"
        raise PipelineError(
            f"session {session_id} stopped at {state.attempts_settled} of {state.attempts_limit} attempts ({reason}); "
            f"go on with `espalier search --resume {session_id}`."
        )


def _work(home_path: str, session_id: str) -> None:
    """One worker process, from the ledger's session row alone."""
    from kernel_search.judge import Judge
    from kernel_search.proposers import make_proposer
    from kernel_search.search import make_worker, session_settings

    signal.signal(signal.SIGINT, _stop_once)
    try:
        with open_ledger(open_home(home_path)) as ledger:
            state, settings = ledger.session(session_id), session_settings(ledger, session_id)
            proposer = make_proposer(state.settings["proposer"], settings, model_dir=state.model_dir)
            with Judge(workers=1) as judge:
                make_worker(ledger, session_id, proposer, judge).work()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _stop_once(_signal: int, _frame: FrameType | None) -> None:
    """Stop, and let nothing interrupt the stopping: the parent and the terminal may both ask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt
