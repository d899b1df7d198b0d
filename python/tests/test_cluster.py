"""Sweeps over a Dask cluster give what local ones give."""

import os
import signal
import socket

import nearfar
import pytest
from conftest import QUICK
from distributed import Client, LocalCluster
from nearfar import _nearfar, cluster

OVER = {"dma_engine.tags": list(range(1, 25))}


@pytest.fixture(scope="module")
def local():
    """Two processes of one thread each."""
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as workers:
        yield workers


@pytest.fixture
def client(local):
    with Client(local) as client:
        client.run(nearfar.cache, None)
        yield client


def test_results_are_those_of_local_threads_to_the_bit(client):
    machine = nearfar.Machine.load("dell-t430").copy("mine")
    machine["host.llc.ddio_ways"] = 8
    scenario = nearfar.Scenario.load("latency-by-size").change({"machine": machine, **QUICK})
    nearfar.cache(None)
    assert nearfar.sweep(scenario, OVER, client=client) == nearfar.sweep(scenario, OVER)
    drawn = {"uncertainty": 3}
    assert nearfar.run(scenario, client=client, **drawn) == nearfar.run(scenario, **drawn)
    programs = {"host.a.iommu": ["off", "strict"]}
    assert nearfar.sweep("dd-verify", programs, client=client) == nearfar.sweep("dd-verify", programs)


@pytest.mark.parametrize(("points", "threads"), [(0, 2), (1, 16), (24, 2), (1000, 2), (1000, 64)])
def test_each_point_is_in_one_task_and_the_last_tasks_are_small(points, threads):
    batches = cluster.smaller_and_smaller(list(range(points)), threads)
    assert [point for batch in batches for point in batch] == list(range(points))
    sizes = [len(batch) for batch in batches]
    assert all(later <= size for size, later in zip(sizes[:-1], sizes[1:]))
    assert points == 0 or sizes[-1] <= max(1, points / (threads * cluster.LEAST))


def test_what_is_finished_is_not_repeated(client):
    told = []
    first = nearfar.sweep("latency-by-size", OVER, QUICK, client=client, progress=lambda *state: told.append(state))
    assert told[-1][1] == told[-1][2]
    more = {"dma_engine.tags": [*OVER["dma_engine.tags"], 25]}
    told.clear()
    again = nearfar.sweep("latency-by-size", more, QUICK, client=client, progress=lambda *state: told.append(state))
    assert told[-1][1:3] == (1, 1), "one point was new"
    assert again.to_dicts()[: len(first)] == first.to_dicts()


def test_a_worker_that_is_killed_costs_only_its_points():
    over = {"dma_engine.tags": list(range(1, 33)), "host.llc.ddio_ways": [1, 2]}
    nearfar.cache(None)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as workers, Client(workers) as client:
        victim = next(iter(client.run(os.getpid).values()))
        killed = []

        def kill(what, done, steps, last):
            if done >= 3 and not killed:
                killed.append(done)
                os.kill(victim, signal.SIGKILL)

        results = nearfar.sweep("latency-by-size", over, QUICK, client=client, progress=kill)
    assert killed and results == nearfar.sweep("latency-by-size", over, QUICK)


def test_a_worker_with_another_nearfar_is_refused(client):
    def other():
        from nearfar import _nearfar

        _nearfar.BUILD = "f" * 64

    def same(build):
        from nearfar import _nearfar

        _nearfar.BUILD = build

    victim = next(iter(client.scheduler_info()["workers"]))
    client.run(other, workers=[victim])
    try:
        with pytest.raises(nearfar.VersionError, match=victim.replace(".", r"\.")):
            nearfar.sweep("latency-by-size", OVER, QUICK, client=client)
        # One that comes later is refused by what it is to do.
        late = client.submit(cluster.work, _nearfar.BUILD, "sweep", [], {}, (), workers=[victim], pure=False)
        with pytest.raises(nearfar.VersionError):
            late.result()
    finally:
        client.run(same, _nearfar.BUILD, workers=[victim])


def test_a_scheduler_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setattr(cluster, "CONNECT_S", 1)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(nearfar.ClusterError, match="no scheduler"):
            nearfar.sweep("latency-by-size", OVER, QUICK, client=address)
    with pytest.raises(nearfar.ClusterError, match="distributed.Client"):
        nearfar.sweep("latency-by-size", OVER, QUICK, client=7)


def test_a_client_that_is_closed_in_the_middle_is_told(local):
    client = Client(local)

    def close(what, done, steps, last):
        client.close()

    with pytest.raises(nearfar.ClusterError):
        nearfar.sweep("latency-by-size", OVER, QUICK, client=client, progress=close)
    with pytest.raises(nearfar.ClusterError, match="closed"):
        nearfar.sweep("latency-by-size", {"dma_engine.tags": [31]}, QUICK, client=client)
    done = nearfar.cache_used()[1]
    assert done > 0, "what was done is kept"


def test_what_is_wrong_is_told_before_anything_is_sent(client):
    with pytest.raises(nearfar.InputError, match="tagz"):
        nearfar.sweep("latency-by-size", {"dma_engine.tagz": [1, 2]}, client=client)


def test_directories_are_compared_each_by_a_task(client, measured):
    nearfar.cache(None)
    arguments = {"files": "lat_cmd_sweep", "sample": 4}
    there = nearfar.compare(measured, measured, client=client, **arguments)
    here = nearfar.compare(measured, measured, **arguments)
    assert there == here and there.notes == here.notes and len(there) > 0
    drawn = nearfar.compare(measured, client=client, uncertainty=3, **arguments)
    assert drawn == nearfar.compare(measured, uncertainty=3, **arguments)
    table = drawn.table()
    assert all(low <= high for low, high in zip(table["low"], table["high"]))


def test_each_directory_is_left_out_of_a_fit_by_a_task(client, tmp_path):
    nearfar.cache(None)
    folders = []
    for iommu, ending in (("off", ""), ("4k", "-iommu-nosp")):
        folders.append(tmp_path / f"nfp6000-mine_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0{ending}")
        nearfar.bench("dell-t430", iommu=iommu, files="lat_dma_sweep", short=True, folder=folders[-1])
    left = nearfar.leave_one_out(*folders, sample=4, client=client).table()
    assert left["directory"] == [str(folder) for folder in folders] and set(left["relative"]) != {"dell-t430"}
    assert all(0 <= error < 30 for error in left["median_pct"])
    with pytest.raises(nearfar.InputError, match="director"):
        nearfar.leave_one_out(folders[0])


def test_ablation_goes_on_from_what_it_found_and_is_not_stopped_with_a_false_verdict(client, measured, tmp_path):
    arguments = {"figures": ["host.root_complex.long_header_penalty"], "refit": ["host.dram.refresh_duration"], "state": tmp_path / "state"}

    def stop(*state):
        raise LookupError("enough")

    with pytest.raises(LookupError):
        nearfar.ablate([measured], progress=stop, **arguments)
    assert not list((tmp_path / "state").glob("*.json")), "what was not seen to its end says nothing"
    there = nearfar.ablate([measured], client=client, **arguments)
    assert there.to_dicts()[0]["verdict"] == "needed"
    assert nearfar.ablate([measured], **arguments) == there, "from its file"
