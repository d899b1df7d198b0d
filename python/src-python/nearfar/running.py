"""Runs: the simulator works beside the interpreter, which goes on with its other threads, and Ctrl-C ends it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _nearfar
from ._nearfar import Table
from .errors import wrong
from .files import Machine, Part, Scenario
from .progress import Tell, shown
from .results import Results
from .values import Library, Value, call, changes, checked, combinations

if TYPE_CHECKING:
    from distributed import Client

_Path = str | os.PathLike[str]


class _Called:
    """A scenario with what is set in it, ready for the simulator."""

    def __init__(self, scenario: str | Scenario, values: Mapping[str, Value] | None, library: Library | None) -> None:
        texts: dict[str, str] = {}
        given = changes(values, "set", texts)
        if isinstance(scenario, Scenario):
            library = library or scenario._library
            texts |= scenario._texts
            texts[scenario._place] = scenario._native.text
            given = [*scenario._changes.items(), *given]
            self.name = scenario._reference
        elif isinstance(scenario, (str, os.PathLike)):
            self.name = os.fspath(scenario)
        else:
            raise wrong("scenario", f"`scenario` cannot be {scenario!r}", "a name, a path, or a nearfar.Scenario")
        self.changes = given
        self.library = (library or Library())._with(texts)


def _named(kind: type[Machine] | type[Part], given: str | Machine | Part | None, name: str, texts: dict[str, str]) -> str | None:
    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, kind):
        raise wrong(name, f"`{name}` cannot be {given!r}", f"a name, a path, or a nearfar.{kind.__name__}")
    texts.update(given._in_library())
    return given.name


@checked
def run(
    scenario: str | Scenario,
    set: Mapping[str, Value] | None = None,
    *,
    accounting: bool = False,
    uncertainty: int | None = None,
    client: Client | str | None = None,
    jobs: int | None = None,
    progress: bool | Tell | None = None,
    library: Library | None = None,
) -> Results:
    """Runs a scenario, by its name, its path or as made in code: every record of what came out, counters included.

    `set` are changes for this run alone, such as `{"host.llc.ddio_ways": 4}`. With `accounting`, `results.accounts` says
    where the cores' time went. `jobs` is how many threads work (all cores); results do not depend on it. `progress` shows a
    line in a terminal or notebook; a function is told instead. Raises `InputError` for what is wrong with scenario or changes,
    `RunError` for what cannot be simulated. Ctrl-C ends it; nothing is left half-written.

    With `uncertainty`, so many runs more are made, each with the figures of all files drawn anew within their uncertainties:
    `results.intervals` has each result's median and its 5 and 95 %, `results.influences` the figures that it hangs on. With
    `client` as well, these runs are those of a Dask cluster, as the points of `sweep` are.

    >>> results = nearfar.run("latency-by-size")
    >>> results.rows["median_ns"]
    """
    called = _Called(scenario, set, library)
    command = call("run", called.name, set=set, accounting=accounting, uncertainty=uncertainty)
    with shown(progress) as tell:
        native = called.library._native()
        own, provenance = _nearfar.run(native, called.name, called.changes, accounting, command, jobs, tell)
    if uncertainty is None:
        return Results(own, provenance)
    drawn, _ = _points(called, _draws([[]], uncertainty)[1:], False, command, client, jobs, progress)
    return Results(_nearfar.with_intervals([own, *drawn], str(uncertainty)), provenance)


def _draws(points: list[list[tuple[str, str]]], uncertainty: int) -> list[list[tuple[str, str]]]:
    """Each point with the files' own figures, draw 0, and with each draw."""
    return [[*point, ("draw", f"{draw}/{uncertainty}")] for point in points for draw in range(uncertainty + 1)]


def _points(
    called: _Called, points: list, accounting: bool, command: str, client: Client | str | None, jobs: int | None,
    progress: bool | Tell | None,
) -> tuple[list[_nearfar.Records], str]:
    """The records of each point, here or of a cluster."""
    with shown(progress) as tell:
        if client is not None:
            from .cluster import sweep_points

            return sweep_points(client, called, points, accounting, command, tell)
        native = called.library._native()
        return _nearfar.sweep(native, called.name, called.changes, points, accounting, command, jobs, tell)


