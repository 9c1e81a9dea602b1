"""What a child cannot do, tried by code that no screen looked at: the sandbox must hold by itself."""

import contextlib
import json
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

import kernel_search
from judging import honest, impatient_judge, warm_judge
from kernel_search.judge import paths, plan, sandbox, warmup
from kernel_search.judge.client import ServerDied, clean_environment
from kernel_search.tasks import VECTOR_ADD
from process_watch import is_alive, wait_for

ATTEMPTS = """
import ctypes, json, os, signal, socket, subprocess, sys, threading
import torch


def attempt(action):
    try:
        return repr(action())
    except BaseException as error:
        return type(error).__name__


def tries():
    found = {}
    found["connect"] = attempt(lambda: socket.create_connection(("127.0.0.1", 22), 1))
    found["udp"] = attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)))
    found["passwords"] = attempt(lambda: open("/etc/passwd").read())
    found["project"] = attempt(lambda: open(PROJECT).read())
    found["write_tmp"] = attempt(lambda: open("/tmp/escaped", "w").write("x"))
    found["write_shm"] = attempt(lambda: open("/dev/shm/escaped", "w").write("x"))
    found["fork"] = attempt(os.fork)
    found["spawn"] = attempt(lambda: subprocess.run(["/bin/true"]))
    found["kill_parent"] = attempt(lambda: os.kill(os.getppid(), signal.SIGKILL))
    found["kill_all"] = attempt(lambda: os.kill(-1, signal.SIGKILL))
    found["parent_memory"] = attempt(lambda: open(f"/proc/{os.getppid()}/mem", "rb").read(1))
    found["parent_environment"] = attempt(lambda: open(f"/proc/{os.getppid()}/environ").read())
    found["big_file"] = attempt(lambda: open("big", "wb").truncate(1 << 30))
    found["memory"] = attempt(lambda: torch.ones(6 << 30, dtype=torch.uint8).sum().item())
    found["become_root"] = attempt(lambda: os.setuid(0))
    found["mount"] = str(ctypes.CDLL(None).mount(b"none", b"/", b"tmpfs", 0, None))
    found["unshare"] = str(ctypes.CDLL(None).unshare(0x10000000))
    found["secret"] = str(os.environ.get("JUDGE_TEST_SECRET"))
    thread = threading.Thread(target=lambda: found.__setitem__("thread", "ran"))
    thread.start()
    thread.join()
    return found


def run(*inputs):
    raise RuntimeError(json.dumps(tries()))
"""
MUST_FAIL = (
    "connect", "udp", "passwords", "project", "write_tmp", "write_shm", "fork", "spawn", "kill_parent", "kill_all",
    "parent_memory", "parent_environment", "big_file", "memory", "become_root",
)  # fmt: skip
ERRORS = ("Error", "Exception")


def run_clean(code: str) -> str:
    """Run code in a Python of its own, as clean as a server's, and return what it printed."""
    environment = clean_environment("compile")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ask(server, operation: str, source: str, *, body=None, **changes):
    """Send text straight to a server, past the screen."""
    body = body or {
        "source": source, "target": "sm90", "dtype": "float32", "seed": 1, "scored": None,
        "cases": [{"inputs": [{"shape": [8], "dtype": "float32", "regime": "normal", "seed": 1}], "output_shape": [8]}],
        "input_shapes": [[8]], "output_shape": [8], "reduced_always": False,
    }  # fmt: skip
    limits = {
        "cpu_seconds": 5, "wall_seconds": 10, "memory_mib": 1024, "file_mib": 16, "result_mib": 1, "may_execute": [],
        "drop_user": True,
    }  # fmt: skip
    return server.ask(operation, body, **limits | changes)


@pytest.fixture(scope="module", params=["compile", "interpret"])
def server(request):
    pipeline = warm_judge()._pipeline
    return (pipeline.compiler, "record") if request.param == "compile" else (pipeline.interpreter, "interpret")


@pytest.mark.parametrize("name", MUST_FAIL)
def test_a_candidate_cannot(server, name, monkeypatch):
    asked, operation = server
    # One attempt a child: error texts are cut at 300 characters.
    source = f"PROJECT = {str(Path(kernel_search.__file__).with_name('tasks.py'))!r}\n" + ATTEMPTS.replace(
        "json.dumps(tries())", f"tries()[{name!r}]"
    )
    reply = ask(asked, operation, source)
    assert reply.result is not None, reply
    outcome = reply.result["fault"][1].removeprefix("RuntimeError: ")
    assert outcome.endswith(ERRORS), f"{name}: {outcome}"


def test_a_candidate_sees_no_variable_of_the_caller_and_may_use_threads(server):
    for name, expected in [("secret", "None"), ("thread", "ran"), ("mount", "-1")]:
        source = "PROJECT = ''\n" + ATTEMPTS.replace("json.dumps(tries())", f"tries()[{name!r}]")
        assert ask(*server, source).result["fault"][1] == f"RuntimeError: {expected}"


def test_servers_start_with_a_clean_environment(monkeypatch):
    monkeypatch.setenv("JUDGE_TEST_SECRET", "hidden")
    assert "hidden" not in clean_environment("compile").values()


