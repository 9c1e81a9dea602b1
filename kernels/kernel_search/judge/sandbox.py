"""What stands between a candidate and the machine: limits and walls put around a forked child, pure stdlib.

Layers, each used where the machine allows it and reported by name:
    user           run as nobody when the judge runs as root
    namespaces     a network and an IPC space of its own, empty
    rlimits        memory, CPU time, file size, open files, processes, no core dumps
    no_new_privs   nothing it starts can gain rights
    landlock       reads only the Python installation and system libraries, writes only its scratch folder
    seccomp        no sockets, no signals to others, no tracing, no mounts; no new process unless it compiles
A seventh, the kill from outside when the wall clock runs out, is the server's. It does not defend against faults of the
kernel, nor hide the time or the CPU from the candidate.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

LAYERS = ("user", "namespaces", "rlimits", "no_new_privs", "landlock", "seccomp")
NOBODY = 65534
CLONE_NEWUSER, CLONE_NEWIPC, CLONE_NEWNET = 0x10000000, 0x08000000, 0x40000000
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
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
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    is_root = os.geteuid() == 0
    spaces = CLONE_NEWNET | CLONE_NEWIPC | (0 if is_root else CLONE_NEWUSER)
    on["namespaces"] = _libc.unshare(spaces) == 0
    os.chdir(scratch)
    _limit(limits)
    on["rlimits"] = True
    if is_root and limits.drop_user:
        on["user"] = _become_nobody(scratch)
    on["no_new_privs"] = _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    if on["no_new_privs"]:
        on["landlock"] = _landlock(readable, [str(scratch)], limits.may_execute)
        on["seccomp"] = _seccomp(may_start_processes=bool(limits.may_execute))
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


def _become_nobody(scratch: Path) -> bool:
    try:
        os.chown(scratch, NOBODY, NOBODY)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        resource.setrlimit(resource.RLIMIT_NPROC, (256, 256))
    except OSError:
        return False
    return os.geteuid() == NOBODY


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


# ---- seccomp: numbers of x86-64
REFUSED = {
    "socket": 41, "connect": 42, "sendto": 44, "sendmsg": 46, "bind": 49, "listen": 50, "socketpair": 53, "kill": 62,
    "ptrace": 101, "pivot_root": 155, "chroot": 161, "mount": 165, "umount2": 166, "init_module": 175, "tkill": 200,
    "tgkill": 234, "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298,
    "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "finit_module": 313,
    "memfd_create": 319, "kexec_load": 246, "bpf": 321, "userfaultfd": 323, "pidfd_send_signal": 424,
    "io_uring_setup": 425, "pidfd_open": 434, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
}  # fmt: skip
NEW_PROCESS = {"fork": 57, "vfork": 58, "execve": 59, "execveat": 322}
CLONE, CLONE3, CLONE_THREAD = 56, 435, 0x10000
LOAD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, JUMP_IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
KILL, FAIL, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
AUDIT_X86_64, X32_BIT = 0xC000003E, 0x40000000


def _seccomp(*, may_start_processes: bool) -> bool:
    if platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return False
    program: list[bytes] = []

    def step(code: int, if_true: int, if_false: int, value: int) -> None:
        program.append(struct.pack("HBBI", code, if_true, if_false, value))

    step(LOAD, 0, 0, 4)
    step(JUMP_IF_EQUAL, 1, 0, AUDIT_X86_64)
    step(RETURN, 0, 0, KILL)
    step(LOAD, 0, 0, 0)
    step(JUMP_IF_AT_LEAST, 0, 1, X32_BIT)
    step(RETURN, 0, 0, KILL)
    refused = dict(REFUSED) if may_start_processes else REFUSED | NEW_PROCESS
    for number in refused.values():
        step(JUMP_IF_EQUAL, 0, 1, number)
        step(RETURN, 0, 0, FAIL | errno.EPERM)
    if not may_start_processes:
        # libc falls back to clone when clone3 is unknown; clone may then make threads but no process.
        step(JUMP_IF_EQUAL, 0, 1, CLONE3)
        step(RETURN, 0, 0, FAIL | errno.ENOSYS)
        step(JUMP_IF_EQUAL, 0, 3, CLONE)
        step(LOAD, 0, 0, 16)
        step(JUMP_IF_ANY_BIT, 1, 0, CLONE_THREAD)
        step(RETURN, 0, 0, FAIL | errno.EPERM)
    step(RETURN, 0, 0, ALLOW)
    code = ctypes.create_string_buffer(b"".join(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program), ctypes.addressof(code)))
    return _libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(header), 0, 0) == 0
