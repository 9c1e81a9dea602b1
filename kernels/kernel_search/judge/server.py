"""A warm server: loads torch and Triton once, then forks one sandboxed child for every request.

Started by `client.Server` as `python -m kernel_search.judge.server KIND FD` in a clean environment. It is trusted, has
one thread, and runs no candidate itself: children do, and it reads their results, drains and caps their output, kills
them when their time is up, and reports how they ended. KIND is `compile` (records launches and compiles them) or
`interpret` (runs kernels in the instrumented interpreter); the two cannot share a process, since Triton decides at
import whether kernels are compiled or interpreted.
"""

import contextlib
import errno
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_search.judge import huge_pages, sandbox, wire

OUTPUT_CAP = 16 * 1024
BURIAL_SECONDS = 1.0
KINDS = {"compile": "kernel_search.judge.compile_side", "interpret": "kernel_search.judge.interpret_side"}
Operation = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class Child:
    """One running child and what it has sent so far."""

    request_id: int
    pid: int
    result_fd: int
    output_fd: int
    scratch: Path
    deadline: float
    result_cap: int
    result: bytearray = field(default_factory=bytearray)
    output: bytearray = field(default_factory=bytearray)
    is_timed_out: bool = False
    is_oversized: bool = False
    open_fds: set[int] = field(default_factory=set)


