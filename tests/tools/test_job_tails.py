"""Ledgers that are looked at again and again: only what is new is read."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from eo_kafka.core.offsets import TopicPartition
from eo_kafka.core.transaction import Decision, DecisionState, Identity, Participant
from eo_kafka.state.ledger import records
from eo_kafka.tools.jobs import tails
from eo_kafka.tools.jobs.tails import Tail, read_tails

Record = tuple[bytes, bytes | None]


def decided(batch: int, state: DecisionState = DecisionState.DONE) -> Record:
    part = Participant(0, 0, 1, Identity("t", 1, 1), 1, "d")
    return records.decision_record(Decision("main", batch, 0, state, 1, 2, 1, 0, (part,)))


class Log:
    """Partition 0 of a ledger."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records: list[Record] = []
        self.first = 0
        self.read = 0
        monkeypatch.setattr(tails, "ends", self._ends)
        monkeypatch.setattr(tails, "_read", self._read)

    def _ends(self, _admin: Any, places: list[TopicPartition], word: str, **_: Any) -> Any:
        at = self.first if word == "earliest" else len(self.records)
        return dict.fromkeys(places, at)

    def _read(self, _settings: Any, wanted: Mapping[str, tuple[Any, int]]) -> None:
        for tail, begin in wanted.values():
            for key, value in self.records[begin : tail.end]:
                tail.apply(key, value, 1)
                self.read += 1

    def look(self, known: Mapping[str, Tail], count: int | None = 10) -> Tail:
        self.read = 0
        return read_tails({}, None, ["ledger"], count, known)["ledger"]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def test_a_second_look_reads_what_is_new(log: Log) -> None:
    log.records = [decided(batch) for batch in range(30)]
    first = log.look({})
    assert (log.read, first.start, first.whole) == (10, 20, False)
    again = log.look({"ledger": first})
    assert (log.read, again) == (0, first)
    log.records += [decided(30), (decided(20)[0], None)]
    more = log.look({"ledger": again})
    assert (log.read, more.start, more.end) == (2, 20, 32)
    assert sorted(batch for _, batch in more.ledger.decisions) == list(range(21, 31))
    assert ("main", 20) in first.ledger.decisions, "who looks at that one sees it as it was"
    assert log.look({"ledger": more}).done_ms.keys() == more.ledger.decisions.keys()


@pytest.mark.parametrize("first", [0, 40])
def test_a_log_that_is_another_is_read_anew(log: Log, first: int) -> None:
    log.records = [decided(batch) for batch in range(30)]
    known = {"ledger": log.look({})}
    log.first = first
    log.records = [decided(batch) for batch in range(5 if first == 0 else 50)]
    found = log.look(known)
    assert (found.problem, found.end) == ("", len(log.records))
    assert max(batch for _, batch in found.ledger.decisions) == len(log.records) - 1


def test_one_that_tells_of_no_batch_is_read_whole_once(log: Log) -> None:
    log.records = [decided(0)]
    log.records += [(records.GENERATION_KEY, records.encode_generation(one)) for one in range(30)]
    first = log.look({})
    assert (log.read, first.whole) == (10 + 31, True)
    assert log.look({"ledger": first}) == first
    assert log.read == 0


@pytest.mark.parametrize("word", ["earliest", "latest"])
def test_a_leader_that_does_not_answer_is_no_end(word: str) -> None:
    """The client says -1001 and no error where another partition's time was up first. Taken for an
    end, it made lag 0 of any, and an empty ledger of one that holds batches."""

    def list_offsets(asked: Mapping[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        found: dict[Any, Future[Any]] = {place: Future() for place in asked}
        for future, offset in zip(found.values(), (7, -1001), strict=True):
            future.set_result(SimpleNamespace(offset=offset))
        return found

    answered, silent = TopicPartition("in", 0), TopicPartition("in", 1)
    admin = SimpleNamespace(list_offsets=list_offsets)
    found = tails.ends(admin, [answered, silent], word)
    assert found[answered] == 7
    assert found[silent] == "Topic 'in' is not read: no answer in 30 s."
