"""What a child starts ends with it, and no other process is in its reach: tried by code that no screen looked at."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from judging import ask_unscreened, warm_judge
from kernel_search.judge import paths
from kernel_search.judge.client import ServerDied, clean_environment
from process_watch import is_alive, wait_for


def run_clean(code: str) -> str:
    """Run code in a Python of its own, as clean as a server's, and return what it printed."""
    environment = clean_environment("compile")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


LEAVES_SOMEBODY = """
import ctypes, os, time
libc = ctypes.CDLL(None)


def stay():
    libc.prctl(1, 0, 0, 0, 0)
    for call in (os.setsid, lambda: os.setpgid(0, 0)):
        try:
            call()
        except OSError:
            pass
    os.closerange(0, 128)
    time.sleep(30)


def chain():
    os.closerange(0, 128)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)


def orphan():
    if os.fork() == 0:
        stay()


read, write = os.pipe()
if os.fork() == 0:
    os.write(write, str(os.getpid()).encode().rjust(8))
    {leave}()
    os._exit(0)
raise ValueError("left " + os.read(read, 8).decode())
"""


def suppressed(action, *args):
    with contextlib.suppress(ServerDied):
        action(*args)


def started_by(process_id: int) -> list[int]:
    """Living processes that descend from one; a server adopts those whose parents are gone."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
    found = {process_id}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    return [child for child in found - {process_id} if is_alive(child)]


@pytest.mark.parametrize("leave", ["stay", "chain", "orphan"])
def test_nothing_that_a_compiling_child_starts_outlives_its_reply(leave):
    compiler = warm_judge()._pipeline.compiler
    source = LEAVES_SOMEBODY.replace("{leave}", leave)
    body = {"source": source, "target": "sm90", "launch": {"kernel": "k"}, "accesses_per_thread": 1}
    reply = ask_unscreened(compiler, "compile_launch", "", may_execute=paths.compiler_tools(), body=body)
    assert "left" in reply.result["fault"][1]
    assert not is_alive(int(reply.result["fault"][1].split()[-1]))
    assert started_by(compiler.process_number) == []


def test_a_child_dies_with_its_server():
    interpreter = warm_judge()._pipeline.interpreter
    asking = threading.Thread(
        target=lambda: suppressed(ask_unscreened, interpreter, "interpret", "import time; time.sleep(30)")
    )
    asking.start()
    children = wait_for(lambda: started_by(interpreter.process_number))
    time.sleep(0.3)  # by now its walls are closed, and its user changed
    os.kill(interpreter.process_number, signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, children)), seconds=5)
    asking.join()
    interpreter.restart_if_dead()


OUTSIDE_THE_GROUP = """
import os, time
from kernel_search.judge import sandbox, server
sandbox.adopt_orphans()
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        os.write(write, str(os.getpid()).encode())
        time.sleep(30)
    os._exit(0)
left = int(os.read(read, 16))
keeper = os.fork()
if keeper == 0:
    time.sleep(30)
serving = object.__new__(server.ForkServer)
serving.children = {keeper: None}
serving._kill_orphans()
print(os.path.exists(f"/proc/{left}"), os.path.exists(f"/proc/{keeper}"))
os.kill(keeper, 9)
"""


def test_without_seccomp_the_server_adopts_and_kills_who_left_the_group():
    assert run_clean(OUTSIDE_THE_GROUP) == "False True"


REACHES = """
import ctypes, fcntl, json, os, resource, signal, sys, threading, time
from kernel_search.judge import seccomp
parent, other = os.getpid(), os.fork()
if other == 0:
    os.closerange(0, 3)
    while os.getppid() == parent:
        time.sleep(0.1)
    os._exit(0)
libc = ctypes.CDLL(None, use_errno=True)
limits, read_end = (ctypes.c_ulong * 2)(0, 0), os.pipe()[0]
on = seccomp.refuse_calls(may_start_processes=True)
tries = {
    "prlimit": lambda: libc.prlimit(other, 0, limits, None),
    "prlimit read": lambda: libc.prlimit(other, 0, None, limits),
    "setpriority": lambda: libc.setpriority(0, other, 19),
    "sched_setaffinity": lambda: libc.sched_setaffinity(other, 8, limits),
    "sched_setscheduler": lambda: libc.sched_setscheduler(other, 3, limits),
    "sched_setparam": lambda: libc.sched_setparam(other, limits),
    "ioprio_set": lambda: libc.syscall(251, 1, other, 0x6000),
    "kill": lambda: libc.kill(other, 9),
    "tgkill": lambda: libc.syscall(234, other, other, 9),
    "pidfd_open": lambda: libc.syscall(434, other, 0),
    "pidfd_getfd": lambda: libc.syscall(438, 3, 0, 0),
    "kcmp": lambda: libc.syscall(312, os.getpid(), other, 2, 0, 0),
    "process_madvise": lambda: libc.syscall(440, 3, 0, 0, 21, 0),
    "signal by a pipe": lambda: libc.fcntl(read_end, 8, other),
    "choice of that signal": lambda: libc.fcntl(read_end, 10, 9),
    "clone into a namespace": lambda: libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0),
    "clone3": lambda: libc.syscall(435, 0, 0),
    "setsid": lambda: libc.setsid(),
    "setpgid": lambda: libc.setpgid(0, 0),
    "life after its parent": lambda: libc.prctl(1, 0, 0, 0, 0),
}
through = [name for name, action in tries.items() if action() != -1 or ctypes.get_errno() not in (1, 38)]
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
thread = threading.Thread(target=lambda: through.append("thread"))
thread.start(); thread.join()
pid = os.fork()
if pid == 0:
    os._exit(7)
through.append(f"fork {os.waitpid(pid, 0)[1] >> 8}")
print(on and json.dumps(through), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter knows the numbers of x86-64 only")
def test_a_process_of_the_same_user_is_out_of_reach_and_its_own_limits_threads_and_children_are_not():
    assert run_clean(REACHES) == '["thread", "fork 7"]'


HARMS_SIBLINGS = """
import ctypes, os, time
libc = ctypes.CDLL(None)


def run(*inputs):
    zero, hit, me, end = (ctypes.c_ulong * 2)(0, 0), set(), os.getpid(), time.monotonic() + 2
    while time.monotonic() < end:
        for pid in {*range(max(2, me - 60), me + 60)} - {me}:
            if 0 in (libc.prlimit(pid, 0, zero, None), libc.setpriority(0, pid, 19), libc.kill(pid, 9)):
                hit.add(pid)
        time.sleep(0.01)
    raise RuntimeError(f"hit {len(hit)}")
"""


def test_a_child_cannot_harm_a_sibling(server):
    with ThreadPoolExecutor(1) as pool:
        attack = pool.submit(ask_unscreened, *server, HARMS_SIBLINGS)
        time.sleep(0.5)
        sibling = ask_unscreened(
            *server, "def run(*inputs):\n    import time; time.sleep(1); raise RuntimeError('unharmed')\n"
        )
    assert attack.result().result["fault"][1] == "RuntimeError: hit 0"
    assert sibling.result["fault"][1] == "RuntimeError: unharmed"
