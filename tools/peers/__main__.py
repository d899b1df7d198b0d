"""The same streams on several simulators, in one run: `python tools/peers NEARFAR`.

A device reads or writes host memory, 64 or 256 bytes at a time, with up to 32 requests under way. Told are TLPs for each second
of real time, and instructions for each TLP where valgrind counts them; starting up does not count. SimPy knows no packets: its line counts events, of a queue for each stage that a TLP would pass.
"""

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
SIZES = (64, 256)
SCENARIO = """
name = "stream"
summary = "A stream of DMA"
machine = "dell-t430"
card = "nfp6000"
[pcie_bench]
test = "{test}"
pattern = "seq"
cache = "cold"
window = ["8 KiB", "16 KiB", "32 KiB", "64 KiB", "128 KiB", "256 KiB", "512 KiB", "1 MiB"]
transfer = "{size} B"
"""


def seconds(command, environment=None):
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr[-500:]}{done.stdout[-500:]}")
    return time.perf_counter() - began, done.stdout


def processor_seconds(command):
    """What a command with one thread takes of a core: others on the machine do not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    seconds(command)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def instructions(command):
    """Those that a command executes; nothing without valgrind."""
    if not shutil.which("valgrind"):
        return None
    with tempfile.NamedTemporaryFile() as out:
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", *command], capture_output=True, text=True
        )
    found = re.search(r"Collected : (\d+)", done.stderr)
    return int(found[1]) if found else None


def nearfar(program, kind, size, folder):
    """Streams over several windows, less single reads of the same: what it takes to start and to prepare caches."""
    test = {"read": "BW_RD", "write": "BW_WR"}[kind]
    commands = []
    for name, test, more in (("stream", test, ""), ("start", "LAT_RD", "samples = 1")):
        file = Path(folder) / f"{name}.toml"
        file.write_text(SCENARIO.format(test=test, size=size) + more)
        commands.append([program, "--no-cache", "--quiet", "--jobs", "1", "run", str(file), "--json", "-"])
    tlps = [sum(row.get("tlps", 0) for row in json.loads(seconds(command)[1])) for command in commands]
    took = [min(processor_seconds(command) for _ in range(3)) for command in commands]
    counted = [instructions(command) for command in commands]
    more = tlps[0] - tlps[1]
    return more / (took[0] - took[1]), None if None in counted else (counted[0] - counted[1]) / more


def cocotb(kind, size, folder):
    """cocotbext-pcie: a memory endpoint at a root complex, on a simulator of an empty circuit."""
    if not shutil.which("iverilog"):
        return None
    build = Path(folder) / "circuit"
    circuit = Path(folder) / "top.v"
    circuit.write_text("`timescale 1ns/1ps\nmodule top; endmodule\n")
    environment = {**os.environ, "STREAM": json.dumps([kind, size, folder]), "PYTHONPATH": str(HERE), "COCOTB_LOG_LEVEL": "WARNING"}
    program = f"""
from cocotb_tools.runner import get_runner
runner = get_runner("icarus")
runner.build(sources=[{str(circuit)!r}], hdl_toplevel="top", build_dir={str(build)!r}, timescale=("1ns", "1ps"))
runner.test(hdl_toplevel="top", test_module="cocotb_stream", build_dir={str(build)!r}, test_dir={str(folder)!r})
"""
    seconds([sys.executable, "-c", program], environment)
    rate = Path(folder) / "rate.json"
    told = json.loads(rate.read_text())
    rate.unlink()
    return told


def simpy(size):
    import simpy as peer

    count, stages = 20_000, 6
    environment = peer.Environment()
    tags = peer.Resource(environment, capacity=32)
    wires = [peer.Resource(environment, capacity=1) for _ in range(2)]

    def request():
        with tags.request() as tag:
            yield tag
            for wire, bytes in zip(wires, (24, size + 20)):
                with wire.request() as turn:
                    yield turn
                    yield environment.timeout(bytes * 0.127)
                yield environment.timeout(100)

    def source():
        for _ in range(count):
            environment.process(request())
            yield environment.timeout(1)

    environment.process(source())
    began, events = time.perf_counter(), 0
    while environment.peek() != float("inf"):
        environment.step()
        events += 1
    assert events > count * stages
    return events / (time.perf_counter() - began)


def main():
    program = str(Path(sys.argv[1]).resolve())
    print(f"{'':32} {'TLPs/s':>12} {'instructions/TLP':>18}")
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("read", "write"):
            for size in SIZES:
                rate, each = nearfar(program, kind, size, folder)
                print(f"{f'nearfar, {kind}s of {size} B':32} {rate:12,.0f} {f'{each:,.0f}' if each else 'not counted':>18}")
                rate = cocotb(kind, size, folder)
                told = f"{rate:12,.0f}" if rate else "  iverilog is missing"
                print(f"{f'cocotbext-pcie, {kind}s of {size} B':32} {told} {'not counted':>18}", flush=True)
    for size in SIZES:
        print(f"{f'SimPy, {size} B: events/s':32} {simpy(size):12,.0f} {'not counted':>18}")


main()
