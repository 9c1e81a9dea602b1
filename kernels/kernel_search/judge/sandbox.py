"""What stands between a candidate and the machine: limits and walls put around a forked child, pure stdlib.

Layers, each used where the machine allows it and reported by name:
    user           run as a user of its own when the judge runs as root
    namespaces     a network and an IPC space of its own, empty
    rlimits        memory, CPU time, file size, open files, processes, no core dumps
    no_new_privs   nothing it starts can gain rights
    landlock       reads only the Python installation and system libraries, writes only its scratch folder
    seccomp        no sockets, nothing that reaches another process, no tracing, no mounts; no new process unless it
                   compiles, and none that leaves its group, so that killing the group leaves nobody (seccomp.py)
A seventh, the kill from outside when the wall clock runs out, is the server's. It does not defend against faults of the
kernel, nor hide the time or the CPU from the candidate.
"""

import ctypes
import os
import resource
import signal
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_search.judge import seccomp

LAYERS = ("user", "namespaces", "rlimits", "no_new_privs", "landlock", "seccomp")
NOBODY = 65534
FIRST_OWN_USER = 1_000_000_000  # no machine names users so high; the kernel then keeps children of one judge apart
CLONE_NEWUSER, CLONE_NEWIPC, CLONE_NEWNET = 0x10000000, 0x08000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Limits:
    """What one child may use.

    `may_execute` lists folders whose programs it may start; empty means none at all. `drop_user` is off where the
    installation lies in a folder that only root can enter.
    """

    cpu_seconds: int
    memory_mib: int
    file_mib: int
    may_execute: tuple[str, ...] = ()
    drop_user: bool = True


def enter(limits: Limits, scratch: Path, readable: Iterable[str]) -> dict[str, bool]:
    """Close the walls around the calling process, for good.

    Args:
        limits: What it may use.
        scratch: The one folder that it may write to; becomes the working directory.
        readable: Files and folders that it may read.

    Returns:
        Per layer, whether it is on.
    """
    on = dict.fromkeys(LAYERS, False)
    os.setsid()
    is_root = os.geteuid() == 0
    spaces = CLONE_NEWNET | CLONE_NEWIPC | (0 if is_root else CLONE_NEWUSER)
    on["namespaces"] = _libc.unshare(spaces) == 0
    os.chdir(scratch)
    _limit(limits)
    on["rlimits"] = True
    if is_root and limits.drop_user:
        on["user"] = _become(FIRST_OWN_USER + os.getpid(), scratch) or _become(NOBODY, scratch)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # which a change of the user takes back
    on["no_new_privs"] = _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    if on["no_new_privs"]:
        on["landlock"] = _landlock(readable, [str(scratch)], limits.may_execute)
        on["seccomp"] = seccomp.refuse_calls(may_start_processes=bool(limits.may_execute))
    return on


def _limit(limits: Limits) -> None:
    pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    ceilings = {
        resource.RLIMIT_AS: pages * resource.getpagesize() + limits.memory_mib * 2**20,
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_FSIZE: limits.file_mib * 2**20,
        resource.RLIMIT_NOFILE: 128,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in ceilings.items():
        resource.setrlimit(kind, (value, value))


def _become(user: int, scratch: Path) -> bool:
    try:
        os.chown(scratch, user, user)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        resource.setrlimit(resource.RLIMIT_NPROC, (256, 256))
    except OSError:
        return False
    return os.geteuid() == user


def adopt_orphans() -> None:
    """Make the calling process the parent of whatever its children leave behind."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


# ---- landlock: system calls 444 to 446 on every architecture
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE


def _landlock(readable: Iterable[str], writable: Iterable[str], executable: Iterable[str]) -> bool:
    abi = _libc.syscall(444, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return False
    rights = (1 << {1: 13, 2: 14}.get(abi, 15 if abi < 5 else 16)) - 1
    network, scope = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)
    attributes = struct.pack("QQQ", rights, network, scope)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = _libc.syscall(444, ctypes.c_char_p(attributes), ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    rules = [(path, READ_FILE | READ_DIR) for path in readable]
    rules += [(path, rights & ~EXECUTE) for path in writable]
    rules += [(path, EXECUTE | READ_FILE | READ_DIR) for path in executable]
    rules.append(("/dev/null", READ_FILE | WRITE_FILE))
    for path, allowed in rules:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        if not os.path.isdir(path):
            allowed &= FILE_RIGHTS & rights
        rule = struct.pack("=Qi", allowed, handle)
        _libc.syscall(445, ruleset, 1, ctypes.c_char_p(rule), 0)
        os.close(handle)
    is_on = _libc.syscall(446, ruleset, 0) == 0
    os.close(ruleset)
    return bool(is_on)
