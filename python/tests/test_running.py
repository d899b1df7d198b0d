"""Runs, what comes out of them, and what goes wrong."""

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import nearfar
import pandas
import polars
import pyarrow
import pytest
from conftest import QUICK


def test_results_are_tables_of_their_kinds():
    results = nearfar.run("latency-by-size", QUICK)
    rows = results.rows
    assert len(rows) == len(rows["median_ns"]) and all(ns > 300 for ns in rows["median_ns"])
    assert len(results.counters) > 10 and results.kinds[0] == "row"
    assert results.provenance["seed"] == 1 and "latency-by-size" in results.provenance["command"]
    assert json.loads(rows.metadata["provenance"]) == results.provenance
    with pytest.raises(KeyError, match="median_ns"):
        rows["median"]
    shown = repr(rows).splitlines()
    assert rows.column_names[0] in shown[0] and f"[{len(rows)} rows, {len(rows.column_names)} columns" in shown[-1]
    assert len(shown) == 2 + min(len(rows), 10) + (len(rows) > 10)


def test_data_frames_take_tables_by_their_own_constructors():
    rows = nearfar.run("latency-by-size", QUICK).rows
    medians = rows["median_ns"]
    assert polars.DataFrame(rows)["median_ns"].to_list() == medians
    assert pandas.DataFrame.from_arrow(rows)["median_ns"].to_list() == medians
    first, second = pyarrow.table(rows), pyarrow.table(rows)
    for name in ("median_ns", "row"):
        places = [table[name].chunk(0).buffers()[1].address for table in (first, second)]
        assert places[0] == places[1], "both see the same column, not a copy"
    del rows
    assert first["median_ns"].to_pylist() == medians, "columns live as long as somebody sees them"


def test_programs_on_computers_are_readings_accounts_and_links():
    results = nearfar.run("dd-verify", accounting=True)
    assert {"reading", "account", "link", "counter", "binds"} <= set(results.kinds)
    assert all(value is not None for value in results.readings["value"])
    assert results.links["lanes"][0] > 0 and len(results.failures) == 0
    with pytest.raises(nearfar.InputError, match="no kernel runs"):
        nearfar.run("latency-by-size", accounting=True)


def test_sweeps_have_their_keys_as_columns_and_do_not_depend_on_threads():
    over = {"dma_engine.tags": [8, 32], "host.llc.ddio_ways": [0, 2]}
    nearfar.cache(None)
    one = nearfar.sweep("latency-by-size", over, QUICK, jobs=1)
    assert one == nearfar.sweep("latency-by-size", over, QUICK)
    table = pyarrow.table(one.rows)
    assert table["dma_engine.tags"].to_pylist()[:2] == [8, 8] and set(table["host.llc.ddio_ways"].to_pylist()) == {0, 2}
    assert table["row"].to_pylist() == list(range(1, len(table) + 1))


@pytest.mark.parametrize("over", [{}, {"dma_engine.tags": []}, {"dma_engine.tags": "8,16"}, {"dma_engine.tags": 8}, None])
def test_values_that_are_none_are_refused(over):
    with pytest.raises(nearfar.InputError):
        nearfar.sweep("latency-by-size", over)


def test_wrong_arguments_are_told_as_inputs():
    for arguments in [{"set": {"pcie_bench.tests": 1}}, {"set": 3}, {"jobs": 0}, {"jobs": True}]:
        with pytest.raises(nearfar.InputError):
            nearfar.run("latency-by-size", **arguments)
    with pytest.raises(nearfar.InputError, match="latency-by-size"):
        nearfar.run("latency-by-sizes")
    with pytest.raises(nearfar.InputError, match="scenario"):
        nearfar.run(7)
    with pytest.raises(nearfar.InputError) as raised:
        nearfar.bench("dell-t430", iommu="perhaps")
    assert "off, 4k, superpages" in raised.value.problems[0].help


