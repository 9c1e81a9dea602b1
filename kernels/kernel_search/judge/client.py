"""The judge's end of a warm server: start it, ask it, start it again when it died."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from kernel_search.judge import wire

SOURCE_ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120
GRACE_SECONDS = 20


class ServerDied(Exception):
    """The server itself failed, not the candidate; the judge tries once more and then says `unknown`."""


@dataclass(frozen=True)
class Reply:
    """How a child ended, and what it said. `result` is None when it said nothing that can be read."""

    result: dict[str, Any] | None
    signal: int
    is_timed_out: bool
    is_oversized: bool
    cpu_seconds: float
    output: str


@dataclass
class _Waiting:
    answers: dict[int, SimpleQueue[tuple[dict[str, Any], bytes] | None]] = field(default_factory=dict)
    is_closed: bool = False


class Server:
    """One fork server of a kind (`compile` or `interpret`); safe to ask from several threads."""

    def __init__(self, kind: str, setup: dict[str, Any]):
        self.kind = kind
        self._setup = setup
        self._lock = threading.Lock()
        self._restart_lock = threading.Lock()
        self._next_id = 1
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._waiting = _Waiting()

    @property
    def process_number(self) -> int | None:
        """The running process, None when there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and hand it its setup; `wait_until_ready` waits for the warm-up."""
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kernel_search.judge.server", self.kind, str(theirs.fileno())],
            pass_fds=[theirs.fileno()], env=clean_environment(self.kind), stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=self._log, cwd="/", start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._socket = ours
        self._waiting = _Waiting({0: SimpleQueue()})
        data = wire.encode(self._setup)
        ours.sendall(wire.LENGTH.pack(len(data)) + data)
        threading.Thread(target=self._listen, args=(ours, self._waiting), daemon=True).start()

    def wait_until_ready(self) -> None:
        """Wait for the end of the warm-up.

        Raises:
            ServerDied: It did not come up.
        """
        self._take(self._waiting, 0, START_SECONDS)

    def ask(self, operation: str, body: dict[str, Any], **limits: Any) -> Reply:
        """Run one operation in a sandboxed child.

        Raises:
            ServerDied: The server is gone or does not answer.
        """
        with self._lock:
            waiting, control = self._waiting, self._socket
            if control is None or waiting.is_closed:
                raise ServerDied(f"the {self.kind} server is not running")
            number = self._next_id
            self._next_id += 1
            waiting.answers[number] = SimpleQueue()
            data = wire.encode({"id": number, "operation": operation, "body": body} | limits)
            try:
                control.sendall(wire.LENGTH.pack(len(data)) + data)
            except OSError as error:
                raise ServerDied(f"the {self.kind} server hung up: {error}") from error
        header, payload = self._take(waiting, number, limits["wall_seconds"] + GRACE_SECONDS)
        try:
            result = wire.decode(payload) if payload else None
        except ValueError:
            result = None
        if result is not None and "harness_error" in result:
            raise ServerDied(f"the {self.kind} server failed: {result['harness_error']}")
        return Reply(
            result,
            header["signal"],
            header["is_timed_out"],
            header["is_oversized"],
            header["cpu_seconds"],
            header["output"],
        )

    def restart_if_dead(self) -> None:
        """Start it anew if it hung up; of several threads that notice, one does it.

        Raises:
            ServerDied: It does not come up again.
        """
        with self._restart_lock:
            if self._waiting.is_closed or self._socket is None:
                self.close()
                self.start()
                self.wait_until_ready()

    def close(self) -> None:
        """Hang up; the server then kills its children and leaves."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
            self._log.close()

    def log_tail(self) -> str:
        """The last lines that the server process wrote."""
        try:
            self._log.seek(0)
            return self._log.read()[-2000:].decode("utf-8", "replace")
        except ValueError:
            return ""

    def _take(self, waiting: _Waiting, number: int, seconds: float) -> tuple[dict[str, Any], bytes]:
        try:
            answer = waiting.answers[number].get(timeout=seconds)
        except Empty:
            answer = None
        waiting.answers.pop(number, None)
        if answer is None:
            lines = self.log_tail().strip().splitlines()
            raise ServerDied(f"the {self.kind} server died{': ' + lines[-1][:200] if lines else ''}")
        return answer

    @staticmethod
    def _listen(control: socket.socket, waiting: _Waiting) -> None:
        """Give each answer to who waits for it; on hang-up tell everyone."""

        def receive(size: int) -> bytes:
            data = bytearray()
            while len(data) < size:
                part = control.recv(min(size - len(data), 1 << 20))
                if not part:
                    raise EOFError
                data += part
            return bytes(data)

        try:
            while True:
                header = wire.decode(receive(wire.LENGTH.unpack(receive(wire.LENGTH.size))[0]))
                payload = receive(wire.LENGTH.unpack(receive(wire.LENGTH.size))[0])
                queue = waiting.answers.get(header["id"])
                if queue is not None:
                    queue.put((header, payload))
        except (EOFError, OSError, ValueError):
            waiting.is_closed = True
            for queue in list(waiting.answers.values()):
                queue.put(None)


def clean_environment(kind: str) -> dict[str, str]:
    """The environment of a server: nothing of the caller's but the search path, so no secret can be read."""
    environment = {
        "PATH": os.defpath,
        "PYTHONPATH": str(SOURCE_ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
        "HOME": "/nonexistent",
        "TRITON_DEFAULT_FP_FUSION": "1",
        "TRITON_DISABLE_LINE_INFO": "1",
    }
    return environment | ({"TRITON_INTERPRET": "1"} if kind == "interpret" else {})
