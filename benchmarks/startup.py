"""Seconds until `espalier --help` is on the screen: the median and the slowest of ten starts."""

import statistics
import subprocess
import sys
import time
from pathlib import Path

STARTS = 10
LIMIT_SECONDS = 0.6


def main() -> int:
    """Measure, print, and return 1 where the median is over the limit."""
    program = Path(sys.executable).with_name("espalier")
    seconds = []
    for _ in range(STARTS + 1):
        begin = time.perf_counter()
        subprocess.run([program, "--help"], stdout=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - begin)
    seconds = seconds[1:]  # the first start may still write bytecode
    median = statistics.median(seconds)
    print(f"espalier --help: median {median:.2f} s, slowest {max(seconds):.2f} s of {STARTS} (limit {LIMIT_SECONDS} s)")
    return int(median > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