class ForkServer:
    """Answers requests until its control socket closes."""

    def __init__(self, control: socket.socket, operations: dict[str, Operation], readable: list[str]):
        self.control = control
        self.operations = operations
        self.readable = readable
        self.children: dict[int, Child] = {}
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ)
        self.root = Path(tempfile.mkdtemp(prefix="espalier-judge-"))
        self.root.chmod(0o711)
        sandbox.adopt_orphans()
        self.inbox = bytearray()

    def serve(self) -> None:
        """Fork, read, kill and reply until the judge hangs up."""
        try:
            while True:
                for key, _ in self.selector.select(self._until_next_deadline()):
                    if key.fileobj is self.control:
                        if not self._read_control():
                            return
                    elif key.data.pid in self.children:
                        self._read_child(key.data, key.fd)
                self._kill_the_late()
                if self.children:
                    self._bury_orphans()
        finally:
            for child in list(self.children.values()):
                with contextlib.suppress(OSError):  # the judge that hung up takes no reply
                    self._end(child)
            shutil.rmtree(self.root, ignore_errors=True)

    def _until_next_deadline(self) -> float | None:
        if not self.children:
            return None
        left = min(child.deadline for child in self.children.values()) - time.monotonic()
        return max(0.0, min(left, BURIAL_SECONDS))

    def _read_control(self) -> bool:
        data = self.control.recv(1 << 20)
        if not data:
            return False
        self.inbox += data
        while len(self.inbox) >= wire.LENGTH.size:
            (size,) = wire.LENGTH.unpack_from(self.inbox)
            if len(self.inbox) < wire.LENGTH.size + size:
                break
            message = bytes(self.inbox[wire.LENGTH.size : wire.LENGTH.size + size])
            del self.inbox[: wire.LENGTH.size + size]
            self._start(wire.decode(message))
        return True

    def _start(self, request: dict[str, Any]) -> None:
        scratch = self.root / str(request["id"])
        scratch.mkdir()
        result_read, result_write = os.pipe()
        output_read, output_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(result_read)
            os.close(output_read)
            self._become_child(request, scratch, result_write, output_write)
        os.close(result_write)
        os.close(output_write)
        child = Child(
            request["id"], pid, result_read, output_read, scratch, time.monotonic() + request["wall_seconds"],
            request["result_mib"] * 2**20, open_fds={result_read, output_read},
        )  # fmt: skip
        self.children[pid] = child
        for fd in child.open_fds:
            os.set_blocking(fd, False)
            self.selector.register(fd, selectors.EVENT_READ, child)

    def _become_child(self, request: dict[str, Any], scratch: Path, result_fd: int, output_fd: int) -> None:
        """Run one request in the sandbox and leave; never returns."""
        try:
            self.control.close()
            self.selector.close()
            for other in self.children.values():
                for fd in other.open_fds:
                    os.close(fd)
            null = os.open("/dev/null", os.O_RDONLY)
            os.dup2(null, 0)
            os.dup2(output_fd, 1)
            os.dup2(output_fd, 2)
            tempfile.tempdir = str(scratch)
            limits = sandbox.Limits(
                cpu_seconds=request["cpu_seconds"],
                memory_mib=request["memory_mib"],
                file_mib=request["file_mib"],
                may_execute=tuple(request["may_execute"]),
                drop_user=request["drop_user"],
            )
            layers = sandbox.enter(limits, scratch, self.readable)
            try:
                reply = self.operations[request["operation"]](request["body"] | {"scratch": str(scratch)})
                data = wire.encode({"layers": layers} | reply)
            except Exception as error:
                # Operations report a candidate's faults themselves. What it could still bring about is its own fault
                # until shown otherwise: nothing may be gained by making the judge stumble.
                if isinstance(error, OSError) and error.errno != errno.ENOMEM:
                    raise
                traceback.print_exc()
                fault = ["crash", f"the judge stumbled over it: {type(error).__name__}: {error}"[:300]]
                if isinstance(error, OSError | MemoryError):
                    fault = ["resources", "it left the judge no memory of what a candidate may have"]
                data = wire.encode({"layers": layers, "fault": fault, "stage": "load", "cases": []})
        except BaseException as error:
            # The sandbox, the disk or an interruption: the harness's own.
            traceback.print_exc()
            data = wire.encode({"harness_error": f"{type(error).__name__}: {error}"[:300]})
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(result_fd, view) :]
        finally:
            os._exit(0)

    def _read_child(self, child: Child, fd: int) -> None:
        try:
            data = os.read(fd, 1 << 20)
        except BlockingIOError:
            return
        if not data:
            self.selector.unregister(fd)
            os.close(fd)
            child.open_fds.discard(fd)
            if fd == child.result_fd:
                self._end(child)
        elif fd == child.result_fd:
            child.result += data
            if len(child.result) > child.result_cap:
                child.is_oversized = True
                self._end(child)
        else:
            child.output += data
            del child.output[:-OUTPUT_CAP]

    def _kill_the_late(self) -> None:
        now = time.monotonic()
        for child in [child for child in self.children.values() if child.deadline <= now]:
            child.is_timed_out = True
            self._end(child)

    def _end(self, child: Child) -> None:
        """Take what it still said, kill its process group and what else it left, collect it, reply."""
        if child.output_fd in child.open_fds:
            self._read_child(child, child.output_fd)
        for fd in list(child.open_fds):
            self.selector.unregister(fd)
            os.close(fd)
        has_result = bool(child.result) and not child.is_oversized and not child.is_timed_out
        if not has_result and not child.is_timed_out and not child.is_oversized:
            time.sleep(0.002)  # its pipe closed before it was collectable; its own signal is worth more than ours
        _, status, usage = self._collect(child.pid, is_closing=not (child.is_timed_out or child.is_oversized))
        self.children.pop(child.pid, None)
        self._kill_orphans()
        shutil.rmtree(child.scratch, ignore_errors=True)
        self._reply(
            {
                "id": child.request_id,
                "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
                "exit_status": os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
                "is_timed_out": child.is_timed_out,
                "is_oversized": child.is_oversized,
                "cpu_seconds": usage.ru_utime + usage.ru_stime,
                "output": bytes(child.output).decode("utf-8", "replace"),
            },
            bytes(child.result) if has_result else b"",
        )

    @staticmethod
    def _collect(pid: int, *, is_closing: bool) -> tuple[int, int, Any]:
        """Give a child that is leaving by itself a moment; then kill its group, whose number is its own until now."""
        for _ in range(50 if is_closing else 0):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
            time.sleep(0.002)
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(pid, signal.SIGKILL)
        return os.wait4(pid, 0)

    def _kill_orphans(self) -> None:
        """End every process that a child left behind; one that belongs to a running child is its own, and no orphan.

        Killing the group has ended them already where seccomp keeps children in it. Each of these may start another
        one meanwhile, hence until none is left.
        """
        while orphans := _own_children() - self.children.keys():
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    def _bury_orphans(self) -> None:
        """Collect dead processes whose parents died before them, so that they do not fill the table of processes."""
        for pid in _own_children() - self.children.keys():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _reply(self, header: dict[str, Any], result: bytes) -> None:
        head = wire.encode(header)
        self.control.sendall(wire.LENGTH.pack(len(head)) + head + wire.LENGTH.pack(len(result)) + result)


def _own_children() -> set[int]:
    """Process numbers of this process's children, the adopted ones too; empty on a kernel that keeps no such list."""
    lists = [path.read_text() for path in Path("/proc/self/task").glob("*/children")]
    return {int(number) for text in lists for number in text.split()}


def main() -> None:
    """Warm up, say ready, serve."""
    kind, control_fd = sys.argv[1], int(sys.argv[2])
    control = socket.socket(fileno=control_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C drains the search; the judge closes us
    side = importlib.import_module(KINDS[kind])
    (size,) = wire.LENGTH.unpack(_receive(control, wire.LENGTH.size))
    setup = wire.decode(_receive(control, size))
    operations, readable = side.warm_up(setup)
    gc.collect()
    gc.freeze()
    ready = wire.encode({"id": 0, "ready": True, "started_seconds": time.process_time()})
    control.sendall(wire.LENGTH.pack(len(ready)) + ready + wire.LENGTH.pack(0))
    huge_pages.collapse()  # while the judge waits for the other server
    ForkServer(control, operations, readable).serve()


def _receive(control: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = control.recv(size - len(data))
        if not part:
            raise SystemExit(0)
        data += part
    return bytes(data)


if __name__ == "__main__":
    main()
