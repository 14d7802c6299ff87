"""How many tasks Spark runs at once, as this driver's tasks have shown.

Spark tells a Python source and sink neither its cores nor its executors. But a sink's tasks can say
when they ran, and all Python processes of a driver share a directory: the sink leaves there what
its tasks say, and the source plans by it (`sources/most_tasks.py`). A wrong number makes a batch
slower, and no more; an option for the number of tasks counts more than this one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .driver_directory import driver_directory
from .moment import Moment

_FILE = "eo-kafka-task-slots"
_WAITED = 4  # so many times as many tasks as ran at once: others had to wait, whatever they took


@dataclass(frozen=True)
class Span:
    """When a task ran, in seconds on the clock of `machine`."""

    machine: str
    began: float
    ended: float

    @classmethod
    def since(cls, began: Moment) -> Span:
        """From then until now."""
        return cls(began.machine, began.seconds, Moment.now().seconds)


def most_at_once(spans: Iterable[Span]) -> int:
    """How many of these ran at one time: on each machine, for clocks differ, and in all."""
    changes: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for span in spans:
        changes[span.machine] += [(span.began, 1), (span.ended, -1)]
    return sum(map(_highest, changes.values()))


def _highest(changes: list[tuple[float, int]]) -> int:
    highest = running = 0
    for _, change in sorted(changes):  # one that ends makes room for one that begins then
        running += change
        highest = max(highest, running)
    return highest


def learn(spans: Sequence[Span]) -> None:
    """Leave what the tasks of a batch show, if they show a limit.

    A few tasks show only that there was no more to do: a topic of one partition, `repartition(2)`
    before the sink, or a batch with records in three partitions says nothing of the cores that
    another batch or query may have. More at once than is known is news always.
    """
    most = most_at_once(spans)
    if told() is not None or len(spans) > _WAITED * most:
        tell(most)


def tell(seen: int) -> None:
    """Leave the number for the driver's other processes, if it is the highest until now."""
    directory = driver_directory()
    if not directory or seen <= (told() or 0):
        return
    written = Path(directory, f".{_FILE}-{os.getpid()}")
    with suppress(OSError):  # then batches are planned without it
        written.write_text(str(seen))
        written.replace(Path(directory, _FILE))


def told() -> int | None:
    """The number; None where no sink of this driver has left one yet."""
    directory = driver_directory()
    with suppress(OSError, ValueError):
        return int(Path(directory, _FILE).read_text()) if directory else None
    return None
