"""Reads the newest records of many ledgers at once, by one consumer; fences nobody.

A ledger that cannot be read has a sentence about that instead, and holds up no other.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from ...clients.kafka.config import consumer
from ...clients.kafka.topics import TIMEOUT_S
from ...core.errors import EoKafkaError
from ...core.offsets import TopicPartition
from ...core.transaction import DecisionState
from ...state.ledger import records
from ...state.ledger.job_topics import MAIN_SINK
from ...state.ledger.ledger import DECISION_PARTITION, Ledger
from ...state.ledger.log_reader import reader_settings

TAIL = 2000  # offsets: the last batches, of which each takes some six
STALL_S = 30.0
_AT_ONCE = 1000
_WENT_BACK = "Its log does not reach as far as it was read."


class Folded(Protocol):
    """What the records of one partition are folded into. `problem`: why they are not."""

    topic: str
    start: int
    end: int
    whole: bool
    settled: bool
    problem: str

    def apply(self, key: bytes, value: bytes | None, at_ms: int) -> None:
        """The next record. Raises EoKafkaError."""


F = TypeVar("F", bound=Folded)


@dataclass
class Tail:
    """A ledger as its records from offset `start` on say it, if `problem` is empty.

    `whole`: these are all that there are. `settled`: no decision is being written. Times are those
    of the records, in ms since 1970, by the clock of who wrote them: `decided_ms` (S6, of the
    newest round), `done_ms` (S8) and `void_ms` by sink and batch, `planned_ms` (S1) by generation,
    as far as compaction left the records.
    """

    topic: str
    start: int = 0
    end: int = 0
    whole: bool = True
    settled: bool = True
    problem: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    newest_ms: int | None = None
    planned_ms: dict[int, int] = field(default_factory=dict)
    decided_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    done_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    void_ms: dict[tuple[str, int], int] = field(default_factory=dict)

    def to_read_on(self) -> Tail:
        """A copy, for others may be looking at this one; without times of what is forgotten."""
        kept = dict(self.ledger.decisions)

        def of_kept(times: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
            return {at: ms for at, ms in times.items() if at in kept}

        return replace(
            self,
            ledger=replace(self.ledger, decisions=kept),
            planned_ms={one: self.planned_ms[one] for one in sorted(self.planned_ms)[-TAIL:]},
            decided_ms=of_kept(self.decided_ms),
            done_ms=of_kept(self.done_ms),
            void_ms=of_kept(self.void_ms),
        )

    def apply(self, key: bytes, value: bytes | None, at_ms: int) -> None:
        """The next record. Raises LedgerError."""
        self.ledger.apply(key, value)
        self.newest_ms = at_ms
        if key == records.GENERATION_KEY and value is not None:
            self.planned_ms[self.ledger.generation] = at_ms
        if value is None or not key.startswith(b"decision/"):
            return
        sink, batch, _round = key.decode().removeprefix("decision/").rsplit("/", 2)
        at = (sink, int(batch))
        known = self.ledger.decisions.get(at)
        if known is None:
            return
        if known.state is DecisionState.DONE:
            self.done_ms[at] = at_ms
        elif known.state is DecisionState.VOID:
            self.void_ms[at] = at_ms
        else:
            self.decided_ms[at] = at_ms


_NONE: Mapping[str, Tail] = {}


def ends(
    admin: Any, partitions: Iterable[TopicPartition], word: str, *, committed: bool = False
) -> dict[TopicPartition, int | str]:
    """Where each begins (`earliest`) or ends (`latest`), or a sentence why that is not known."""
    from confluent_kafka import IsolationLevel, KafkaException
    from confluent_kafka import TopicPartition as Place
    from confluent_kafka.admin import OffsetSpec

    wanted = list(partitions)
    if not wanted:
        return {}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    spec = getattr(OffsetSpec, word)()
    places = [Place(*one) for one in wanted]
    futures = admin.list_offsets(
        dict.fromkeys(places, spec), isolation_level=level, request_timeout=TIMEOUT_S
    )
    found: dict[TopicPartition, int | str] = {}
    silence = f"no answer in {TIMEOUT_S:.0f} s"
    for one, place in zip(wanted, places, strict=True):
        try:
            offset = futures[place].result(TIMEOUT_S).offset
            # below 0 it is the client's word for a leader that did not answer
            found[one] = offset if offset >= 0 else f"Topic '{one.topic}' is not read: {silence}."
        except KafkaException as error:
            found[one] = f"Topic '{one.topic}' is not read: {error.args[0].str()}."
        except FutureTimeout:
            found[one] = f"Topic '{one.topic}' is not read: {silence}."
    return found


def read_tails(
    settings: Mapping[str, str],
    admin: Any,
    topics: Iterable[str],
    count: int | None = TAIL,
    known: Mapping[str, Tail] = _NONE,
) -> dict[str, Tail]:
    """The last `count` offsets (None: all) of each ledger's decisions, by topic; all of those where
    these tell of no batch: a job that is started again and again leaves nothing but generations.
    One that is `known`, of the same topic, is read on from its end."""
    tails = {one: known[one].to_read_on() if one in known else Tail(one) for one in topics}
    found = fold_tails(settings, admin, tails, count)
    other = {one: Tail(one) for one, tail in found.items() if tail.problem == _WENT_BACK}
    found |= fold_tails(settings, admin, other, count)
    short = [
        topic
        for topic, tail in found.items()
        if not (tail.whole or tail.problem or tail.ledger.of_sink(MAIN_SINK))
    ]
    return {**found, **fold_tails(settings, admin, {one: Tail(one) for one in short}, None)}


def fold_tails(
    settings: Mapping[str, str], admin: Any, tails: dict[str, F], count: int | None
) -> dict[str, F]:
    """The same, of partition 0 of any topics. One that has an end is read on from there."""
    places = [TopicPartition(topic, DECISION_PARTITION) for topic in tails]
    firsts = ends(admin, places, "earliest")
    stable = ends(admin, places, "latest", committed=True)
    highest = ends(admin, places, "latest")
    wanted: dict[str, tuple[Folded, int]] = {}
    for place in places:
        tail, asked = tails[place.topic], (firsts[place], stable[place], highest[place])
        tail.problem = next((one for one in asked if isinstance(one, str)), "")
        if tail.problem:
            continue
        first, end, high = (int(one) for one in asked)
        begin = tail.end
        if not begin:
            begin = tail.start = first if count is None else max(first, end - count)
            tail.whole = begin == first
        elif not first <= begin <= end:
            tail.problem = _WENT_BACK
            continue
        tail.end, tail.settled = end, end >= high
        if begin < end:
            wanted[place.topic] = tail, begin
    if wanted:
        _read(settings, wanted)
    return tails


def _read(settings: Mapping[str, str], wanted: dict[str, tuple[Folded, int]]) -> None:
    from confluent_kafka import TopicPartition as Place

    client = consumer({**reader_settings(settings), "group.id": "eo-kafka-jobs"})  # never joined
    try:
        client.assign([Place(topic, DECISION_PARTITION, at) for topic, (_, at) in wanted.items()])
        moved = time.monotonic()
        while wanted:
            first = client.poll(0.5)
            messages = () if first is None else [first, *client.consume(_AT_ONCE, timeout=0)]
            for message in messages:
                _take(wanted, message)
                moved = time.monotonic()
            if time.monotonic() - moved > STALL_S:
                break
    finally:
        client.close()
    for tail, _ in wanted.values():
        tail.problem = f"Topic '{tail.topic}' is not read: nothing came for {STALL_S:.0f} s."


def _take(wanted: dict[str, tuple[Folded, int]], message: Any) -> None:
    from confluent_kafka import KafkaError

    error, topic = message.error(), message.topic()
    if topic not in wanted:
        return  # of none, or of one that is read, or cannot be
    tail = wanted[topic][0]
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        if not error.retriable():
            tail.problem = f"Topic '{topic}' is not read: {error.str()}."
            del wanted[topic]
        return
    if error is None and message.offset() < tail.end:
        try:
            tail.apply(message.key() or b"", message.value(), message.timestamp()[1])
        except EoKafkaError as damaged:
            tail.problem = str(damaged)
            del wanted[topic]
            return
    if error is not None or message.offset() >= tail.end - 1:
        with suppress(KeyError):
            del wanted[topic]