@checked
def sweep(
    scenario: str | Scenario,
    over: Mapping[str, Iterable[Value]],
    set: Mapping[str, Value] | None = None,
    *,
    accounting: bool = False,
    uncertainty: int | None = None,
    client: Client | str | None = None,
    jobs: int | None = None,
    progress: bool | Tell | None = None,
    library: Library | None = None,
) -> Results:
    """Runs a scenario for every combination of the values of keys: each record has the swept keys with its values.

    >>> results = nearfar.sweep("latency-by-size", {"dma_engine.tags": [8, 16, 32], "machine": ["dell-t430", "dell-t630"]})

    With `client`, a `distributed.Client` or a scheduler's address, the points are run by a Dask cluster. The results are
    the same to the bit. Points whose results are kept here are not run again; a worker that is killed costs only the points
    it was at. Raises `VersionError` if a worker has another nearfar, `ClusterError` if the cluster is not there or goes away.
    With `uncertainty`, each point is run so many times more, with the same draws of the figures at all points. Otherwise as `run`.
    """
    called = _Called(scenario, set, library)
    texts: dict[str, str] = {}
    points = combinations(over, texts)
    called.library = called.library._with(texts)
    said = {key: list(values) for key, values in over.items()}
    command = call("sweep", called.name, over=said, set=set, accounting=accounting, uncertainty=uncertainty)
    if uncertainty is not None:
        points = _draws(points, uncertainty)
    records, provenance = _points(called, points, accounting, command, client, jobs, progress)
    if uncertainty is not None:
        return Results(_nearfar.with_intervals(records, str(uncertainty)), provenance)
    return Results(_nearfar.Records.joined(records), provenance)


@checked
def bench(
    machine: str | Machine,
    card: str | Part = "nfp6000",
    *,
    sockets: str = "s0-s0-s0",
    iommu: str = "off",
    set: Mapping[str, Value] | None = None,
    card_set: Mapping[str, Value] | None = None,
    files: str | None = None,
    short: bool = False,
    folder: _Path | None = None,
    seed: int = 1,
    uncertainty: int | None = None,
    client: Client | str | None = None,
    jobs: int | None = None,
    progress: bool | Tell | None = None,
    library: Library | None = None,
) -> Results:
    """Runs pcie-bench on a machine: every row of its files.

    `sockets` are those of device, memory and program (`s0-s1-s1`: remote memory), `iommu` is `off`, `4k` or `superpages`.
    `files` takes only files with this in their names, `short` an eighth of the rows. `folder` gets CSV files with pcie-bench's
    own columns. Units: nanoseconds and Gbit/s. `uncertainty` is as for `run`; with `client` as well, a Dask cluster runs the
    suite once for each draw. Raises as `run`.
    """
    texts: dict[str, str] = {}
    machine_name = _named(Machine, machine, "machine", texts)
    card_name = _named(Part, card, "card", texts)
    given = [changes(values, name, texts) for values, name in ((set, "set"), (card_set, "card_set"))]
    command = call(
        "bench", machine_name, card=card_name, sockets=sockets, iommu=iommu, files=files, short=short, uncertainty=uncertainty
    )
    where = (library or Library())._with(texts)
    arguments = (machine_name, card_name, (sockets, iommu), *given, files, short)
    with shown(progress) as tell:
        own = (folder and os.fspath(folder), seed, None, command)
        records, provenance, _ = _nearfar.bench(where._native(), *arguments, *own, jobs, tell)
    if uncertainty is None:
        return Results(records, provenance)
    tasks = [(*arguments, None, seed, f"{draw}/{uncertainty}", command) for draw in range(1, uncertainty + 1)]
    drawn = [one[0] for one in _tables("bench", where, tasks, client, jobs, progress)]
    return Results(_nearfar.with_intervals([records, *drawn], str(uncertainty)), provenance)


class Comparison(Results):
    """Measured results against the same runs simulated. `table()` has a row for each measured one: `measured`, `simulated`,
    `unit`, `error_pct`, `artefact`, `cause`; `families` a row for each kind of file, with its errors and targets."""

    def __init__(self, records: _nearfar.Records, families: _nearfar.Records, provenance: str, notes: list[str], problems: list[str]) -> None:
        super().__init__(records, provenance)
        self._families = families
        self.notes = notes
        """What the choice of the machine rests on, and what contradicts it."""
        self.problems = problems
        """Files that cannot be read and rows that cannot be simulated."""

    @property
    def families(self) -> Table:
        """Errors by family of files: `family`, `quantity`, `counted`, `median_pct`, `p90_pct`, `worst_pct` (percent)."""
        return self._families.table(None, {"provenance": self._provenance})

    def __repr__(self) -> str:
        return f"<nearfar.Comparison: {len(self)} rows, {len(self._families)} families>"


