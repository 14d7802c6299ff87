"""How many tasks a batch has at most, where no option says so.

Spark's own connector gives each topic partition a task. A task costs some 50 ms of CPU time besides
its records: two Python workers, and in an exactly-once sink a transaction. Far more tasks than run
at once add only to that; so partitions then share tasks (`range_split.py`).

A batch that runs again must have the same tasks: with `commit=idempotent` some of them may have
committed. So the number stands in the position where the batch ends, which Spark keeps in the
checkpoint.
"""

from __future__ import annotations

import logging

from ..core import task_slots
from ..core.offsets import Offsets
from .options import SourceOptions

log = logging.getLogger(__name__)

# Four for each that can run: no core waits long for the last one, and a guess that is four times
# too low still has work for all cores. From it the next one is learnt.
_ROUNDS = 4


class MostTasks:
    """The number for each new batch of one query. On the driver."""

    def __init__(self, options: SourceOptions) -> None:
        self._by_options = options.cuts
        self._told: int | None = None

    def of(self, end: Offsets) -> int | None:
        """For a batch that ends at `end`; None if each partition has a task, or options decide."""
        if self._by_options:
            return None
        slots = task_slots.told()
        if slots is None or len(end) <= (most := _ROUNDS * slots):
            return None
        if most != self._told:
            self._told = most
            log.info(
                "A batch has %d tasks at most for %d topic partitions: Spark has run %d at once. "
                "Source option 'maxPartitions' sets another number.",
                most,
                len(end),
                slots,
            )
        return most
