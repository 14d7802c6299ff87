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
        self._held: dict[TopicPartition, tuple[int, int]] = {}  # an end, and how many looks saw it

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
        held = {}
        for at, end in newest.items():
            if written[at] > end:
                before, looks = self._held.get(at, (end, 0))
                held[at] = end, looks + 1 if before == end else 1
        self._held = held
        untold = [at for at, (_, looks) in held.items() if looks == 2]
        if untold:
            log.warning(
                "A transaction has been open for more than %g s in each of %s: what is written "
                "behind its first record can be read when it ends, and is not counted as lag "
                "before. 'eo-kafka txn list --topic %s' says whose it is.",
                LOOK_EVERY_S,
                names(untold),
                min(untold).topic,
            )
