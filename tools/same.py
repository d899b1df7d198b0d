#!/usr/bin/env python3
"""Compare two builds of nearfar: the same commands have to write the same bytes. For redesigns that change no result.

    tools/same.py OLD NEW [--data DIR] [--all]

Runs every shipped scenario, a sweep, two papers' claims, pcie-bench on one machine, a trace, the closed form and, where measured
data are, the comparison with one directory of them (with --all: every directory, every paper and a fit), and says which commands
differ. Exit status 1 if one does.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The directory that `make demo` compares.
MEASURED = "nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0"


def commands(data: Path, everything: bool) -> list[list[str]]:
    """What both builds are asked for. Each writes into the folder in which it runs."""
    scenarios = sorted(path.stem for path in (ROOT / "scenarios").glob("*.toml"))
    asked = [["run", name, "--counters", "--json", "out.json"] for name in scenarios]
    asked.append(["bench", "--machine", "dell-t430", "--iommu", "4k", "--short", "-o", "rows"])
    asked += [["reproduce", paper, "--json", "out.json"] for paper in ("pcie-bench", "kpio-wc")]
    asked += [["trace", "kpio-send", "--json", "out.json"], ["tree", "pktgen"], ["model", "--json", "out.json"]]
    asked.append(["sweep", "card-bandwidth", "--over", "dma_engine.tags=8,32", "--json", "out.json"])
    directories = sorted((data / "measured/pcie-bench").glob("nfp6000-*"))
    if not directories:
        print(f"Skipped comparisons with measured files: none below {data} (--data or NEARFAR_DATA).")
    chosen = [path for path in directories if everything or path.name == MEASURED]
    asked += [["compare", str(path), "--json", "out.json"] for path in chosen]
    if everything:
        papers = ("ioctopus", "numa-io", "device-lending")
        asked += [["reproduce", paper, "--json", "out.json"] for paper in papers]
        # One figure of one directory.
        fitted = [path for path in directories if path.name == MEASURED]
        fit = ["-o", "fitted.toml", "--figures", "host.dram.access", "--json", "out.json"]
        asked += [["fit", str(path), *fit] for path in fitted]
    return asked


def written(program: Path, command: list[str]) -> dict[str, bytes]:
    """Everything that a command says and writes, by name."""
    with tempfile.TemporaryDirectory() as folder:
        # Both are called alike: the command line stands in what they write.
        called = ["nearfar", "--quiet", *command]
        done = subprocess.run(called, executable=program, cwd=folder, capture_output=True)
        # How long it took is no result.
        said = re.sub(rb"\d+\.\d+ s$", b"", done.stdout, flags=re.MULTILINE)
        files = {"status": str(done.returncode).encode(), "stdout": said, "stderr": done.stderr}
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                files[str(path.relative_to(folder))] = path.read_bytes()
        return files


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("NEARFAR_DATA", ROOT / "../shared")))
    parser.add_argument("--all", action="store_true", help="every measured directory, every paper and a fit: hours")
    given = parser.parse_args()
    programs = [given.old.resolve(), given.new.resolve()]
    different = 0
    for command in commands(given.data.resolve(), given.all):
        old, new = (written(program, command) for program in programs)
        names = [name for name in sorted(old | new) if old.get(name) != new.get(name)]
        # A command that neither build can do compares nothing.
        wrong = b"2" in (old["status"], new["status"])
        if names or wrong:
            different += 1
            print(f"nearfar {' '.join(command)}: {'refused' if wrong else 'differs in ' + ', '.join(names)}")
            print(new["stderr"].decode(errors="replace")[:500] if wrong else "", end="")
    print("The same bytes." if not different else f"{different} commands differ.")
    return min(different, 1)


if __name__ == "__main__":
    sys.exit(main())
