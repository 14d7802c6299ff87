"""How long the driver and its tasks wait for brokers: as the options say, or as the times are."""

from __future__ import annotations

import time

from ...clients.kafka import outages
from ...clients.kafka.config import contact
from ...core.patience import patience_s
from .options import SourceOptions

STALL_S = 120.0  # as Spark's own connector
_TRIAL_S = 30.0
_PAUSE_S = 0.1


def lookup_timeout_s(options: SourceOptions) -> float:
    """For how many seconds one planning step may wait for an answer."""
    given = options.lookup_timeout_ms
    return patience_s(contact(options.kafka)) if given is None else given / 1000


def stall_timeout_s(options: SourceOptions, moved: float) -> float:
    """For how many seconds after `moved` (time.monotonic()) a read may make no progress."""
    if options.poll_timeout_ms is not None:
        return options.poll_timeout_ms / 1000
    return outages.stall_timeout_s(STALL_S, moved)


class Trials:
    """How often the driver asks one thing, and until when. From its making on."""

    def __init__(self, options: SourceOptions) -> None:
        self._left, self._pause_s = options.num_retries, options.retry_interval_ms / 1000
        self.deadline = time.monotonic() + lookup_timeout_s(options)

    @property
    def next_s(self) -> float:
        """How long the next one may take: leaders and addresses may have changed since."""
        return max(_PAUSE_S, min(_TRIAL_S, self.deadline - time.monotonic()))

    def may_go_on(self, is_outage: bool) -> bool:
        """Whether to ask again after an error. Those of an outage are not counted."""
        if is_outage:
            self._pause_s = max(self._pause_s, _PAUSE_S)
        else:
            self._left -= 1
        return self._left > 0 and time.monotonic() + self._pause_s < self.deadline

    def pause(self) -> None:
        """Before the next one."""
        time.sleep(self._pause_s)
