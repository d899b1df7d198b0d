"""How far a piece of work is, in a terminal and in a notebook."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

Tell = Callable[[str, int, int, str], None]
"""Is told what is done, how many steps are, of how many (0 if nobody knows), and the last one."""

PATIENCE_S = 2.0
"""What is done sooner needs no line."""


def in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell else None
    return instance is not None and hasattr(instance, "kernel")


class Line:
    """A line that is written anew."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.display = None
        self.width = 0

    def __call__(self, what: str, done: int, steps: int, last: str) -> None:
        now = time.monotonic()
        if now - self.began < PATIENCE_S or now - self.last < 0.2:
            return
        self.last = now
        count = f" {done}/{steps}" if steps else ""
        text = f"{what}{count}, {now - self.began:.0f} s  {last}"[:110]
        if in_notebook():
            from IPython.display import TextDisplayObject, display

            shown = type("Text", (TextDisplayObject,), {"_repr_html_": None, "__repr__": lambda self: self.data})(text)
            if self.display is None:
                self.display = display(shown, display_id=True)
            else:
                self.display.update(shown)
        else:
            sys.stderr.write("\r" + text.ljust(self.width))
            sys.stderr.flush()
            self.width = len(text)

    def end(self) -> None:
        if self.width:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()


@contextlib.contextmanager
def shown(progress: bool | Tell | None) -> Iterator[Tell | None]:
    """Whoever is to be told: a line if asked for, or if somebody watches; the caller's own; nobody."""
    if callable(progress):
        yield progress
        return
    if progress is None:
        progress = in_notebook() or bool(getattr(sys.stderr, "isatty", bool)())
    line = Line() if progress else None
    try:
        yield line
    finally:
        if line:
            line.end()
