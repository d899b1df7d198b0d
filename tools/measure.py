#!/usr/bin/env python3
"""Run a command and say how long it took and how much memory it held at most."""

import resource
import subprocess
import sys
import time


def main() -> int:
    began = time.monotonic()
    code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
    seconds = time.monotonic() - began
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"{seconds:.1f} s ({usage.ru_utime + usage.ru_stime:.1f} s on all cores), "
        f"peak {usage.ru_maxrss / 1024:.0f} MiB, exit status {code}"
    )
    return code


if __name__ == "__main__":
    sys.exit(main())
