"""What is committed of the ends that Spark reports."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.connectors.monitoring import consumer_group, group_commits
from eo_kafka.connectors.monitoring.consumer_group import ConsumerGroup
from eo_kafka.connectors.monitoring.group_commits import GroupCommits
from eo_kafka.connectors.spark_reports import slowest
from eo_kafka.core.offsets import TopicPartition
from eo_kafka.errors import OptionsError
from eo_kafka.testing.processes import wait_until

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_the_slowest_of_several_sources_counts() -> None:
    assert slowest(['{"a":{"0":7},"b":{"0":2}}', '{"a":{"0":5}}']) == {A: 5, B: 2}


@pytest.mark.parametrize("text", [None, "", "17", '{"logOffset":3}', "not JSON", '{"a":{"0":-1}}'])
def test_other_sources_say_nothing(text: str | None) -> None:
    assert slowest([text]) == {}


def test_what_is_missing_is_said_at_once() -> None:
    with pytest.raises(OptionsError) as refused:
        ConsumerGroup(" ", {}, query="")
    assert len(refused.value.problems) == 3


class Group:
    """What Kafka answers to commits, of topics that are `unknown` or `refused`, and when."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.commits: list[dict[str, int]] = []
        self.unknown: set[str] = set()
        self.refused: set[str] = set()
        self.answers, self.closed = Event(), Event()
        self.answers.set()
        self.ids: dict[str, str | None] = {}
        monkeypatch.setattr(group_commits, "consumer", lambda settings: self)
        monkeypatch.setattr(GroupCommits, "_ids_here", lambda _, topics: self.ids)
        options = {"kafka.bootstrap.servers": "x:1"}
        self.listener = ConsumerGroup("g", options, query="q")

    def commit(self, offsets: list[Any], asynchronous: bool) -> list[Any]:
        self.answers.wait(60)
        self.commits.append({one.topic: one.offset for one in offsets})
        answers = [
            SimpleNamespace(topic=one.topic, partition=one.partition, error=self.error(one.topic))
            for one in offsets
        ]
        if all(one.error for one in answers):  # as librdkafka does
            raise KafkaException(answers[-1].error)
        return answers

    def error(self, topic: str) -> KafkaError | None:
        if topic in self.unknown:
            return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
        refused = topic in self.refused
        return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED) if refused else None

    def close(self) -> None:
        self.closed.set()

    def batch(self, *ends: str) -> None:
        sources = [SimpleNamespace(endOffset=end) for end in ends]
        progress = SimpleNamespace(name="q", id="i", sources=sources)
        self.listener.onQueryProgress(SimpleNamespace(progress=progress))

    def idle(self, query: str = "i") -> None:
        self.listener.onQueryIdle(SimpleNamespace(id=query, runId="r", timestamp=""))

    def end(self, query: str = "i") -> None:
        self.listener.onQueryTerminated(SimpleNamespace(id=query, runId="r", exception=None))


@pytest.fixture
def group(monkeypatch) -> Iterator[Group]:
    one = Group(monkeypatch)
    yield one
    one.answers.set()
    one.end()


def test_a_topic_that_is_gone_is_said_once_and_keeps_nothing_up(group, caplog) -> None:
    group.unknown = {"gone"}
    group.batch('{"gone":{"0":7},"stays":{"0":1}}')
    wait_until(lambda: len(group.commits) == 1, "the first batch")
    group.batch('{"gone":{"0":7}}')
    wait_until(lambda: len(group.commits) == 2, "the second")
    group.batch('{"stays":{"0":2}}')
    wait_until(lambda: len(group.commits) == 3, "the third")
    assert group.commits[-1] == {"stays": 2}
    assert caplog.text.count("no progress of gone-0, which Kafka does not have") == 1
    assert "was not committed" not in caplog.text


def test_what_succeeded_is_not_sent_again_with_what_failed(group) -> None:
    group.refused = {"b"}
    group.batch('{"a":{"0":1},"b":{"0":1}}')
    wait_until(lambda: len(group.commits) == 2, "it is tried again")
    assert group.commits == [{"a": 1, "b": 1}, {"b": 1}]
    group.refused = set()


def test_no_listener_waits_for_a_commit_and_the_end_is_the_querys_own(group) -> None:
    group.answers.clear()
    for number in range(3):
        group.batch(f'{{"a":{{"0":{number}}}}}')
        group.end("another's")
    assert group.commits == []
    group.answers.set()
    group.end()
    assert group.commits[-1] == {"a": 2}, "a query's end waits for its last batch"
    assert group.closed.wait(60)
    group.batch('{"a":{"0":3}}')  # it is started again
    wait_until(lambda: group.commits[-1] == {"a": 3}, "another thread")


def test_a_query_that_waits_for_weeks_keeps_its_offsets(group, monkeypatch) -> None:
    """Kafka drops those of a group without members seven days after they were committed."""
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(consumer_group, "time", clock)
    group.idle()  # nothing is known yet
    group.batch('{"a":{"0":7}}')
    wait_until(lambda: group.commits == [{"a": 7}], "the batch")
    for _ in range(48):
        now[0] += 3600
        count = len(group.commits)
        group.idle("another's")
        group.idle()
        is_due = now[0] % (6 * 3600) == 1000
        wait_until(lambda: len(group.commits) == count + is_due, "it is committed again")  # noqa: B023
    assert group.commits == [{"a": 7}] * 9
    group.end()
    now[0] += 10**6
    group.idle()
    assert group.listener._thread is None
    assert len(group.commits) == 9


def test_topics_of_another_cluster_are_left_out(group) -> None:
    group.ids = {"orders": "x", "only-in-b": "y"}
    group.batch(
        '{"orders":{"0":9000},"only-in-a":{"0":3},"@id only-in-a z":{},"@id orders w":{}}',
        '{"only-in-b":{"0":7},"orders":{"0":12},"@id only-in-b y":{},"@id orders x":{}}',
        '{"without-an-id":{"0":5}}',
    )
    wait_until(lambda: group.commits, "a commit")
    assert group.commits == [{"only-in-b": 7, "orders": 12, "without-an-id": 5}]
