"""Values of files, and where files are found."""

from __future__ import annotations

import functools
import inspect
import json
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Union

from . import _nearfar
from .errors import wrong

if TYPE_CHECKING:
    from .files import File

Value = Union[bool, int, float, str, list, tuple, dict, "File"]
"""What a key of a file can be set to: a number, a truth value, a text with its unit such as `"70 ns"`, a list or a dict of those, or a
file made in code (for keys that name a file, such as `machine`)."""


class Library:
    """Where files are found by their names: folders, then what comes with nearfar.

    A folder is laid out as the repository: `machines/NAME.toml`, `machines/parts/NAME.toml`, `scenarios/NAME.toml`.
    """

    def __init__(self, *folders: str | os.PathLike[str]) -> None:
        for folder in folders:
            if not os.path.isdir(folder):
                raise wrong("Library", f"there is no folder `{os.fspath(folder)}`", "name a folder that is there")
        self._folders = [os.fspath(folder) for folder in folders]
        self._texts: dict[str, str] = {}

    def names(self, folder: str = "machines") -> list[str]:
        """The names of the files in a folder: `machines`, `machines/parts`, `machines/nics`, `scenarios` and others."""
        return self._native().names(folder)

    def _with(self, texts: Mapping[str, str]) -> Library:
        other = Library(*self._folders)
        other._texts = {**self._texts, **texts}
        return other

    def _native(self) -> _nearfar.Library:
        return _nearfar.Library(self._folders, list(self._texts.items()))


def _is_whole(value: Any, least: int, most: int = 2**63 - 1) -> bool:
    try:
        return not isinstance(value, bool) and least <= operator.index(value) <= most
    except TypeError:
        return False


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)


_KINDS: list[tuple[str, Callable[[Any], bool], str]] = [
    ("accounting held_out short", lambda value: isinstance(value, bool), "True or False"),
    ("packets seed", lambda value: _is_whole(value, 0), "a whole number from 0 on"),
    ("run sample", lambda value: _is_whole(value, 1), "a whole number from 1 on"),
    ("uncertainty", lambda value: _is_whole(value, 2, 10_000), "a number of runs, from 2 on; 20 or more for 5 and 95 % to mean something"),
    ("jobs", lambda value: _is_whole(value, 1, 4096), "how many threads, from 1 on; all cores if not given"),
    ("from_ns", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool), "a number of nanoseconds"),
    ("files iommu name sockets types", lambda value: isinstance(value, str), "a text"),
    ("figures links refit", _is_list_of_texts, "a list of texts"),
    ("library", lambda value: isinstance(value, Library), "a nearfar.Library"),
    ("progress", lambda value: isinstance(value, bool) or callable(value), "True, False or a function that is told"),
]
_RIGHT = {name: (is_right, help) for names, is_right, help in _KINDS for name in names.split()}
"""What keyword arguments have to be, whichever function takes them."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def checked(function: _Function) -> _Function:
    """Complains of keyword arguments that cannot be, before anything is done."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}

    @functools.wraps(function)
    def called(*positional: Any, **named: Any) -> Any:
        for name, value in named.items():
            is_right, help = _RIGHT.get(name, (None, ""))
            is_left_out = value is None and defaults.get(name, value) is None
            if is_right and not is_left_out and not is_right(value):
                raise wrong(name, f"`{name}` cannot be {value!r}", help)
        return function(*positional, **named)

    return called  # type: ignore[return-value]


def spell(key: str, value: Value, texts: dict[str, str]) -> str:
    """A value as TOML spells it. The text of a file made in code goes into `texts`."""
    from .files import File

    if isinstance(value, File):
        texts.update(value._in_library())
        return json.dumps(value.name)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if hasattr(value, "item"):
        # A number of NumPy's.
        return spell(key, value.item(), texts)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise wrong(key, f"`{key}` cannot be {value}", "a number of at most 63 bits")
    if isinstance(value, (int, float)):
        return repr(value)
    within = lambda one: json.dumps(one) if isinstance(one, str) else spell(key, one, texts)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(within, value)) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {within(one)}" for name, one in value.items()) + " }"
    raise wrong(
        key,
        f"`{key}` cannot be {value!r}",
        'a number, true or false, a text with its unit such as "70 ns", a list or a dict of those, or a file made in code',
    )


def changes(given: Mapping[str, Value] | None, name: str, texts: dict[str, str]) -> list[tuple[str, str]]:
    """Changes as the simulator takes them."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise wrong(name, f"`{name}` cannot be {given!r}", 'a dict, such as {"host.llc.ddio_ways": 4}')
    return [(str(key), spell(str(key), value, texts)) for key, value in given.items()]


def combinations(
    over: Mapping[str, Iterable[Value]], texts: dict[str, str]
) -> list[list[tuple[str, str]]]:
    """Every combination of the values, the last key's varying fastest."""
    if not isinstance(over, Mapping) or not over:
        raise wrong("over", f"`over` cannot be {over!r}", 'a dict of keys with their values, such as {"dma_engine.tags": [8, 16]}')
    points: list[list[tuple[str, str]]] = [[]]
    for key, values in over.items():
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise wrong("over", f"the values of `{key}` cannot be {values!r}", "a list of values, such as [8, 16, 32]")
        spelt = [spell(key, value, texts) for value in values]
        if not spelt:
            raise wrong("over", f"`{key}` has no values", "give one at least")
        points = [[*point, (key, value)] for point in points for value in spelt]
    return points


def call(function: str, first: Any, **arguments: Any) -> str:
    """How a function was called, for whoever finds its results."""
    said = [repr(first)] + [f"{name}={value!r}" for name, value in arguments.items() if value]
    return f"nearfar.{function}({', '.join(said)})"
