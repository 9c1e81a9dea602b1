"""What a child cannot do, tried by code that no screen looked at: the sandbox must hold by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_search
from judging import ask_unscreened, honest, impatient_judge, warm_judge
from kernel_search.judge import plan, sandbox, warmup
from kernel_search.judge.client import clean_environment
from kernel_search.tasks import VECTOR_ADD

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
    found["secret"] = str(os.environ.get("PYTEST_CURRENT_TEST"))
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


@pytest.mark.parametrize("name", MUST_FAIL)
def test_a_candidate_cannot(server, name):
    asked, operation = server
    # One attempt a child: error texts are cut at 300 characters.
    source = f"PROJECT = {str(Path(kernel_search.__file__).with_name('tasks.py'))!r}\n" + ATTEMPTS.replace(
        "json.dumps(tries())", f"tries()[{name!r}]"
    )
    reply = ask_unscreened(asked, operation, source)
    assert reply.result is not None, reply
    outcome = reply.result["fault"][1].removeprefix("RuntimeError: ")
    assert outcome.endswith(ERRORS), f"{name}: {outcome}"


def test_a_candidate_sees_no_variable_of_the_caller_and_may_use_threads(server):
    assert "PYTEST_CURRENT_TEST" in os.environ
    for name, expected in [("secret", "None"), ("thread", "ran"), ("mount", "-1")]:
        source = "PROJECT = ''\n" + ATTEMPTS.replace("json.dumps(tries())", f"tries()[{name!r}]")
        assert ask_unscreened(*server, source).result["fault"][1] == f"RuntimeError: {expected}"


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
    reply = ask_unscreened(*server, f"def run(*inputs):\n    {body}\n")
    if sign == "signal":
        assert reply.result is None and reply.signal != 0
    elif sign == "silent":
        assert reply.result is None and reply.signal == 0
    else:
        assert sign in reply.result["fault"][1]
    assert len(reply.output) <= 16 * 1024
    assert (
        "RuntimeError: alive"
        in ask_unscreened(*server, "def run(*inputs):\n    raise RuntimeError('alive')\n").result["fault"][1]
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
    reply = ask_unscreened(*server, FLOOD)
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
    reply = ask_unscreened(judge._pipeline.interpreter, "interpret", SPOIL_SHARED_FILES)
    assert reply.result["fault"][1] == "RuntimeError: {True}"
    assert judge.judge(honest("vector_add__plain"), VECTOR_ADD, seed=30).is_accepted


def test_a_child_that_ignores_signals_is_killed_by_the_wall_clock(server):
    source = "import time\n\n\ndef run(*inputs):\n    time.sleep(60)\n"
    reply = ask_unscreened(*server, source, wall_seconds=1)
    assert reply.is_timed_out and reply.result is None


def test_memory_that_a_candidate_used_up_is_not_the_judges_fault():
    judge = warm_judge()
    body = plan.interpret_body(honest("vector_add__plain"), VECTOR_ADD, 1, judge.settings)
    reply = ask_unscreened(
        judge._pipeline.interpreter, "interpret", "", body=body, memory_mib=96
    )  # two scored inputs take 128
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
