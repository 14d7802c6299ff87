"""How far a long operation is: a bar on a terminal, else a line every ten seconds, on stderr.

The code that works knows neither: it tells `Told` how much is done of how much.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Told = Callable[[int, int], object]  # so much is done, of so much in all; of 0: nobody knows
LINE_EVERY_S = 10.0
NARROW = 80
# Of a driver whose stderr goes through its supervisor to a terminal: how wide that is
TERMINAL_VARIABLE = "EO_KAFKA_TERMINAL"


@contextmanager
def bar(what: str, *, shown: bool = True, unit: str = "B") -> Iterator[Told]:
    """What is to be told. Operations that are shorter than ten seconds leave a log as it is."""
    if not shown:
        yield lambda done, total: None
    elif not (width := terminal_width()):
        yield _Lines(what, unit)
    else:
        from tqdm import tqdm

        with tqdm(desc=what, unit=unit, unit_scale=True, ncols=width) as drawn:
            yield _drawn_on(drawn)


def terminal_width() -> int:
    """Of the terminal that stderr is, or leads to; 0: it is none."""
    if sys.stderr.isatty():  # one that does not know says 0, which tqdm would believe
        return os.get_terminal_size(sys.stderr.fileno()).columns or NARROW
    told = os.environ.get(TERMINAL_VARIABLE, "")
    return int(told) if told.isdecimal() else 0


def _drawn_on(drawn: Any) -> Told:
    def told(done: int, total: int) -> None:
        drawn.total = total or None
        if done == drawn.n:
            drawn.refresh()  # it is alive: its time runs
        else:
            drawn.update(done - drawn.n)

    return told


class _Lines:
    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, unit
        self._begin = self._told = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._told < LINE_EVERY_S:
            return
        self._told = now
        far = f"{self._amount(done)} of {self._amount(total)}" if total else self._amount(done)
        sys.stderr.write(f"{self._what}: {far}, {now - self._begin:.0f} s\n")
        sys.stderr.flush()

    def _amount(self, number: int) -> str:
        from tqdm import tqdm

        return f"{tqdm.format_sizeof(number)}{self._unit}"