@checked
def compare(
    *directories: _Path,
    machine: str | Machine | None = None,
    card: str | Part | None = None,
    sockets: str | None = None,
    iommu: str | None = None,
    set: Mapping[str, Value] | None = None,
    card_set: Mapping[str, Value] | None = None,
    files: str | None = None,
    sample: int | None = None,
    held_out: bool = False,
    uncertainty: int | None = None,
    seed: int = 1,
    client: Client | str | None = None,
    jobs: int | None = None,
    progress: bool | Tell | None = None,
    library: Library | None = None,
) -> Comparison:
    """Compares directories of measured results of pcie-bench with the same runs simulated, row by row.

    Their names choose machine, card, sockets and IOMMU where these are not given. `sample` takes about so many rows of each
    family of files. With `client`, each directory is a task of a Dask cluster, whose workers have to see the directories.
    With `uncertainty`, each row is simulated so many times more, with figures drawn anew: `low` and `high` are its 90 %
    interval, and `held` says whether it holds what was measured. Raises as `run`.
    """
    folders = _folders(directories)
    texts: dict[str, str] = {}
    machine_name = _named(Machine, machine, "machine", texts)
    card_name = _named(Part, card, "card", texts)
    given = [changes(values, name, texts) for values, name in ((set, "set"), (card_set, "card_set"))]
    where = (library or Library())._with(texts)
    command = call("compare", folders, machine=machine_name, card=card_name, set=set, sample=sample, uncertainty=uncertainty)
    drawn = None if uncertainty is None else str(uncertainty)
    rest = (machine_name, card_name, (sockets, iommu), *given, files, sample, held_out, drawn, seed, command)
    done = _tables("compare", where, [(folder, *rest) for folder in folders], client, jobs, progress)
    records, families, provenance, notes, problems = zip(*done)
    joined = _nearfar.Records.joined
    return Comparison(joined(list(records)), joined(list(families)), _together(provenance), sum(notes, []), sum(problems, []))


def _tables(
    what: str,
    where: Library,
    tasks: Sequence[tuple[Any, ...]],
    client: Client | str | None,
    jobs: int | None,
    progress: bool | Tell | None,
) -> list[Any]:
    """What the module's function `what` makes of each task: here, or by a Dask cluster."""
    with shown(progress) as tell:
        if client is not None:
            from .cluster import all_tables

            return all_tables(client, what, where, tasks, tell)
        return [getattr(_nearfar, what)(where._native(), *task, jobs, tell) for task in tasks]


def _together(provenances: Sequence[str]) -> str:
    """What several results together were made from."""
    import json

    all = [json.loads(provenance) for provenance in provenances]
    files = {(one["name"], one["sha256"]): one for each in all for one in each["files"]}
    changed = sorted({change for each in all for change in each["changes"]})
    return json.dumps({**all[0], "changes": changed, "files": list(files.values())})


def _folders(directories: Sequence[_Path]) -> list[str]:
    if not directories:
        raise wrong("directories", "no directory is given", "one or more folders of results of pcie-bench")
    folders = [os.fspath(folder) for folder in directories]
    for folder in folders:
        if not os.path.isdir(folder):
            raise wrong("directories", f"there is no folder `{folder}`", "name a folder of results of pcie-bench")
    return folders


class Fit:
    """A machine fitted to measured results."""

    def __init__(self, machine: Machine, figures: Results, residuals: Results, warnings: list[str]) -> None:
        self.machine = machine
        """The machine with the fitted figures, each with what it rests on."""
        self.figures = figures.table()
        """Every figure that was looked at: `path`, `before`, `after`, `determined`, `uncertainty`, `rows`, `files`."""
        self.residuals = residuals.table()
        """How far off each family of files is: `directory`, `family`, `median_pct`, `p90_pct`, `worst_pct` (percent)."""
        self.provenance = figures.provenance
        """What it was made from."""
        self.warnings = warnings
        """Files that end too early or were left out."""


@checked
def fit(
    *directories: _Path,
    base: str | Machine | None = None,
    figures: Sequence[str] = (),
    name: str = "fitted",
    seed: int = 1,
    jobs: int | None = None,
    progress: bool | Tell | None = None,
    library: Library | None = None,
) -> Fit:
    """Fits a machine's figures to directories of measured results, all of one machine.

    It begins with `base`, or with the machine that the directories' names choose. `figures` are the paths to fit; all that the
    results determine if none is given. Raises as `run`.
    """
    folders = _folders(directories)
    texts: dict[str, str] = {}
    base_name = _named(Machine, base, "base", texts)
    where = (library or Library())._with(texts)
    command = call("fit", folders, base=base_name, figures=list(figures))
    with shown(progress) as tell:
        text, fitted, residuals, provenance, warnings = _nearfar.fit(
            where._native(), folders, base_name, list(figures), name, seed, command, jobs, tell
        )
    machine = Machine.from_toml(text, name, where)
    return Fit(machine, Results(fitted, provenance), Results(residuals, provenance), warnings)