@pytest.mark.parametrize(
    "call",
    [
        lambda quick: nearfar.run("latency-by-size", quick, accounting="yes"),
        lambda quick: nearfar.run("latency-by-size", quick, progress=3),
        lambda quick: nearfar.run("latency-by-size", quick, library="here"),
        lambda quick: nearfar.run("latency-by-size", {"pcie_bench.samples": 10**30}),
        lambda quick: nearfar.run("latency-by-size", {"pcie_bench.window": "8 ns"}),
        lambda quick: nearfar.trace("latency-by-size", quick, packets=-1),
        lambda quick: nearfar.trace("latency-by-size", quick, from_ns="soon"),
        lambda quick: nearfar.trace("latency-by-size", quick, from_ns=float("nan")),
        lambda quick: nearfar.trace("latency-by-size", quick, links="slot"),
        lambda quick: nearfar.trace("latency-by-size", quick, links=["nowhere"]),
        lambda quick: nearfar.compare(".", sample=0),
        lambda quick: nearfar.bench("dell-t430", seed=-1),
        lambda quick: nearfar.bench("dell-t430", files=3),
        lambda quick: nearfar.fit(".", figures="host.dram.access"),
        lambda quick: nearfar.Prototype(3),
        lambda quick: nearfar.Prototype(nearfar.Device(), seed="one"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(call):
    with pytest.raises(nearfar.InputError) as raised:
        call(QUICK)
    assert raised.value.problems[0].help


def test_a_folder_that_cannot_keep_results_is_named():
    with pytest.raises(OSError, match="/proc/nothing"):
        nearfar.cache("/proc/nothing")


def test_what_is_kept_is_not_simulated_again(cache):
    first = nearfar.run("latency-by-size", QUICK)
    found, added = nearfar.cache_used()
    assert found == 0 and added > 0
    assert nearfar.run("latency-by-size", QUICK) == first
    assert nearfar.cache_used()[0] > 0


def test_pcie_bench_writes_its_files(tmp_path):
    results = nearfar.bench("dell-t430", short=True, files="lat_cmd_sizes", folder=tmp_path / "out")
    assert len(results.rows) > 1 and list((tmp_path / "out").glob("lat_cmd_sizes*.csv"))
    with pytest.raises(nearfar.InputError, match="there are"):
        nearfar.bench("dell-t430", files="nothing")


def test_a_trace_is_a_table_of_packets():
    packets = nearfar.trace("latency-by-size", QUICK, packets=50)
    assert len(packets) == 50 and packets["packet"][0] == 1
    table = pyarrow.table(packets)
    written = [row for row in table.to_pylist() if row["type"] in ("CplD", "MWr(64)", "MWr(32)")]
    assert written and all(len(row["payload"]) <= row["length_bytes"] for row in written)
    with pytest.raises(nearfar.InputError, match="runs are 1 to"):
        nearfar.trace("latency-by-size", QUICK, run=999)
    with pytest.raises(nearfar.InputError):
        nearfar.trace("latency-by-size", QUICK, types="nonsense")


def test_measured_results_are_compared_and_fitted(measured):
    done = nearfar.compare(measured, files="lat_dma_sweep", sample=6)
    assert 0 < len(done.table()) <= 40 and not done.problems
    assert all(abs(error) < 50 for error in done.table()["error_pct"] if error is not None)
    assert "median_pct" in done.families
    with pytest.raises(nearfar.InputError, match="no folder"):
        nearfar.compare("/nowhere")


def test_other_threads_go_on_while_it_runs():
    counted, over = [0], threading.Event()

    def count():
        while not over.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    told = []
    nearfar.cache(None)
    nearfar.sweep("latency-by-size", {"dma_engine.tags": [8, 16, 32]}, progress=lambda *state: told.append(state))
    over.set()
    thread.join()
    assert counted[0] > 10, "the interpreter was held"
    assert all(len(state) == 4 for state in told)


def test_who_is_told_of_progress_may_fail():
    def fail(*state):
        raise LookupError("enough")

    nearfar.cache(None)
    with pytest.raises(LookupError, match="enough"):
        nearfar.run("netperf", progress=fail)
    assert len(nearfar.run("latency-by-size", QUICK)) > 0


PROGRAM = """
import nearfar, sys
nearfar.cache(None)
print("begun", flush=True)
try:
    nearfar.run("netperf", {"host.a.iommu": "strict"})
except KeyboardInterrupt:
    results = nearfar.run("latency-by-size", {"pcie_bench.samples": 50})
    print("interrupted, and works on", len(results) > 0, flush=True)
"""


def heed_control_c():
    """A shell has what it runs in the background ignore the signal, and a child would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_control_c_ends_it_and_the_interpreter_works_on():
    program = [sys.executable, "-c", PROGRAM]
    child = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, preexec_fn=heed_control_c)
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0] == "interrupted, and works on True\n" and child.returncode == 0


def test_a_fork_after_import_simulates():
    expected = nearfar.run("latency-by-size", QUICK)
    nearfar.cache(None)
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(into, b"same" if nearfar.run("latency-by-size", QUICK) == expected else b"other")
        finally:
            os._exit(0)
    os.close(into)
    assert os.waitpid(child, 0)[1] == 0 and os.read(out, 10) == b"same"


TWICE = """
import nearfar, sys, hashlib
nearfar.cache(sys.argv[1])
results = nearfar.sweep("latency-by-size", {"dma_engine.tags": [8, 16, 24, 32]}, {"pcie_bench.samples": 100})
print(hashlib.sha256(results._records.json()).hexdigest())
"""


def test_two_interpreters_share_one_cache(tmp_path):
    children = [
        subprocess.Popen([sys.executable, "-c", TWICE, str(tmp_path / "shared")], stdout=subprocess.PIPE) for _ in range(2)
    ]
    first, second = (child.communicate(timeout=120)[0] for child in children)
    assert first == second and len(first) == 65
    kept = [file.name for file in (tmp_path / "shared").rglob("*") if file.is_file()]
    assert kept and not any(name.startswith(".") for name in kept), "nothing half-written is left"


def test_results_can_be_sent_to_other_processes():
    results = nearfar.run("latency-by-size", QUICK)
    sent = pickle.loads(pickle.dumps(results))
    assert sent == results and sent.provenance == results.provenance


def test_results_are_written_whole_or_not_at_all(tmp_path):
    results = nearfar.run("latency-by-size", QUICK)
    results.save(tmp_path / "a.json")
    records = json.loads((tmp_path / "a.json").read_text())
    assert records[0].pop("provenance") == results.provenance and records == results.to_dicts()
    with pytest.raises(OSError):
        results.save(tmp_path / "nowhere" / "a.json")
    assert [file.name for file in tmp_path.glob("*.json")] == ["a.json"]


def test_results_with_drawn_figures_are_intervals():
    results = nearfar.run("latency-by-size", QUICK, uncertainty=4)
    quantities = set(results.intervals["quantity"])
    assert quantities == {"median", "95th percentile"}, "of so few samples"
    assert set(results.intervals["runs"]) == {4}
    for low, median, high in zip(*(results.intervals[key] for key in ("p05", "median", "p95")), strict=True):
        assert low <= median <= high
    assert "host.dram.access" in results.figures["path"]
    assert results == nearfar.run("latency-by-size", QUICK, uncertainty=4, jobs=1)
    with pytest.raises(nearfar.InputError, match="2 on"):
        nearfar.run("latency-by-size", uncertainty=1)
    swept = nearfar.sweep("latency-by-size", {"dma_engine.tags": [8, 16]}, QUICK, uncertainty=4)
    assert len(swept.intervals) == 2 * len(results.intervals)
    assert set(swept.intervals["dma_engine.tags"]) == {8, 16}
