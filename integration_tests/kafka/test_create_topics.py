"""Option `createTopics`: what is missing is made as stated, before the ledger, once; what is there
is left as it is."""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from eo_kafka.clients.kafka.cluster import connect
from eo_kafka.clients.kafka.topics import partitions_of, settings_of
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sinks import new_topics
from eo_kafka.sinks.new_topics import NewTopics
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import preflight
from harness import committed, make_copy

GOOD, BAD = b'{"id":1}', b"no JSON"
CREATE = {
    "createTopics": "true",
    "createTopics.partitions": "3",
    "createTopics.config.retention.ms": "86400000",
}


@pytest.fixture
def admin(broker) -> AdminClient:
    """The product's own: looking with it makes no topic."""
    return connect({"bootstrap.servers": broker.bootstrap_servers}, 30.0)[0]


@pytest.fixture
def missing() -> str:
    return f"missing-{uuid.uuid4().hex[:8]}"


def options(broker, topic: str, **given: str) -> SinkOptions:
    where = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "jobName": topic}
    return SinkOptions.parse({**where, **CREATE, **given}, streaming=True)


def names(admin: AdminClient) -> set[str]:
    return set(admin.list_topics(timeout=30).topics)


def test_a_query_makes_its_topics_and_writes_into_them(
    broker, make_topic, admin, missing, spark, tmp_path
):
    values = [GOOD, BAD, GOOD]
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, values)
    job.sink_topic, letters = missing, f"{missing}-letters"
    job.source_extra = {
        "value.format": "json",
        "value.schema": "id LONG",
        "mode": "DEADLETTER",
        "deadLetterTopic": letters,
    }
    job.sink_extra = {"value.format": "json", **CREATE}
    job.run(spark)
    assert committed(job.servers, missing) == Counter({GOOD: 2})
    assert committed(job.servers, letters) == Counter({BAD: 1})
    for topic in (missing, letters):
        assert len(partitions_of(admin, topic)) == 3
        assert settings_of(admin, topic)["retention.ms"] == "86400000"


def test_only_the_output_topic_is_compacted(broker, admin, missing):
    policy = {"createTopics.config.cleanup.policy": "compact"}
    letters = f"{missing}-letters"
    preflight.ensure(replace(options(broker, missing, **policy), dead_letter_topic=letters))
    found = {name: settings_of(admin, name)["cleanup.policy"] for name in (missing, letters)}
    assert found == {missing: "compact", letters: "delete"}


def test_drivers_that_start_together_make_it_once(admin, missing):
    wanted = NewTopics(partitions=2, config={"cleanup.policy": "compact, delete"})
    with ThreadPoolExecutor(4) as drivers:
        for made in [drivers.submit(new_topics.ensure, admin, missing, wanted) for _ in range(4)]:
            made.result(60)
    assert len(partitions_of(admin, missing)) == 2


def test_a_topic_that_is_there_is_left_as_it_is_and_told(broker, admin, missing, caplog):
    there = NewTopic(missing, 1, 1, config={"retention.ms": "1000000"})
    admin.create_topics([there])[missing].result(30)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):  # two batches of one process
            preflight.ensure(options(broker, missing))
    (said,) = [one for one in caplog.messages if f"Topic '{missing}'" in one]
    assert "left as it is" in said
    assert "1 partition(s), not 3; retention.ms=1000000, not 86400000" in said
    assert len(partitions_of(admin, missing)) == 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"createTopics.replicas": "3"}, "could not be created: .*eplication factor"),
        ({"createTopics.config.retention.ms": "soon"}, "could not be created: .*retention.ms"),
        ({"createTopics.config.no.such.setting": "1"}, "could not be created: .*no.such.setting"),
    ],
)
def test_what_the_brokers_refuse_leaves_nothing_behind(broker, admin, missing, given, words):
    refused = options(broker, missing, **given)
    with pytest.raises(EnvironmentRefused, match=f"'{missing}' {words}.*'createTopics.*'"):
        preflight.ensure(refused)
    assert not {missing, refused.ledger_topic} & names(admin)


def test_a_topic_that_did_not_become_as_stated_is_refused(broker, admin, missing, monkeypatch):
    """As a broker's policy for new topics could make it: none can be had here."""
    create = new_topics.topics.create

    def other(admin, topic, advice):
        return create(admin, NewTopic(topic.topic, 1, 1), advice)

    monkeypatch.setattr(new_topics.topics, "create", other)
    made = options(broker, missing)
    with pytest.raises(EnvironmentRefused, match="1 partition.s., not 3; retention.ms=.*, not 864"):
        new_topics.ensure(admin, missing, made.new_topics)
