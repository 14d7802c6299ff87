"""What the driver takes for an answer about offsets."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.core.offsets import Position, TopicPartition
from eo_kafka.errors import ReadTimeout, SourceError
from eo_kafka.sources.lookup import Ends, OffsetLookup
from eo_kafka.sources.options import SourceOptions

NOT_KNOWN = -1001  # librdkafka's, for a partition whose leader did not answer in time
AT = [TopicPartition("t", 0), TopicPartition("t", 1)]


class FakeAdmin:
    """Answers with the offsets, or the error, given for each request. What makes a real client do
    so depends on when a broker dies (test_broker_failures.py has one that is stopped). An offset
    may come with its leader's epoch."""

    def __init__(self, *answers: dict[int, int] | dict[int, tuple[int, int]] | int) -> None:
        self._answers = list(answers)

    def poll(self, timeout: float) -> None: ...

    def describe_topics(self, topics, request_timeout):
        there = Future()
        there.set_result(SimpleNamespace())
        return {"t": there}

    def list_offsets(self, question, isolation_level, request_timeout):
        offsets = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        futures = {}
        for at in question:
            futures[at] = Future()
            if isinstance(offsets, int):
                futures[at].set_exception(KafkaException(KafkaError(offsets)))
            else:
                found = offsets[at.partition]
                offset, epoch = found if isinstance(found, tuple) else (found, None)
                told = SimpleNamespace(offset=offset, leader_epoch=epoch)
                futures[at].set_result(told)
        return futures


def lookup(admin: FakeAdmin, timeout_ms: int = 30_000) -> OffsetLookup:
    options = {
        "kafka.bootstrap.servers": "localhost:1",
        "subscribe": "t",
        "fetchOffset.retryIntervalMs": "1",
        "fetchOffset.timeoutMs": str(timeout_ms),
    }
    found = OffsetLookup(SourceOptions.parse(options, streaming=True))
    found._client._admin = admin
    return found


def test_a_partition_whose_leader_did_not_answer_is_asked_for_again():
    admin = FakeAdmin({0: 7, 1: NOT_KNOWN}, {0: 8, 1: 5})
    assert lookup(admin).latest(AT) == {AT[0]: 8, AT[1]: 5}


def test_no_answer_is_never_taken_for_an_offset():
    with pytest.raises(ReadTimeout, match="no batch could be planned"):
        lookup(FakeAdmin({0: 7, 1: NOT_KNOWN})).latest(AT)
    with pytest.raises(ReadTimeout, match="no batch could be planned"):
        lookup(FakeAdmin({0: NOT_KNOWN, 1: NOT_KNOWN})).earliest(AT)


def test_a_position_that_an_open_transaction_is_before_is_where_the_log_ends_for_us():
    """Who read all records came further: Spark's connector, or this query with another level."""
    stable, written = {0: 7, 1: 5}, {0: 9, 1: 9}
    held = lookup(FakeAdmin(stable, written))
    assert held.latest(AT, {AT[0]: 9, AT[1]: 4}) == {AT[0]: 9, AT[1]: 5}
    lost = FakeAdmin(*[stable, written] * 3)
    assert lookup(lost).latest(AT, {AT[0]: 10}) == {AT[0]: 7, AT[1]: 5}


def test_a_leader_of_before_is_not_believed_however_often_it_answers(monkeypatch):
    """It is cut off from the other brokers, and goes on telling an old end."""
    old, new = {0: (7, 3), 1: (5, 3)}, {0: (12, 4), 1: (5, 3)}
    known = Position({AT[0]: 10, AT[1]: 5}, epochs={AT[0]: 4, AT[1]: 3})
    cut_off = FakeAdmin(*[old] * 5, new)
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: cut_off)
    found = lookup(cut_off).ends(AT, known)
    assert found == Ends({AT[0]: 12, AT[1]: 5}, {AT[0]: 4, AT[1]: 3})
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: FakeAdmin(old))
    with pytest.raises(ReadTimeout, match="is not the leader of t-0 any more .* names no other"):
        lookup(FakeAdmin(old), timeout_ms=300).ends(AT, known)
    made_again = known._replace(offsets={AT[1]: 5})  # of t-0 nothing is known, then
    assert lookup(FakeAdmin(old)).ends(AT, made_again).offsets == {AT[0]: 7, AT[1]: 5}


def test_a_client_that_knows_only_old_leaders_is_replaced(monkeypatch):
    fresh = FakeAdmin({0: 7, 1: 5})
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: fresh)
    old = FakeAdmin(KafkaError.FENCED_LEADER_EPOCH)
    assert lookup(old).latest(AT) == {AT[0]: 7, AT[1]: 5}


def test_a_partition_that_has_no_leader_now_is_waited_for():
    """While the brokers that hold it are away: more often than one tries what may be wrong."""
    away = KafkaError.LEADER_NOT_AVAILABLE
    of_all = KafkaError._NOENT
    admin = FakeAdmin(away, of_all, away, of_all, away, {0: 7, 1: 5})
    assert lookup(admin).latest(AT) == {AT[0]: 7, AT[1]: 5}
    with pytest.raises(ReadTimeout, match="partition t-[01] has no leader") as told:
        lookup(FakeAdmin(away), timeout_ms=300).latest(AT)
    assert "within 0.3 s" in str(told.value)


def test_what_may_be_wrong_is_asked_three_times():
    with pytest.raises(SourceError, match="Unknown broker error"):
        lookup(FakeAdmin(*[KafkaError.UNKNOWN] * 3, {0: 7, 1: 5})).latest(AT)
