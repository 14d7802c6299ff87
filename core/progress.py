"""A progress bar for long operations; a log file gets a line every ten seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Bar(Protocol):
    """What is told of the progress."""

    def update(self, n: int) -> object:
        """So many more."""


@contextmanager
def bar(what: str, total: int, *, shown: bool = True, unit: str = "B") -> Iterator[Bar]:
    """A bar on stderr: drawn over on a terminal, a line every ten seconds in a log file."""
    from tqdm import tqdm

    terminal = sys.stderr.isatty()
    with tqdm(
        total=total,
        desc=what,
        unit=unit,
        unit_scale=True,
        disable=not shown,
        mininterval=0.1 if terminal else 10.0,
        leave=True,
    ) as drawn:
        yield drawn
