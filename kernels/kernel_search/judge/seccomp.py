"""System calls that a child may not make, as a filter that the kernel holds for it and for all that it starts.

What can be reached without them: its own memory, threads and pipes. Numbers are those of x86-64; elsewhere there is no
such layer. A call that is refused fails with EPERM, as if the rights were missing.
"""

import ctypes
import errno
import platform
import struct
import sys

REFUSED = {
    # networks, and what processes of one user share by name or number
    "socket": 41, "connect": 42, "sendto": 44, "sendmsg": 46, "bind": 49, "listen": 50, "socketpair": 53,
    "sendmmsg": 307, "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "mq_open": 240, "memfd_create": 319,
    "add_key": 248, "request_key": 249, "keyctl": 250,
    # other processes: signals, memory, files, priorities, processors
    "kill": 62, "tkill": 200, "tgkill": 234, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "ptrace": 101,
    "pidfd_open": 434, "pidfd_send_signal": 424, "pidfd_getfd": 438, "process_vm_readv": 310, "process_vm_writev": 311,
    "process_madvise": 440, "process_mrelease": 448, "kcmp": 312, "setpriority": 141, "ioprio_set": 251,
    "sched_setparam": 142, "sched_setscheduler": 144, "sched_setaffinity": 203, "sched_setattr": 314,
    "migrate_pages": 256, "move_pages": 279, "get_robust_list": 274, "perf_event_open": 298,
    # leaving its group, which the server kills as a whole
    "setpgid": 109, "setsid": 112,
    # the machine: mounts, namespaces, modules, clocks, tracing
    "pivot_root": 155, "chroot": 161, "acct": 163, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168,
    "reboot": 169, "quotactl": 179, "unshare": 272, "setns": 308, "open_by_handle_at": 304, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "iopl": 172, "ioperm": 173,
    "init_module": 175, "delete_module": 176, "finit_module": 313, "kexec_load": 246, "kexec_file_load": 320,
    "settimeofday": 164, "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159, "syslog": 103,
    "fanotify_init": 300, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
}  # fmt: skip
NEW_PROCESS = {"fork": 57, "vfork": 58, "execve": 59, "execveat": 322}
CLONE, CLONE3 = 56, 435
CLONE_THREAD, CLONE_NAMESPACES = 0x10000, 0x7E020000
FCNTL, F_SETOWN, F_SETSIG, F_SETOWN_EX = 72, 8, 10, 15  # a pipe that tells a process of one's choice by a signal
PRCTL, PR_SET_PDEATHSIG = 157, 1
PRLIMIT, OWN = 302, 0
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
LOAD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, JUMP_IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
KILL, FAIL, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
AUDIT_X86_64, X32_BIT = 0xC000003E, 0x40000000
Step = tuple[int, int, int, int]  # operation, steps to jump over if true, if false, value


def refuse_calls(*, may_start_processes: bool) -> bool:
    """Install the filter for the calling process, for good; whether it is on."""
    if platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return False
    steps = _program(may_start_processes=may_start_processes)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
    return ctypes.CDLL(None).prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(header), 0, 0) == 0


def _program(*, may_start_processes: bool) -> list[Step]:
    steps: list[Step] = [
        (LOAD, 0, 0, ARCHITECTURE_AT),
        (JUMP_IF_EQUAL, 1, 0, AUDIT_X86_64),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, NUMBER_AT),
        (JUMP_IF_AT_LEAST, 0, 1, X32_BIT),
        (RETURN, 0, 0, KILL),
    ]
    refused = REFUSED if may_start_processes else REFUSED | NEW_PROCESS
    for number in refused.values():
        steps += [(JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, FAIL | errno.EPERM)]
    # libc falls back to clone when clone3 is unknown; the flags of clone can be seen here, those of clone3 cannot.
    steps += [(JUMP_IF_EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, FAIL | errno.ENOSYS)]
    if may_start_processes:
        steps += _by_argument(CLONE, 0, [(JUMP_IF_ANY_BIT, CLONE_NAMESPACES)], is_listed_allowed=False)
    else:  # threads, but no process
        steps += _by_argument(CLONE, 0, [(JUMP_IF_ANY_BIT, CLONE_THREAD)], is_listed_allowed=True)
    signalling = [(JUMP_IF_EQUAL, command) for command in (F_SETOWN, F_SETSIG, F_SETOWN_EX)]
    steps += _by_argument(FCNTL, 1, signalling, is_listed_allowed=False)
    steps += _by_argument(PRCTL, 0, [(JUMP_IF_EQUAL, PR_SET_PDEATHSIG)], is_listed_allowed=False)
    steps += _by_argument(PRLIMIT, 0, [(JUMP_IF_EQUAL, OWN)], is_listed_allowed=True)
    return [*steps, (RETURN, 0, 0, ALLOW)]


def _by_argument(call: int, argument: int, listed: list[tuple[int, int]], *, is_listed_allowed: bool) -> list[Step]:
    """Steps that decide about one call by the lower half of one argument, which is all the kernel reads of an int."""
    answers = (ALLOW, FAIL | errno.EPERM) if is_listed_allowed else (FAIL | errno.EPERM, ALLOW)
    tests: list[Step] = []
    for operation, value in listed:
        tests += [(operation, 0, 1, value), (RETURN, 0, 0, answers[0])]
    body = [(LOAD, 0, 0, ARGUMENTS_AT + 8 * argument), *tests, (RETURN, 0, 0, answers[1])]
    return [(JUMP_IF_EQUAL, 0, len(body), call), *body]
