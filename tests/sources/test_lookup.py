"""What the driver takes for an answer about offsets."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.core.offsets import Position, TopicPartition
from eo_kafka.errors import ReadTimeout, SourceError, UnknownTopic
from eo_kafka.sources.lookup import Ends, OffsetLookup
from eo_kafka.sources.settings.options import SourceOptions

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


def lookup(admin: FakeAdmin, timeout_ms: int = 30_000, **topics: str) -> OffsetLookup:
    options = {
        "kafka.bootstrap.servers": "localhost:1",
        **(topics or {"subscribe": "t"}),
        "fetchOffset.retryIntervalMs": "1",
        "fetchOffset.timeoutMs": str(timeout_ms),
    }
    found = OffsetLookup(SourceOptions.parse(options, streaming=True))
    found.check_first_contact = lambda: None
    found._client._admin = admin
    return found


def test_a_partition_whose_leader_did_not_answer_is_asked_for_again(monkeypatch):
    admin = FakeAdmin({0: 7, 1: NOT_KNOWN}, {0: 8, 1: 5})
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: admin)
    assert lookup(admin).latest(AT) == {AT[0]: 8, AT[1]: 5}


def test_no_answer_is_never_taken_for_an_offset():
    with pytest.raises(ReadTimeout, match="no batch could be planned"):
        lookup(FakeAdmin({0: 7, 1: NOT_KNOWN}), timeout_ms=300).latest(AT)
    with pytest.raises(ReadTimeout, match="no batch could be planned"):
        lookup(FakeAdmin({0: NOT_KNOWN, 1: NOT_KNOWN}), timeout_ms=300).earliest(AT)


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


@pytest.mark.parametrize("silence", [KafkaError._TIMED_OUT, {0: 7, 1: NOT_KNOWN}])
def test_a_client_that_got_no_answer_is_replaced(monkeypatch, silence):
    """Its connection may be one that something between has forgotten, or its leader one whose host
    went: it would ask there again."""
    fresh = FakeAdmin({0: 7, 1: 5})
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: fresh)
    assert lookup(FakeAdmin(silence)).latest(AT) == {AT[0]: 7, AT[1]: 5}


def test_a_partition_that_has_no_leader_now_is_waited_for():
    """While the brokers that hold it are away: more often than one tries what may be wrong."""
    away = KafkaError.LEADER_NOT_AVAILABLE
    of_all = KafkaError._NOENT
    admin = FakeAdmin(away, of_all, away, of_all, away, {0: 7, 1: 5})
    assert lookup(admin).latest(AT) == {AT[0]: 7, AT[1]: 5}
    with pytest.raises(ReadTimeout, match="partition t-[01] has no leader") as told:
        lookup(FakeAdmin(away), timeout_ms=300).latest(AT)
    assert "within 0.3 s" in str(told.value)


@pytest.mark.parametrize(
    "passes",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    ],
)
def test_an_election_is_waited_for(passes, monkeypatch):
    """It may take longer than three trials do."""
    admin = FakeAdmin(*[passes] * 5, {0: 7, 1: 5})
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: admin)
    assert lookup(admin).latest(AT) == {AT[0]: 7, AT[1]: 5}
    forever = FakeAdmin(passes)
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: forever)
    with pytest.raises(ReadTimeout, match="partition t-[01] failed for 0.3 s: .* 'fetchOffset"):
        lookup(forever, timeout_ms=300).latest(AT)


def test_a_client_whose_leader_is_none_any_more_is_replaced(monkeypatch):
    fresh = FakeAdmin({0: 7, 1: 5})
    monkeypatch.setattr("confluent_kafka.admin.AdminClient", lambda settings: fresh)
    old = FakeAdmin(KafkaError.NOT_LEADER_FOR_PARTITION)
    assert lookup(old).latest(AT) == {AT[0]: 7, AT[1]: 5}


def test_what_may_be_wrong_is_asked_three_times():
    with pytest.raises(SourceError, match="Unknown broker error"):
        lookup(FakeAdmin(*[KafkaError.UNKNOWN] * 3, {0: 7, 1: 5})).latest(AT)


class Cluster(FakeAdmin):
    """Has topics with so many partitions; describes no others."""

    def __init__(self, **topics: int) -> None:
        super().__init__()
        self._topics = topics

    def list_topics(self, timeout):
        there = {
            name: SimpleNamespace(partitions=range(count)) for name, count in self._topics.items()
        }
        return SimpleNamespace(topics=there)

    def describe_topics(self, topics, request_timeout):
        futures = {}
        for name in topics.topic_names:
            futures[name] = Future()
            if name in self._topics:
                parts = [SimpleNamespace(id=number) for number in range(self._topics[name])]
                no_id = SimpleNamespace(
                    get_most_significant_bits=lambda: 0, get_least_significant_bits=lambda: 0
                )
                found = SimpleNamespace(partitions=parts, topic_id=no_id)
                futures[name].set_result(found)
            else:
                error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
                futures[name].set_exception(KafkaException(error))
        return futures


def test_an_assigned_topic_that_is_not_there_is_told_of_as_a_subscribed_one():
    """Misspelt, or one that may not be described. Of one that is there, partitions may be missing:
    they are passed over, as by the JVM connector."""
    assign = {"assign": '{"a":[0,7],"gone":[0]}'}
    with pytest.raises(UnknownTopic, match="topic 'gone' does not exist.*correct option 'assign'"):
        lookup(Cluster(a=2, b=1), **assign).look()
    found = lookup(Cluster(a=2, b=1, gone=1), **assign).partitions()
    assert found == {TopicPartition("a", 0), TopicPartition("gone", 0)}


def test_a_pattern_that_finds_no_topic_is_told_of_once(caplog):
    looked = lookup(Cluster(a=2, b=1), subscribePattern="orders")
    assert [looked.partitions() for _ in range(2)] == [set(), set()]
    assert caplog.text.count("'subscribePattern' is 'orders', which finds no topic") == 1


class Group(FakeAdmin):
    """Says where a group is, or, of its first partition, why not; as often as is given."""

    def __init__(self, *errors: int | None) -> None:
        super().__init__()
        self._errors = list(errors)

    def list_consumer_group_offsets(self, questions, require_stable=False, request_timeout=0):
        assert require_stable, "a commit in an open transaction may not be passed over"
        code = self._errors.pop(0) if len(self._errors) > 1 else self._errors[0]
        found = [SimpleNamespace(topic="t", partition=n, offset=7, error=None) for n in (0, 1)]
        found[0].error = None if code is None else KafkaError(code)
        answer = Future()
        answer.set_result(SimpleNamespace(topic_partitions=found))
        return {questions[0].group_id: answer}


def test_a_group_whose_commit_is_in_an_open_transaction_is_waited_for():
    """Its next offset is decided with that transaction: who begins before reads records twice."""
    unstable = KafkaError.UNSTABLE_OFFSET_COMMIT
    looked = lookup(Group(*[unstable] * 5, None))
    assert looked.committed("g", AT) == {AT[0]: 7, AT[1]: 7}
    open_for_long = r"group 'g' has committed offsets in a transaction that was open for all of 0.3"
    with pytest.raises(ReadTimeout, match=open_for_long):
        lookup(Group(unstable), timeout_ms=300).committed("g", AT)
    with pytest.raises(SourceError, match="consumer group 'g' failed: Broker: Invalid group"):
        lookup(Group(KafkaError.INVALID_GROUP_ID)).committed("g", AT)
