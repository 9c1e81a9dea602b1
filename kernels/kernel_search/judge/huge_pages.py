"""Makes forking cheap: a warm server's memory in few large pages, so that a child has few page tables to copy.

A server holds some 300 MB in pages of 4 KiB, and every fork and exit goes through all of them: half of what a small
candidate costs. Linux can put them together into pages of 2 MiB; where it cannot, nothing changes but the speed.
"""

import ctypes
from pathlib import Path

PAGE = 2 * 2**20
MADV_COLLAPSE = 25  # Linux 6.1 and later
_libc = ctypes.CDLL(None, use_errno=True)


def collapse() -> int:
    """Put this process's private memory into large pages; the bytes of it that now are."""
    moved = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, rights, _, _, _, *name = line.split()
        if rights != "rw-p" or (name and name[0] != "[heap]"):
            continue
        low, high = (int(address, 16) for address in place.split("-"))
        start, end = -(-low // PAGE) * PAGE, high // PAGE * PAGE
        if end > start and _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE) == 0:
            moved += end - start
    return moved
