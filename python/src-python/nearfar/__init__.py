"""PCIe host I/O simulated in software.

>>> import nearfar
>>> results = nearfar.sweep("latency-by-size", {"dma_engine.tags": [8, 16, 32]})
>>> polars.DataFrame(results.rows)

- Files: `Machine`, `Part`, `Scenario` and others, loaded by name (`Machine.names()`), changed and built in code.
- Runs: `run`, `sweep`, `bench`, `compare`, `fit`, `leave_one_out`, `ablate`, `trace`. With `client`, a Dask cluster does the work.
- What comes out: `Results`, whose tables polars, pandas and pyarrow take without a copy.
- `Device` and `Prototype`: a device written in Python, in a slot of a simulated host.
- What goes wrong: `InputError` with file, line and what would be right; `RunError`; `ClusterError` and `VersionError`.

Results that were simulated once are kept in `$NEARFAR_CACHE`, or in `nearfar` in the user's folder of caches, and not simulated
again; `nearfar.cache(None)` switches that off.
"""

from __future__ import annotations

import contextlib
import os

from . import _nearfar
from ._nearfar import Bus, Table
from .devices import Device, Memory, Prototype
from .errors import ClusterError, Error, InputError, Problem, RunError, VersionError
from .files import CLASSES, Figure, File, Machine, Part, Scenario
from .results import Results
from .running import Comparison, Fit, ablate, bench, compare, fit, leave_one_out, run, sweep, trace
from .values import Library

__version__: str = _nearfar.VERSION
__build__: str = _nearfar.BUILD


def cache(folder: str | os.PathLike[str] | None) -> None:
    """Keeps results in a folder from now on, for the whole process; `None` keeps nothing and finds nothing."""
    if folder is None:
        _nearfar.keep_nothing()
    else:
        try:
            _nearfar.keep_in(os.fspath(folder))
        except OSError as error:
            raise type(error)(f"results cannot be kept in `{os.fspath(folder)}`: {error}") from error


def cache_used() -> tuple[int, int]:
    """How many results were found where they are kept, and how many were added."""
    return _nearfar.kept()


# Without a folder everything is simulated: no reason to complain.
with contextlib.suppress(OSError):
    _nearfar.keep_in(None)


def __getattr__(name: str) -> type[File]:
    """The class of a kind of file, such as `Nic`."""
    try:
        return CLASSES[name]
    except KeyError:
        raise AttributeError(f"module `nearfar` has no attribute `{name}`") from None


__all__ = [  # noqa: PLE0604
    "Bus", "ClusterError", "Comparison", "Device", "Error", "Figure", "File", "Fit", "InputError", "Library", "Memory", "Problem",
    "Prototype", "Results", "RunError", "Table", "VersionError", "ablate", "bench", "cache", "cache_used", "compare",
    "fit", "leave_one_out", "run", "sweep", "trace", *CLASSES,
]
