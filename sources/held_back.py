"""Tells of partitions where a transaction has been open for long: a query that reads what is
committed waits there, and shows no lag. Runs on the driver, in Spark's source process."""

from __future__ import annotations

import logging
import time

from ..core.errors import EoKafkaError
from ..core.offsets import Offsets, TopicPartition, names
from .lookup import OffsetLookup

log = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0  # a transaction ends within that time, as a rule


class HeldBack:
    """Asks brokers once in LOOK_EVERY_S how much is written."""

    def __init__(self, lookup: OffsetLookup) -> None:
        self._lookup = lookup
        self._looked = time.monotonic()
        self._held: dict[TopicPartition, int] = {}
        self._told: dict[TopicPartition, int] = {}

    def look(self, newest: Offsets) -> None:
        """Warns, once for each transaction, of what it finds held back at the same offset in two
        looks. `newest`: where what may be read now ends. Called with each batch or trigger."""
        if (now := time.monotonic()) - self._looked < LOOK_EVERY_S:
            return
        self._looked = now
        try:
            written = self._lookup.written(newest)
        except EoKafkaError:  # whoever needs an answer asks again
            return
        before, self._held = (
            self._held,
            {at: newest[at] for at in newest if written[at] > newest[at]},
        )
        untold = {
            at: end
            for at, end in self._held.items()
            if before.get(at) == end and self._told.get(at) != end
        }
        if untold:
            self._told |= untold
            log.warning(
                "A transaction has been open for more than %g s in each of %s: what is written "
                "behind its first record can be read when it ends, and is not counted as lag "
                "before. 'eo-kafka txn list --topic %s' says whose it is.",
                LOOK_EVERY_S,
                names(untold),
                min(untold).topic,
            )
