"""How many tasks a batch has at most, where no option says so.

Spark's own connector gives each topic partition a task. A task costs some 50 ms of CPU time besides
its records: two Python workers, and in an exactly-once sink a transaction. Far more tasks than run
at once add only to that; so partitions then share tasks (`range_split.py`).

A batch that runs again must have the same tasks: with `commit=idempotent` some of them may have
committed. So the number stands in the position where the batch ends, which Spark keeps in the
checkpoint. An option that is set counts more: it is the way out where a batch has too few tasks.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ..core.offsets import Offsets
from ..core.process import task_slots
from .settings.options import SourceOptions

log = logging.getLogger(__name__)

_ROUNDS = 2  # a core that is done early finds another task
# Where nobody says how many run at once: a guess that is four times too low still has work for all
# cores, and the next one is learnt from it.
_ROUNDS_OF_GUESS = 4


class MostTasks:
    """The number for each new batch of one query. On the driver."""

    def __init__(self, options: SourceOptions, slots: int | None = None) -> None:
        """`slots`: how many tasks Spark runs at once, if that is known."""
        self._by_options = options.cuts
        self._slots = slots
        self._told: int | None = None

    def of(self, end: Offsets) -> int | None:
        """For a batch that ends at `end`; None if each partition has a task, or options decide."""
        if self._by_options:
            return None
        rounds, slots = _ROUNDS, self._slots
        if slots is None:
            rounds, slots = _ROUNDS_OF_GUESS, task_slots.told()
        if slots is None or len(end) <= (most := rounds * slots):
            return None
        if most != self._told:
            self._told = most
            log.info(
                "A batch has %d tasks at most for %d topic partitions, as Spark runs %d at once. "
                "Source option 'maxPartitions' sets another number.",
                most,
                len(end),
                slots,
            )
        return most


def with_most_tasks(options: SourceOptions, slots: int | None) -> SourceOptions:
    """The same for a batch query, which has no position to keep the number in."""
    if slots is None or options.cuts:
        return options
    return replace(options, max_partitions=_ROUNDS * slots)
