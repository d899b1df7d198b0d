"""What the Python module costs: `python measure.py [arrow] [cluster] [device]`, all if none is named.

arrow: a million records as a table, and a million rows of a trace. cluster: a sweep of 1,000 small points by Dask, against local
threads on the same cores, pairs of runs in turn, by time passed and by processor time of client, scheduler and workers; then what the
cluster takes when it has nothing to do. device: real time of each call of a device in Python.
"""

import json
import statistics
import sys
import time

import nearfar
from nearfar import _nearfar


def seconds(work):
    began = time.perf_counter()
    result = work()
    return time.perf_counter() - began, result


def arrow():
    import pyarrow

    rows = [
        {"kind": "row", "row": n, "test": "LAT_DMA_RD", "transfer_bytes": 64, "median_ns": n * 0.1, "steady": True}
        for n in range(1_000_000)
    ]
    records = _nearfar.Records(json.dumps(rows).encode())
    took, table = seconds(records.table)
    pyarrow.table(nearfar.Machine.load("dell-t430").figures())
    handed, frame = seconds(lambda: pyarrow.table(table))
    print(f"a million records of {len(table.column_names)} keys: {took:.2f} s to a table, {1e3 * handed:.3f} ms to pyarrow ({len(frame)} rows)")
    took, packets = seconds(lambda: nearfar.trace("netperf", packets=1_000_000))
    print(f"a trace of {len(packets)} packets: {took:.2f} s, simulated and decoded")


def cluster():
    from distributed import Client, LocalCluster

    scenario = nearfar.Scenario.load("latency-by-size").change(
        {"pcie_bench.window": "8 KiB", "pcie_bench.transfer": "64 B", "pcie_bench.cache": "cold", "pcie_bench.samples": 2000}
    )
    over = {"dma_engine.tags": list(range(1, 21)), "host.dram.access": [f"{ns} ns" for ns in range(40, 90)]}
    nearfar.cache(None)
    passed, used = [], []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers, Client(workers) as client:
        # Everything is simulated each time, there as here.
        client.run(nearfar.cache, None)

        def both(work):
            """Time passed, and processor time of all."""
            processors = lambda: time.process_time() + sum(client.run(time.process_time).values())
            before = processors()
            took, result = seconds(work)
            return took, processors() - before, result

        for _ in range(5):
            local, local_used, here = both(lambda: nearfar.sweep(scenario, over, jobs=2))
            idle_used = both(lambda: time.sleep(local))[1]
            dask, dask_used, there = both(lambda: nearfar.sweep(scenario, over, client=client))
            assert here == there
            # While threads work here, the cluster waits and takes processor time, too.
            local_used -= idle_used
            passed.append(dask / local)
            used.append(dask_used / local_used)
            print(
                f"1,000 points: {local:.2f} s on local threads, {dask:.2f} s by Dask; processors {local_used:.2f} s, {dask_used:.2f} s by Dask; "
                f"the cluster alone {idle_used:.2f} s"
            )
    for what, ratios in (("time", passed), ("processor time", used)):
        print(f"median of {what} {100 * (statistics.median(ratios) - 1):+.1f} %")


class Register(nearfar.Device):
    def bar_read(self, bus, bar, offset, length):
        return bytes(length)


def device():
    host = nearfar.Prototype(Register())
    before, (took, _) = host.work, seconds(lambda: [host.read(0) for _ in range(20_000)])
    events, calls = (now - then for now, then in zip(host.work, before))
    print(f"{1e6 * took / calls:.1f} us for each register read of a device in Python, {events / calls:.1f} events each")
    bus = _nearfar.Bus
    register = Register()
    took, _ = seconds(lambda: [register.bar_read(bus, 0, 0, 4) for _ in range(200_000)])
    print(f"{1e6 * took / 200_000:.2f} us of it is the method itself")


if __name__ == "__main__":
    for name in sys.argv[1:] or ["arrow", "cluster", "device"]:
        globals()[name]()