@checked
def ablate(
    *groups: Sequence[_Path],
    state: _Path,
    figures: Sequence[str] = (),
    refit: Sequence[str] = (),
    seed: int = 1,
    client: Client | str | None = None,
    jobs: int | None = None,
    progress: bool | Tell | None = None,
    library: Library | None = None,
) -> Results:
    """Sets one fitted figure after the other to the value without effect, and says which ones results need.

    Each group is a list of directories of one machine. `state` is a folder that takes what has been found, a file for each
    group: a run that was ended goes on from there. With `client`, each group is a task of a Dask cluster, whose workers have
    to see the directories and the folder. The table has `path`, `value`, `neutral`, `verdict` (`dead`, `sum`, `needed`) and
    `worse`. Raises as `run`.
    """
    if not groups or any(isinstance(group, (str, os.PathLike)) for group in groups):
        raise wrong("groups", f"`groups` cannot be {groups!r}", "lists of directories, each of one machine")
    all = [_folders(group) for group in groups]
    os.makedirs(state, exist_ok=True)
    where = library or Library()
    tasks = []
    for group in all:
        file = os.path.join(os.path.abspath(state), os.path.basename(os.path.normpath(group[0])) + ".json")
        tasks.append((group, None, list(figures), list(refit), file, seed, call("ablate", group, figures=list(figures))))
    done = _tables("ablate", where, tasks, client, jobs, progress)
    return Results(_nearfar.Records.joined([one[0] for one in done]), _together([one[2] for one in done]))


@checked
def leave_one_out(
    *directories: _Path,
    sample: int | None = None,
    seed: int = 1,
    client: Client | str | None = None,
    jobs: int | None = None,
    progress: bool | Tell | None = None,
    library: Library | None = None,
) -> Results:
    """Leaves each of the directories, all of one machine, out in turn: fits to the others, and compares with the one left out.
    That is how far off a new configuration of a fitted machine is.

    Each fit begins with what is known without results, a relative's file and data sheets. `sample` takes about so many rows of each
    family of files. With `client`, each directory is a task of a Dask cluster, whose workers have to see the directories. The table has
    `directory`, `family`, `median_pct`, `p90_pct`, `worst_pct` (percent), `relative`, the machine that the fit began with, and
    `of_relative`, figures that stayed its. Raises as `run`.
    """
    folders = _folders(directories)
    where = library or Library()
    tasks = [(folder, folders, sample, seed, call("leave_one_out", folders, sample=sample)) for folder in folders]
    done = _tables("leave_out", where, tasks, client, jobs, progress)
    return Results(_nearfar.Records.joined([one[0] for one in done]), _together([one[1] for one in done]))


@checked
def trace(
    scenario: str | Scenario,
    set: Mapping[str, Value] | None = None,
    *,
    run: int = 1,
    links: Sequence[str] = (),
    from_ns: float = 0.0,
    packets: int = 100,
    types: str | None = None,
    progress: bool | Tell | None = None,
    library: Library | None = None,
) -> Table:
    """What passes the links, packet by packet: a table in Arrow's layout.

    The columns are those of `nearfar trace --csv`, each with nothing where a packet has no such field: `packet`, `link`, `direction`
    (`down` leads away from the root), `time_ns` (nanoseconds after the first packet), `duration_ns`, `type`, `sequence`,
    `requester`, `tag`, `address` (signed 64 bits), `length_bytes`, `status`, `byte_count`, `credit_class`, `credit_headers`,
    `credit_data` (units of 16 B), `wire_bytes`, `payload` and `bytes` (bytes), and others.

    `run` is which run of pcie-bench, `links` are slots as `nearfar trace --link` takes them, `packets` how many, 0 for all until
    the end, `types` such as `"MRd,CplD"`. Raises as `run` of the module does.
    """
    called = _Called(scenario, set, library)
    command = call("trace", called.name, set=set, run=run, links=list(links), from_ns=from_ns, packets=packets, types=types)
    with shown(progress) as tell:
        native = called.library._native()
        return _nearfar.trace(native, called.name, called.changes, run, list(links), from_ns, packets, types, command, tell)
