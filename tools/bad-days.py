#!/usr/bin/env python3
"""Gives the program bad days: kills at random moments, damaged inputs of every kind, and (if the program is built with debug
assertions) a fault of every operation on files. Says how many of each, and what went wrong; status 1 if anything did.

    tools/bad-days.py target/release/nearfar                     1,000 kills, 100,000 damaged inputs
    tools/bad-days.py target/debug/nearfar --quick               what the tests run: half a minute
    tools/bad-days.py target/debug/nearfar --faults              every n-th fault of ten commands
    tools/bad-days.py target/release/nearfar --memory            allocations that fail: every one of two commands, 200 each of
                                                                 ten; and too little memory, in steps. Takes a C compiler
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HEAD = 'name = "x"\nsummary = "x"\n'
HOSTS = """
[[host]]
name = "a"
machine = "dell-t430"
iommu = "strict"
[[host.device]]
nic = "modern"
[[host.device]]
slot = "slot-socket1"
drive = "optane-900p"
[[host]]
name = "b"
machine = "dell-t430"
[[host.device]]
nic = "modern"
[[cable]]
ends = ["a", "b"]
[[program]]
host = "a"
run = "ping -c 1 10.0.0.2"
"""
EVENTS = """
[[event]]
at = "20 us"
do = "cut"
what = "a:0"
[[event]]
at = "300 us"
do = "mend"
what = "a:0"
"""
DRIVE = """
[[host]]
name = "a"
machine = "dell-t430"
[[host.device]]
drive = "optane-900p"
backing = "x.img"
[[program]]
host = "a"
run = "dd if=/dev/urandom of=/dev/nvme0n1 bs=4k count=8 oflag=direct conv=fsync verify=yes"
"""
BENCH = """
machine = "dell-t430"
card = "nfp6000"
[pcie_bench]
test = ["LAT_RD", "BW_WR"]
pattern = "rand"
cache = "host-warm"
window = "64 KiB"
transfer = ["64 B", "128 B"]
samples = 300
"""
# What is killed and failed: a command and the files that it writes.
COMMANDS = [
    ("run hosts.toml --json o.json --csv o.csv", ["o.json", "o.csv", "o.csv.provenance.json"]),
    ("run capture.toml", ["x.pcapng"]),
    ("run drive.toml --json o.json", ["o.json"]),
    ("run bench.toml --parquet o.parquet --plot o.svg", ["o.parquet", "o.svg", "o.svg.provenance.json"]),
    ("sweep bench.toml --over dma_engine.tags=8,16 --report o.html --json o.json", ["o.html", "o.json"]),
    ("trace hosts.toml --packets 500 --pcapng o.pcapng --perfetto o.json", ["o.pcapng", "o.json"]),
    ("tree hosts.toml --json o.json", ["o.json"]),
    ("bench --machine dell-t630 --short --files lat_cmd_sizes -o out --json o.json", ["o.json", "out/lat_cmd_sizes.csv"]),
    ("machines --json o.json", ["o.json"]),
    ("diff one.json two.json --json o.json", ["o.json"]),
]


class Place:
    """A folder with inputs."""

    def __init__(self, program):
        self.program = str(pathlib.Path(program).resolve())
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="nearfar-bad-days-"))
        capture = 'capture = [{ port = "a", file = "x.pcapng" }]\n'
        for name, text in [
            ("hosts.toml", HEAD + HOSTS),
            ("events.toml", HEAD + HOSTS + EVENTS),
            ("capture.toml", HEAD + capture + HOSTS),
            ("drive.toml", HEAD + DRIVE),
            ("bench.toml", HEAD + BENCH),
            ("one.json", '[{"kind":"reading","host":"a","quantity":"rate","unit":"x","value":1}]'),
            ("two.json", '[{"kind":"reading","host":"a","quantity":"rate","unit":"x","value":2}]'),
        ]:
            (self.folder / name).write_text(text)

    def start(self, line, **more):
        words = line.split(" ") if isinstance(line, str) else line
        environment = dict(os.environ, NEARFAR_CACHE=str(self.folder / ".cache"), **more)
        return subprocess.Popen(
            [self.program, *words], cwd=self.folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    def run(self, line, limit=60.0, **more):
        """Status (None if it did not end) and what it said."""
        child = self.start(line, **more)
        try:
            told = child.communicate(timeout=limit)[1]
        except subprocess.TimeoutExpired:
            child.kill()
            return None, child.communicate()[1].decode(errors="replace")
        return child.returncode, told.decode(errors="replace")

    def read(self, names):
        files = {name: self.folder / name for name in names}
        return {name: path.read_bytes() for name, path in files.items() if path.exists()}

    def left(self, process=""):
        """Temporary files, of one process if it is given."""
        found = self.folder.rglob(f".*.nearfar-{process}*.part")
        return [path.name for path in found if ".cache" not in path.parts]

    def clean(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def judged(line, status, told):
    """What is wrong with how a command ended, if anything is."""
    if status is None:
        return None if "note:" in told else f"{line}: does not end and says nothing"
    if status not in (0, 1, 2) or "panicked" in told:
        return f"{line}: status {status}: {told[-600:]}"
    return None


def kills(program, count, seed):
    wrong = []
    rng = random.Random(f"kills {seed}")
    place = Place(program)
    wanted = []
    for line, names in COMMANDS:
        began = time.monotonic()
        status, told = place.run(line + " -q --no-cache" if "diff" not in line else line)
        if status != 0:
            wrong.append(f"{line}: status {status}: {told[-300:]}")
        wanted.append((place.read(names), time.monotonic() - began))
    for number in range(count):
        index = number % len(COMMANDS)
        line, names = COMMANDS[index]
        line += " -q --no-cache" if "diff" not in line else ""
        new, took = wanted[index]
        how = rng.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
        for name in names:
            if rng.random() < 0.5 and not name.endswith("x.pcapng"):
                (place.folder / name).unlink(missing_ok=True)
        before = place.read(names)
        child = place.start(line)
        time.sleep(rng.random() * took * 1.1)
        child.send_signal(how)
        told = child.communicate()[1].decode(errors="replace")
        if "panicked" in told or (child.returncode not in (0, 2) and child.returncode not in (-how, 128 + how)):
            wrong.append(f"kill {number}: {line}: status {child.returncode}: {told[-300:]}")
        for name, content in place.read(names).items():
            if content not in (before.get(name), new.get(name)):
                wrong.append(f"kill {number}: {line}: {name} is torn")
        left = place.left(f"{child.pid}-")
        if how != signal.SIGKILL and child.returncode == 128 + how and left:
            wrong.append(f"kill {number}: {line}: signal {how} left {left}")
        if number % len(COMMANDS) == len(COMMANDS) - 1:
            for line, names in COMMANDS:
                line += " -q --no-cache" if "diff" not in line else ""
                place.run(line)
            if place.left():
                wrong.append(f"kill {number}: the next runs left {place.left()}")
            if any(place.read(names) != wanted[n][0] for n, (_, names) in enumerate(COMMANDS) if "o.json" not in names):
                wrong.append(f"kill {number}: the next runs wrote something else")
    place.clean()
    return wrong


WORDS = [b"0", b"-1", b"1e308", b"18446744073709551616", b"nan", b'""', b"{}", b"[]", b"true", b'"1 ns"', b'"9e9 s"', b"\x00",
         b"\xff", "\u202e".encode(), b"\x1b[2J", b"=", b"\n", b"[[host]]", b"null", b'"a"', b"0x", b"..", b"/", b",,"]


def damaged(content, rng):
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at = rng.randrange(len(content) + 1)
        what = rng.randrange(6)
        if what == 0 and content:
            content[at % len(content)] ^= 1 << rng.randrange(8)
        elif what == 1:
            del content[at : at + rng.choice([1, 2, 8, 64])]
        elif what == 2:
            content[at:at] = rng.choice(WORDS)
        elif what == 3:
            end = at + rng.randrange(1, 40)
            content[at:at] = content[at:end]
        elif what == 4:
            # A whole value.
            begin = content.find(b"= ", at)
            end = content.find(b"\n", begin)
            if 0 <= begin < end:
                content[begin + 2 : end] = rng.choice(WORDS)
        else:
            del content[at:]
    return bytes(content)


def inputs(program, count, seed, limit):
    """Damaged inputs of each kind, in one process of Python."""
    wrong, done = [], {}
    rng = random.Random(f"inputs {seed}")
    place = Place(program)
    place.run("run hosts.toml -q --json run.json")
    place.run("bench --machine dell-t630 --short --files lat_cmd_sizes -o made -q")
    place.run("new nic nic.toml")
    machine = (place.folder / "hosts.toml").read_bytes()
    folder = place.folder / "nfp6000-1.2GHz_hsw-Xeon-E5-2620v3_dell-t630"
    (place.folder / "made").rename(folder)
    results = next(folder.glob("lat*.csv"))
    texts = {
        "scenario": (machine, "bad.toml", "run bad.toml --no-cache"),
        "events": ((place.folder / "events.toml").read_bytes(), "bad.toml", "run bad.toml --no-cache"),
        "bench": ((place.folder / "bench.toml").read_bytes(), "bad.toml", "run bad.toml --no-cache"),
        "drive": ((place.folder / "drive.toml").read_bytes(), "bad.toml", "tree bad.toml --no-cache"),
        "part": ((place.folder / "nic.toml").read_bytes(), "bad.toml", "machines bad.toml --no-cache"),
        "json": ((place.folder / "run.json").read_bytes()[:4000], "bad.json", "diff bad.json run.json --no-cache"),
        "results": (results.read_bytes(), results.relative_to(place.folder), f"compare {folder.name} --no-cache"),
    }
    changes = [b"host.a.iommu=strict", b"cable.0.rate=10 Gbit/s", b"program.0.run=ping -c 1 10.0.0.2",
               b"host.a.device.0.change.controller.tags=8", b"host.a.change.host.llc.ddio_ways=2"]
    kinds = [*texts, "set", "over", "cache"]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        if kind in texts:
            content, name, line = texts[kind]
            content = damaged(content, rng)
            (place.folder / name).write_bytes(content)
            words = line.split(" ")
        elif kind == "cache":
            entries = [path for path in (place.folder / ".cache").rglob("*") if path.is_file() and path.name != "speed"]
            if entries:
                entry = rng.choice(entries)
                content = damaged(entry.read_bytes(), rng)
                entry.write_bytes(content)
            words = "run hosts.toml --json again.json".split(" ")
        else:
            content = damaged(rng.choice(changes), rng).replace(b"\0", b"")
            words = ["run", "hosts.toml", "--no-cache", "--set", os.fsdecode(content)] if kind == "set" else [
                "sweep", "hosts.toml", "--no-cache", "--over", os.fsdecode(content)]
        try:
            status, told = place.run(words, limit)
        except (OSError, ValueError):
            continue
        done[kind] = done.get(kind, 0) + 1
        problem = judged(" ".join(words), status, told)
        if problem:
            kept = pathlib.Path(tempfile.gettempdir()) / f"bad-day-{os.getpid()}-{seed}-{number}"
            kept.write_bytes(content)
            wrong.append(f"{kind} {kept}: {problem}")
        if kind == "cache" and (place.folder / "again.json").read_bytes().count(b'"reading"') != \
                (place.folder / "run.json").read_bytes().count(b'"reading"'):
            wrong.append("cache: another result")
    place.clean()
    return wrong, done


def faults(program, commands):
    wrong, count = [], 0
    for line, names in commands:
        place = Place(program)
        place.run(line)
        new = place.read(names)
        for number in range(1, 100_000):
            before = {name: b"old" for name in names if not name.endswith("x.pcapng") and "/" not in name}
            for name, content in before.items():
                (place.folder / name).write_bytes(content)
            before = place.read(names)
            status, told = place.run(line, NEARFAR_FAIL_AT=str(number))
            if "fails as asked for" not in told:
                break
            count += 1
            problem = judged(line, status, told)
            now = place.read(names)
            torn = [name for name, content in now.items() if content not in (before.get(name), new.get(name))]
            if torn:
                problem = f"{torn} torn"
            elif status == 0 and now != new:
                problem = f"status 0 without the result: {told[-300:]}"
            elif place.left():
                problem = f"left {place.left()}"
            if problem:
                wrong.append(f"fault {number} of {line}: {problem}")
        place.clean()
    return wrong, count


# What is small enough for each of its allocations to fail.
SMALL = [("new nic new.toml", ["new.toml"]), ("machines modern --json o.json", ["o.json"])]
LOADER = "error while loading shared libraries"


def out_of_memory(place, line, names, new, before, status, told):
    """What is wrong with how a command without memory ended: told and stopped, the old files or the new ones."""
    now = place.read(names)
    torn = [name for name, content in now.items() if content not in (before.get(name), new.get(name))]
    if torn:
        return f"{torn} torn"
    if status == 0:
        return None if now == new else f"status 0 without the result: {told[-300:]}"
    # Rust's runtime has no other way to say that a thread gets no stack for signals.
    if "failed to allocate an alternative stack" in told:
        return None
    if status not in (1, 2, -signal.SIGABRT) or "panicked" in told:
        return f"status {status}: {told[-300:]}"
    return None if "memory" in told or "error: " in told else f"says nothing: {told[-300:]}"


def prepared(place, line, names):
    """Files as a user had them before the command, which names none twice."""
    for name in names:
        if line.startswith("new "):
            (place.folder / name).unlink(missing_ok=True)
        elif not name.endswith("x.pcapng") and "/" not in name:
            (place.folder / name).write_bytes(b"old")
    return place.read(names)


def allocations(program, line, names, most):
    """Fails up to `most` allocations of a command, one in each run; 0 is all of them."""
    wrong, done = [], 0
    place = Place(program)
    library = str(place.folder / "fail-malloc.so")
    source = str(pathlib.Path(__file__).with_name("fail-malloc.c"))
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    more = {"LD_PRELOAD": library, "RUST_BACKTRACE": "0"}
    line += " --no-cache --jobs 1"
    prepared(place, line, names)
    status, told = place.run(line, **more, FAIL_ALLOCATION="0")
    new = place.read(names)
    counts = [int(words.split()[0]) for words in told.splitlines() if words.endswith(" allocations")]
    if not counts:
        return [f"allocations of {line} are not counted: {told[-300:]}"], 0
    count = max(counts)
    for number in range(1, count + 1, max(1, count // most if most else 1)):
        before = prepared(place, line, names)
        status, told = place.run(line, **more, FAIL_ALLOCATION=str(number))
        done += 1
        problem = out_of_memory(place, line, names, new, before, status, told)
        if problem:
            wrong.append(f"allocation {number} of {count} of {line}: {problem}")
    prepared(place, line, names)
    place.run(line)
    if place.left():
        wrong.append(f"allocations of {line}: the next run left {place.left()}")
    place.clean()
    return wrong, done


def limits(program, line, names):
    """Runs a command with more and more memory, in steps of 1 MiB, until it is enough."""
    wrong, done = [], 0
    place = Place(program)
    line += " --no-cache --jobs 1"
    prepared(place, line, names)
    place.run(line)
    new = place.read(names)
    for mib in range(30, 4096):
        before = prepared(place, line, names)
        limited = f'ulimit -v {mib << 10}; exec "$0" "$@"'
        child = subprocess.run(
            ["sh", "-c", limited, program, *line.split(" ")], cwd=place.folder, capture_output=True, timeout=120,
            env=dict(os.environ, RUST_BACKTRACE="0"),
        )
        told = child.stderr.decode(errors="replace")
        # The program has not begun: the system does not load it.
        if LOADER in told or (not told and child.returncode in (-signal.SIGSEGV, -signal.SIGKILL)):
            continue
        done += 1
        problem = out_of_memory(place, line, names, new, before, child.returncode, told)
        if problem:
            wrong.append(f"{mib} MiB for {line}: {problem}")
        if child.returncode == 0:
            break
    place.run(line)
    if place.left():
        wrong.append(f"limits of {line}: the next run left {place.left()}")
    place.clean()
    return wrong, done


def memory(program, jobs, is_quick=False):
    """Allocations that fail, and too little memory."""
    program = str(pathlib.Path(program).resolve())
    wrong, counts = [], [0, 0]
    small, some = (SMALL[:1], COMMANDS[:1]) if is_quick else (SMALL, COMMANDS)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        failing = [pool.submit(allocations, program, line, names, 30 if is_quick else 0) for line, names in small]
        failing += [pool.submit(allocations, program, line, names, 30 if is_quick else 200) for line, names in some]
        limited = [pool.submit(limits, program, line, names) for line, names in some]
        for kind, futures in enumerate([failing, limited]):
            for future in futures:
                some, done = future.result()
                wrong += some
                counts[kind] += done
    return wrong, counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--seconds", type=float, default=60.0, help="longer runs without a message are hangs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.kills, arguments.inputs = 20, 120
    began, wrong = time.monotonic(), []
    if arguments.faults:
        wrong, count = faults(arguments.program, COMMANDS)
        print(f"{count} faults of {len(COMMANDS)} commands")
    elif arguments.memory:
        wrong, (failed, limited) = memory(arguments.program, arguments.jobs)
        print(f"{failed} failed allocations, {limited} runs with too little memory")
    else:
        done = {}
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            killed = [pool.submit(kills, arguments.program, arguments.kills // arguments.jobs, f"{arguments.seed}.{n}")
                      for n in range(arguments.jobs)]
            given = [pool.submit(inputs, arguments.program, arguments.inputs // arguments.jobs, f"{arguments.seed}.{n}",
                                 arguments.seconds) for n in range(arguments.jobs)]
            for future in killed:
                wrong += future.result()
            for future in given:
                some, counts = future.result()
                wrong += some
                for kind, count in counts.items():
                    done[kind] = done.get(kind, 0) + count
        print(f"{arguments.kills} kills; damaged inputs: {done}")
        if arguments.quick and shutil.which("cc"):
            some, (failed, limited) = memory(arguments.program, arguments.jobs, is_quick=True)
            wrong += some
            print(f"{failed} failed allocations, {limited} runs with too little memory")
    for problem in wrong:
        print(problem)
    print(f"{len(wrong)} went wrong in {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
