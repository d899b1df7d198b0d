"""Machines, parts and scenarios: loaded, changed and built in code, with the checks and messages that files get."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

from . import _nearfar
from ._nearfar import Table
from .values import Library, Value, changes


class Figure(NamedTuple):
    """A figure of a machine or part."""

    path: str
    """Dotted path, such as `host.llc.ddio_ways`."""
    value: str
    """As a file spells it, with its unit."""
    number: float | None
    """In base units (picoseconds, bytes, hertz, per second), where it is a number."""
    origin: str
    """What the value rests on: `datasheet`, `measured`, `fitted`, `assumed`, `override` and others."""
    source: str
    """Where it comes from."""


class File:
    """A file with what was changed since it was read.

    >>> machine = nearfar.Machine.load("dell-t430")
    >>> machine["host.llc.ddio_ways"] = 4
    >>> machine["host.dram.access"]
    '59 ns'

    What is wrong is told at once, as `nearfar.InputError`; the file is then as it was.
    """

    kind: ClassVar[str]
    folder: ClassVar[str]

    def __init__(self, native: _nearfar.File, library: Library) -> None:
        self._native = native
        self._library = library
        self._texts: dict[str, str] = {}
        self._changes: dict[str, str] = {}

    @classmethod
    def load(cls, name: str | os.PathLike[str], library: Library | None = None) -> Self:
        """The file of that name (`cls.names()` has them), or at that path."""
        library = library or Library()
        return cls(_nearfar.File(cls.kind, library._native(), os.fspath(name)), library)

    @classmethod
    def from_toml(cls, text: str, name: str = "text", library: Library | None = None) -> Self:
        """A file with this text. Messages call it `name`. It is checked at once."""
        library = library or Library()
        made = cls(_nearfar.File(cls.kind, library._native(), f"{name}.toml", text), library)
        made.check()
        return made

    @classmethod
    def names(cls, library: Library | None = None) -> list[str]:
        """The names of the files of this kind."""
        return (library or Library()).names(cls.folder)

    @property
    def name(self) -> str:
        """The file's name, by which scenarios refer to it."""
        name = self._changes.get("name", "").strip('"')
        return name or os.path.basename(self._native.name).removesuffix(".toml")

    def copy(self, name: str | None = None) -> Self:
        """Another one like it, with a name of its own if one is given."""
        other = type(self)(self._native.copy(), self._library)
        other._texts, other._changes = dict(self._texts), dict(self._changes)
        if name is not None:
            other.change({"name": name})
        return other

    def change(self, values: Mapping[str, Value]) -> Self:
        """Sets values at dotted paths, all or none; gives the file, so that changes can follow each other."""
        texts = dict(self._texts)
        spelt = changes(values, "values", texts)
        native = self._native.copy()
        for path, value in spelt:
            native.set(path, value)
        self._check(native, texts, {**self._changes, **dict(spelt)})
        self._native, self._texts = native, texts
        self._changes.update(spelt)
        return self

    def __setitem__(self, path: str, value: Value) -> None:
        self.change({path: value})

    def __getitem__(self, path: str) -> str:
        """A figure's value as a file spells it. Raises KeyError if there is none."""
        return self.figure(path).value

    def figure(self, path: str) -> Figure:
        """A figure with where its value comes from. Raises KeyError if there is none."""
        table = self.figures()
        paths = table["path"]
        if path not in paths:
            raise KeyError(f"`{self.name}` has no figure `{path}`; figures() has them all")
        at = paths.index(path)
        return Figure(*(table[column][at] for column in Figure._fields))

    def figures(self) -> Table:
        """Every figure: columns `path`, `value` (text), `number` (base units), `origin`, `source`, `uncertainty`."""
        return self._native.figures().table()

    def check(self) -> None:
        """Raises `nearfar.InputError` if something is wrong, with everything that is."""
        self._check(self._native, self._texts, self._changes)

    def _check(self, native: _nearfar.File, texts: dict[str, str], changes: dict[str, str]) -> None:
        native.check()

    def to_toml(self) -> str:
        """The file's text with all changes, its comments and order kept."""
        return self._native.to_text()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file: whole, or not at all."""
        self._native.save(os.fspath(path))

    def _in_library(self) -> dict[str, str]:
        return {**self._library._texts, **self._texts, f"{self.folder}/{self.name}.toml": self.to_toml()}

    def __repr__(self) -> str:
        changed = f", {len(self._changes)} changes" if self._changes else ""
        return f"<nearfar.{type(self).__name__} {self.name}{changed}>"


class Machine(File):
    """A host: sockets, cores, caches, memory, IOMMU, root ports."""

    kind, folder = "machine", "machines"


class Part(File):
    """A card with a DMA engine: link, tags, overheads."""

    kind, folder = "card", "machines/parts"


class Scenario(File):
    """An experiment: pcie-bench on a machine with a card, or programs on computers.

    A file made in code is set where a scenario names one:

    >>> machine = nearfar.Machine.load("dell-t430").copy("mine")
    >>> machine["host.llc.ddio_ways"] = 8
    >>> scenario = nearfar.Scenario.load("latency-by-size")
    >>> scenario["machine"] = machine

    Paths that begin with `host.`, `dma_engine.` or `link.` change the machine or the card that it names.
    """

    kind, folder = "scenario", "scenarios"

    def _check(self, native: _nearfar.File, texts: dict[str, str], changes: dict[str, str]) -> None:
        self._look(texts, changes)

    def _look(self, texts: dict[str, str], changes: dict[str, str]) -> str:
        library = self._library._with({**texts, self._place: self._native.text})
        return _nearfar.check(library._native(), self._reference, list(changes.items()))[0]

    @property
    def _place(self) -> str:
        """Under which path a library has the text."""
        name = self._native.name
        return name if os.path.isabs(name) or os.path.exists(name) else f"scenarios/{os.path.basename(name)}"

    @property
    def _reference(self) -> str:
        """By which name it is found there."""
        place = self._place
        return place.removeprefix("scenarios/").removesuffix(".toml") if place.startswith("scenarios/") else place

    @property
    def summary(self) -> str:
        """What it is for."""
        return self._look(self._texts, self._changes)


def _classes() -> dict[str, type[File]]:
    """A class for each kind of file, by its name; those that functions take or that say more are above."""
    made: dict[str, type[File]] = {one.__name__: one for one in (Machine, Part, Scenario)}
    own = {one.folder for one in made.values()}
    for word, folder, about in _nearfar.kinds():
        if folder not in own:
            name = word.split("-")[0].title()
            said = {"__doc__": about, "__module__": __name__, "kind": word, "folder": folder}
            made[name] = type(name, (File,), said)
    return made


CLASSES = _classes()
"""The classes of files, by name."""
globals().update(CLASSES)
