"""What goes wrong, as exceptions."""

from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong with an input."""

    file: str
    """The file's path or name; `set` or `over` for a change, or an argument's name."""
    line: int
    """Counted from 1."""
    column: int
    """In characters, counted from 1."""
    message: str
    """What is wrong, on one line; it names the key."""
    help: str
    """What would be right: allowed values, the nearest name, the remedy; empty if there is nothing to say."""


class Error(Exception):
    """Whatever nearfar raises."""


class InputError(Error, ValueError):
    """A file, a change or an argument is wrong. `problems` has everything that is, with its place and the remedy."""

    def __init__(self, message: str, problems: list[tuple[str, int, int, str, str]] = ()) -> None:
        super().__init__(message, list(problems))
        self.problems = [Problem(*problem) for problem in problems]

    def __str__(self) -> str:
        return self.args[0]


class RunError(Error, RuntimeError):
    """Something cannot be simulated, or written."""


class ClusterError(Error, RuntimeError):
    """A cluster cannot be reached, or does not do what it is asked for."""


class VersionError(ClusterError):
    """A worker of a cluster has another nearfar: its results would not be the same."""


def wrong(argument: str, message: str, help: str) -> InputError:
    """An argument is wrong."""
    return InputError(f"error: {message}\n  = help: {help}", [(argument, 1, 1, message, help)])
