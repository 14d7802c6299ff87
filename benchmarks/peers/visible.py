"""How fast committed records appear in a topic, seen from outside: the same clock for all systems.

A watcher asks the broker, again and again, for the last stable offset of each partition: up to
there a `read_committed` consumer may read. Nothing is asked of the systems that write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.queries import WrongResult

_POLL_S = 0.025
_TIMEOUT_S = 30
HEAD, TAIL = 0.1, 0.9  # of a partition's records: only commits between these make the rate
COMMITS_MIN = 3


@dataclass(frozen=True)
class Sample:
    """A partition's last stable offset, and when it was first seen, in seconds of one clock."""

    seconds: float
    offset: int


@dataclass(frozen=True)
class Seen:
    """What one run made visible: records/s while it was under way, and seconds from one change of
    what is visible to the next, on average."""

    rate: float
    interval_s: float


def seen(partitions: Sequence[Sequence[Sample]]) -> Seen:
    """What the partitions' changes, in order, add up to.

    A partition counts from the first commit behind its first tenth to the last one before its last
    tenth, and each commit brings what was written since the one before: so the start of a system is
    out, and so is the end, where some wait for the next tick of their clock with nothing left to
    do. The rates of the partitions are added up. Raises ValueError when a partition has too few
    commits in there to tell a rate.
    """
    rates, intervals = [], []
    for changes in partitions:
        total = changes[-1].offset if changes else 0
        within = [one for one in changes if HEAD * total <= one.offset <= TAIL * total]
        if len(within) < COMMITS_MIN:
            raise ValueError(
                f"{len(within)} commits between the first and the last tenth of a partition are "
                f"too few for a rate, which needs {COMMITS_MIN}: give it more records"
            )
        first, last = within[0], within[-1]
        took = last.seconds - first.seconds
        rates.append((last.offset - first.offset) / took)
        intervals.append(took / (len(within) - 1))
    return Seen(sum(rates), sum(intervals) / len(intervals))


@dataclass
class Watch:
    """Notes what becomes visible in `topic` while `with` lasts, on a thread of its own.

    Offsets, not records, are counted; a transaction's marker has one too, which makes one in some
    ten thousand.
    """

    servers: str
    topic: str
    partitions: int
    changes: dict[int, list[Sample]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _failed: list[Exception] = field(default_factory=list)

    def __enter__(self) -> Watch:
        self.changes = {number: [] for number in range(self.partitions)}
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def seen(self, writer: str) -> Seen:
        """What `writer` made visible, asked after the end. Raises WrongResult when the broker did
        not answer, or hardly anything was written."""
        if self._failed:
            raise WrongResult(f"{self.topic} could not be watched: {self._failed[0]}")
        try:
            return seen(list(self.changes.values()))
        except ValueError as error:
            raise WrongResult(f"{writer}: {error}.") from None

    def _run(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 3})
        answered = time.monotonic()
        while True:
            is_last = self._stop.wait(_POLL_S)
            try:
                self._look(admin)
            except KafkaException as error:  # a new topic's leader is not known at once
                if time.monotonic() - answered > _TIMEOUT_S:
                    self._failed.append(error)  # told by seen(), on the thread that asks
                    return
            else:
                answered = time.monotonic()
                if is_last:
                    return

    def _look(self, admin: Any) -> None:
        now = time.monotonic()
        for partition, offset in stable_offsets(admin, self.topic, self.partitions).items():
            changes = self.changes[partition]
            if offset > (changes[-1].offset if changes else 0):
                changes.append(Sample(now, offset))


def stable_offsets(admin: Any, topic: str, partitions: int) -> Mapping[int, int]:
    """Partition -> offset before which all transactions have ended. Raises KafkaException."""
    from confluent_kafka import IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(topic, number): latest for number in range(partitions)}
    answers = admin.list_offsets(
        wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
    )
    return {at.partition: answer.result().offset for at, answer in answers.items()}
