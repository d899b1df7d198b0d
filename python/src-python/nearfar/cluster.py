"""Work of a Dask cluster: `distributed` is asked for when it is needed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from . import _nearfar
from .errors import ClusterError, Error, VersionError
from .values import Library

if TYPE_CHECKING:
    from distributed import Client

    from .running import _Called

CONNECT_S = 10
"""How long to wait for a scheduler, and for its first worker."""
SHARE, LEAST = 4, 64
"""A task takes a fourth of what each thread has before it, and no less than a 64th of what each had at first: the tasks are few,
and at the end no thread waits long for the others."""


@contextlib.contextmanager
def connected(client: Client | str) -> Iterator[Client]:
    """A client that works, with workers of this very nearfar."""
    try:
        import distributed
    except ImportError as error:
        raise ClusterError("Dask's `distributed` is not installed: pip install distributed") from error
    own = None
    try:
        if isinstance(client, str):
            try:
                client = own = distributed.Client(client, timeout=CONNECT_S, set_as_default=False)
            except (OSError, ValueError, TimeoutError) as error:
                raise ClusterError(f"there is no scheduler at `{client}`: {error}") from error
        if not isinstance(client, distributed.Client):
            raise ClusterError(f"`client` cannot be {client!r}: a distributed.Client, or a scheduler's address")
        if client.status != "running":
            raise ClusterError(f"the client is {client.status}: make a new one")
        if client.asynchronous:
            raise ClusterError("the client is asynchronous: make one without `asynchronous=True`")
        with told():
            client.wait_for_workers(1, timeout=CONNECT_S)
            builds = client.run(build, on_error="return")
        for worker, found in builds.items():
            refuse(worker, found, _nearfar.BUILD)
        yield client
    finally:
        if own is not None:
            own.close()


@contextlib.contextmanager
def told() -> Iterator[None]:
    """What goes wrong with a cluster, in nearfar's words."""
    import distributed
    from concurrent.futures import CancelledError

    try:
        yield
    except Error:
        raise
    except distributed.scheduler.KilledWorker as error:
        raise ClusterError(f"workers died again and again at the same points: {error}") from error
    except (CancelledError, distributed.CancelledError) as error:
        raise ClusterError("the client was closed, or its scheduler went away, before all was done; what was done is kept") from error
    except (OSError, TimeoutError, RuntimeError) as error:
        raise ClusterError(f"the cluster does not answer: {error}") from error


def build() -> str:
    """Which nearfar this is."""
    return _nearfar.BUILD


def refuse(worker: str, found: Any, wanted: str) -> None:
    """Complains of a worker with another nearfar."""
    if isinstance(found, BaseException):
        raise VersionError(f"worker {worker} has no nearfar ({found}): install the same one there")
    if found != wanted:
        raise VersionError(
            f"worker {worker} has another nearfar ({found[:12]}, the client's is {wanted[:12]}): its results would not be the"
            " same; install the same one there"
        )


@functools.cache
def keep_memory() -> None:
    """Lets the C library keep memory between points, as it does by itself: Dask starts workers with a setting that gives back
    whatever is free, and each simulation would fetch its tables from the system anew. The figures are those that glibc adapts
    to (mallopt(3): the largest dynamic threshold for mmap, and twice that for trimming)."""
    trim_threshold, mmap_threshold, largest = -1, -3, 32 << 20
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(mmap_threshold, largest)
        mallopt(trim_threshold, 2 * largest)


@contextlib.contextmanager
def unsampled() -> Iterator[None]:
    """Keeps the worker from looking at the task's stack a hundred times a second, for its profile, which takes two percent of a
    core: of a task that is one call of the simulator's it would show that call alone."""
    from distributed import get_worker

    worker = get_worker()
    sampling = worker.periodic_callbacks.get("profile")
    if sampling is None:
        yield
        return
    worker.loop.add_callback(sampling.stop)
    try:
        yield
    finally:
        # Another thread's task may have done so: started twice, it would sample twice as often.
        worker.loop.add_callback(lambda: sampling.is_running() or sampling.start())


def work(wanted: str, function: str, folders: list[str], texts: dict[str, str], arguments: tuple) -> Any:
    """What a worker does: one of the simulator's functions, on one thread."""
    if wanted != _nearfar.BUILD:
        from distributed import get_worker

        refuse(get_worker().address, _nearfar.BUILD, wanted)
    keep_memory()
    library = _nearfar.Library(folders, list(texts.items()))
    with unsampled():
        return getattr(_nearfar, function)(library, *arguments, 1, None)


def in_order(
    client: Client, function: str, library: Library, all: list[tuple], what: str, tell: Callable | None,
    each: Callable[[int, Any], None],
) -> None:
    """Lets the cluster do `function` for all arguments, and tells each outcome as it comes."""
    import distributed

    with told():
        submitted = [
            client.submit(work, _nearfar.BUILD, function, library._folders, library._texts, one, pure=False) for one in all
        ]
        places = {future.key: place for place, future in enumerate(submitted)}
        try:
            done = 0
            for future in distributed.as_completed(submitted):
                each(places[future.key], future.result())
                future.release()
                done += 1
                if tell:
                    tell(what, done, len(all), "")
        finally:
            if client.status == "running":
                client.cancel([future for future in submitted if not future.done()])


def smaller_and_smaller(points: list[int], threads: int) -> list[list[int]]:
    """Points for the tasks of so many threads."""
    batches, begin = [], 0
    while begin < len(points):
        size = max(1, len(points) // (threads * LEAST), (len(points) - begin) // (threads * SHARE))
        batches.append(points[begin : begin + size])
        begin += size
    return batches


def sweep_points(
    client: Client | str, called: _Called, points: list, accounting: bool, command: str, tell: Callable | None
) -> tuple[list[_nearfar.Records], str]:
    """The records of each point, those that are kept here first."""
    arguments = (called.library._native(), called.name, called.changes)
    keys, records, provenance, texts = _nearfar.look(*arguments, points, accounting, command)
    left = [place for place, known in enumerate(records) if known is None]
    with connected(client) as cluster:
        batches = smaller_and_smaller(left, max(1, sum(cluster.nthreads().values())))
        library = called.library._with(dict(texts))
        tasks = [(called.name, called.changes, [points[place] for place in batch], accounting, command) for batch in batches]

        def take(number: int, outcome: Any) -> None:
            for place, one in zip(batches[number], outcome[0], strict=True):
                records[place] = one
                if keys[place]:
                    _nearfar.keep(keys[place], records[place])

        in_order(cluster, "sweep", library, tasks, f"sweep of {called.name}", tell, take)
    return records, provenance


def all_tables(client: Client | str, function: str, library: Library, tasks: list[tuple], tell: Callable | None) -> list[tuple]:
    """What one of the simulator's functions gives for each of these arguments, a task for each."""
    done: list[Any] = [None] * len(tasks)

    with connected(client) as cluster:
        in_order(cluster, function, library, tasks, function.replace("_", " "), tell, done.__setitem__)
    return done
