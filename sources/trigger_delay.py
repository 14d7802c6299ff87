"""Waits for `minOffsetsPerTrigger` new offsets, for `maxTriggerDelay` at most. No I/O.

Source: delayBatch of Spark's KafkaMicroBatchStream.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ..core.offsets import Offsets


class TriggerDelay:
    """Says for each trigger whether there is too little to read yet. The first is never delayed.

    Lives in Spark's source process; a restarted query begins without a delay.
    """

    def __init__(
        self, least: int, longest_ms: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._least = least
        self._longest_s = longest_ms / 1000
        self._now = now
        self._last: float | None = None

    def is_due(self, begin: Offsets, newest: Offsets) -> bool:
        """Whether a batch from `begin` is worth while, or has been waited for long enough."""
        now = self._now()
        waited = self._last is None or now - self._last >= self._longest_s
        new = [newest[at] - begin.get(at, 0) for at in newest]
        # Of a log that got shorter it is to be told at once what is lost.
        if not waited and sum(new) < self._least and min(new, default=0) >= 0:
            return False
        self._last = now
        return True
