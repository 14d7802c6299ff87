"""Picks faults, one after the other: a thread for each job and one for the brokers.

The seed fixes what is picked, and how long it lasts; not what the processes happen to be doing.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Sequence
from typing import Any

from eo_kafka.testing.history import History
from soak.broker_faults import BROKER_FAULTS, Brokers
from soak.faults import FAULTS
from soak.query_faults import OPENING, QUERY_FAULTS
from soak.supervisor import Job

QUIET_S = 120.0  # without progress for so long, strike all the same
HASTE = 0.15  # how often not to wait for progress: to hit what is just recovering
BROKERS_REST_S = (6.0, 16.0)


class Nemesis(threading.Thread):
    """The common part. Should it fail itself, `failure` says how."""

    def __init__(
        self, who: str, target: Any, faults: Sequence[Any], seed: int, history: History
    ) -> None:
        super().__init__(name=f"nemesis of {who}", daemon=True)
        self._who, self._target, self._faults, self._history = who, target, faults, history
        self._chance = random.Random(f"{seed} {who}")
        self.stopped = threading.Event()
        self.failure: str | None = None

    def run(self) -> None:
        weights = [fault.weight for fault in self._faults]
        try:
            while self._faults and not self.stopped.is_set():
                self._rest()
                if not self.stopped.is_set():
                    self._strike(self._chance.choices(self._faults, weights)[0])
        except Exception:
            self.failure = traceback.format_exc()

    def _strike(self, fault: Any) -> None:
        begun = round(self._history.seconds, 2)
        details = fault.strike(self._target, self._chance)
        if details is not None:
            self._history.add(self._who, "fault", kind=fault.name, begun=begun, **details)

    def _rest(self) -> None:
        raise NotImplementedError


class JobNemesis(Nemesis):
    """Strikes a job again when it has got on since the last time. `only` names faults."""

    def __init__(self, job: Job, only: Sequence[str], seed: int, history: History) -> None:
        self._opens = bool(_named([OPENING], only))
        super().__init__(job.name, job, _named((*FAULTS, *QUERY_FAULTS), only), seed, history)

    def open(self) -> None:
        """What is only done before the first batch is DONE; every other time, by the seed."""
        if self._opens and self._chance.random() < 0.5:
            try:
                self._strike(OPENING)
            except Exception:
                self.failure = traceback.format_exc()

    def _rest(self) -> None:
        """Until one to three more batches are DONE, as a rule, and a moment longer."""
        if self._chance.random() < HASTE:
            self.stopped.wait(self._chance.uniform(3, 20))
            return
        wanted = self._target.batches_done() + self._chance.randint(1, 3)
        deadline = time.monotonic() + QUIET_S
        while self._target.batches_done() < wanted and time.monotonic() < deadline:
            if self.stopped.wait(0.1):
                return
        self.stopped.wait(self._chance.uniform(0, 2))


class BrokerNemesis(Nemesis):
    """Strikes the brokers when all replicas are in sync again. `only` names faults."""

    def __init__(self, brokers: Brokers, only: Sequence[str], seed: int, history: History) -> None:
        super().__init__("brokers", brokers, _named(BROKER_FAULTS, only), seed, history)

    def _rest(self) -> None:
        self._target.heal()
        self.stopped.wait(self._chance.uniform(*BROKERS_REST_S))


def _named(faults: Sequence[Any], only: Sequence[str]) -> list[Any]:
    return [fault for fault in faults if not only or fault.name in only]