@pytest.mark.parametrize(
    ("body", "sign"),
    [
        ("import ctypes; ctypes.string_at(0)", "signal"),
        ("import os; os._exit(3)", "silent"),
        ("import os; os.abort()", "signal"),
        ("import sys; sys.stdout.write('x' * (10 << 20)); sys.stdout.flush(); raise ValueError('said')", "said"),
        ("raise SystemExit(0)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_a_child_that_dies_or_floods_is_contained_and_the_server_lives(server, body, sign):
    reply = ask(*server, f"def run(*inputs):\n    {body}\n")
    if sign == "signal":
        assert reply.result is None and reply.signal != 0
    elif sign == "silent":
        assert reply.result is None and reply.signal == 0
    else:
        assert sign in reply.result["fault"][1]
    assert len(reply.output) <= 16 * 1024
    assert (
        "RuntimeError: alive" in ask(*server, "def run(*inputs):\n    raise RuntimeError('alive')\n").result["fault"][1]
    )


FLOOD = """
import os


def run(*inputs):
    for fd in range(3, 64):
        try:
            for _ in range(64):
                os.write(fd, b"x" * 65536)
        except OSError:
            pass
"""


def test_a_flood_through_the_result_pipe_is_cut_off(server):
    reply = ask(*server, FLOOD)
    assert reply.result is None and (reply.is_oversized or reply.is_timed_out)


SPOIL_SHARED_FILES = """
import mmap
import os
import stat


def is_refused(action):
    try:
        action()
    except OSError:
        return True
    return False


def run(*inputs):
    found = set()
    for fd in range(3, 128):
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                continue
        except OSError:
            continue
        found |= {
            is_refused(lambda: os.pwrite(fd, b"x", 0)),
            is_refused(lambda: os.ftruncate(fd, 0)),
            is_refused(lambda: os.posix_fallocate(fd, 1 << 30, 1)),
            is_refused(lambda: mmap.mmap(fd, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE)),
        }
    raise RuntimeError(found)
"""


def test_a_child_cannot_spoil_the_inputs_that_later_candidates_get():
    judge = warm_judge()
    reply = ask(judge._pipeline.interpreter, "interpret", SPOIL_SHARED_FILES)
    assert reply.result["fault"][1] == "RuntimeError: {True}"
    assert judge.judge(honest("vector_add__plain"), VECTOR_ADD, seed=30).is_accepted


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
    reply = ask(compiler, "compile_launch", "", may_execute=paths.compiler_tools(), body=body)
    assert "left" in reply.result["fault"][1]
    assert not is_alive(int(reply.result["fault"][1].split()[-1]))
    assert started_by(compiler.process_number) == []


def test_a_child_dies_with_its_server():
    interpreter = warm_judge()._pipeline.interpreter
    asking = threading.Thread(target=lambda: suppressed(ask, interpreter, "interpret", "import time; time.sleep(30)"))
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
        attack = pool.submit(ask, *server, HARMS_SIBLINGS)
        time.sleep(0.5)
        sibling = ask(*server, "def run(*inputs):\n    import time; time.sleep(1); raise RuntimeError('unharmed')\n")
    assert attack.result().result["fault"][1] == "RuntimeError: hit 0"
    assert sibling.result["fault"][1] == "RuntimeError: unharmed"


def test_a_child_that_ignores_signals_is_killed_by_the_wall_clock(server):
    source = "import time\n\n\ndef run(*inputs):\n    time.sleep(60)\n"
    reply = ask(*server, source, wall_seconds=1)
    assert reply.is_timed_out and reply.result is None


def test_memory_that_a_candidate_used_up_is_not_the_judges_fault():
    judge = warm_judge()
    body = plan.interpret_body(honest("vector_add__plain"), VECTOR_ADD, 1, judge.settings)
    reply = ask(judge._pipeline.interpreter, "interpret", "", body=body, memory_mib=96)  # two scored inputs take 128
    assert reply.result["fault"][0] == "resources" and "no memory" in reply.result["fault"][1]


def test_every_layer_is_reported():
    layers = warm_judge().layers
    assert set(layers) == {*sandbox.LAYERS, "wall_clock"}
    assert layers["rlimits"] and layers["no_new_privs"]


def test_a_judge_with_too_few_layers_refuses_to_run_candidates():
    judge = impatient_judge(required_layers=len(sandbox.LAYERS) + 2)
    with pytest.raises(warmup.SelfTestFailed, match="required"):
        warmup.check_layers(judge._pipeline)


UNPRIVILEGED = """
import json, os, resource, socket, sys
from pathlib import Path
from kernel_search.judge import sandbox
scratch = Path(sys.argv[1])
scratch.chmod(0o777)
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
layers = sandbox.enter(sandbox.Limits(5, 512, 1), scratch, ["/usr/lib"])
def refused(action):
    try:
        action()
    except OSError:
        return True
    return False
layers["no_network"] = refused(lambda: socket.socket())
layers["no_files"] = refused(lambda: open("/etc/passwd"))
layers["own_folder"] = not refused(lambda: open("mine", "w"))
print(json.dumps(layers))
"""


def test_an_ordinary_user_has_walls_too(tmp_path):
    for folder in [tmp_path, *tmp_path.parents]:
        folder.chmod(0o711)
        if folder.name.startswith("pytest-of-"):
            break
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, str(tmp_path)],
        env=clean_environment("compile"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    layers = json.loads(done.stdout)
    assert not layers["user"], "an ordinary user cannot become another"
    assert layers["rlimits"] and layers["no_new_privs"]
    if layers["landlock"]:
        assert layers["no_files"]
    if layers["seccomp"] or layers["namespaces"]:
        assert layers["no_network"]
    assert layers["own_folder"]
