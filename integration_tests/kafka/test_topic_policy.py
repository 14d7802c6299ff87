"""Brokers with a policy for new topics, as hosted Kafka and many companies have one: what they
forbid is left out, told, and judged by what holds instead."""

from __future__ import annotations

import logging
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from conftest import topic_maker
from eo_kafka.broker import embedded
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.jars import kafka_jars
from eo_kafka.broker.java import find_java
from eo_kafka.clients.kafka.cluster import connect
from eo_kafka.clients.kafka.topics import partitions_of, settings_of
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sources.queues import topic as inbox
from eo_kafka.state.ledger import compacted_topic
from eo_kafka.state.ledger.topic_settings import wanted_settings
from harness import assert_exactly_once, make_copy, produce, wait_until

POLICY = """
import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Allows the settings in test.policy.settings, and no name that begins with test.policy.name. */
public class SomePolicy implements CreateTopicPolicy {
    private Map<String, ?> given;

    @Override public void configure(Map<String, ?> given) { this.given = given; }

    @Override public void validate(RequestMetadata asked) {
        if (asked.topic().startsWith(String.valueOf(given.get("test.policy.name"))))
            throw new PolicyViolationException("names like " + asked.topic() + " are ours");
        boolean isOne = asked.replicationFactor() == null || asked.replicationFactor() == 1;
        if (asked.topic().startsWith("__eo_kafka.one") && !isOne)
            throw new PolicyViolationException("Replication factor must be 1");
        if (asked.topic().startsWith("__transaction") || asked.topic().startsWith("__consumer"))
            return;  // the brokers' own
        String allowed = String.valueOf(given.get("test.policy.settings"));
        for (String setting : asked.configs().keySet())
            if (!Arrays.asList(allowed.split(" ")).contains(setting))
                throw new PolicyViolationException("Config property " + setting + " cannot be set");
    }

    @Override public void close() {}
}
"""
# What a topic of Amazon MSK Serverless may be given, of what eo-kafka wants.
SERVERLESS = "cleanup.policy max.message.bytes retention.ms"


@pytest.fixture(scope="module")
def jars(tmp_path_factory) -> Path:
    """Kafka's, and the policy."""
    compiler = find_java().resolve().with_name("javac")
    if not compiler.exists():
        pytest.skip("a policy is a Java class: it needs a JDK")
    folder = tmp_path_factory.mktemp("jars")
    for jar in kafka_jars().iterdir():
        (folder / jar.name).symlink_to(jar)
    source = folder / "SomePolicy.java"
    source.write_text(POLICY)
    subprocess.run([compiler, "-cp", f"{folder}/*", source], check=True)
    shutil.make_archive(str(folder / "policy"), "zip", folder, "SomePolicy.class")
    (folder / "policy.zip").rename(folder / "policy.jar")
    return folder


@pytest.fixture(scope="module")
def strict(jars) -> Iterator[KafkaBroker]:
    """A broker with the policy, which refuses more than hosted ones do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "kafka_jars", lambda _: jars)
        properties = {
            "create.topic.policy.class.name": "SomePolicy",
            "test.policy.settings": SERVERLESS,
            "test.policy.name": "__eo_kafka.taken",
        }
        with KafkaBroker(properties=properties) as broker:
            yield broker


@pytest.fixture
def admin(strict) -> AdminClient:
    """The product's own: looking with it makes no topic."""
    return connect({"bootstrap.servers": strict.bootstrap_servers}, 30.0)[0]


def test_a_job_with_snapshots_runs_and_is_restored(strict, spark, tmp_path):
    values = [b"%d" % number for number in range(40)]
    make_topic = topic_maker(strict.bootstrap_servers)
    copy = make_copy(strict.bootstrap_servers, make_topic, tmp_path, values)
    copy.sink_extra = {"snapshots": "true"}
    copy.run(spark)
    shutil.rmtree(copy.checkpoint)
    produce(copy.servers, copy.source_topic, values)
    copy.run(spark)
    assert_exactly_once(copy, values * 2)


def test_what_is_forbidden_is_left_out_and_told(admin, caplog):
    name = f"__eo_kafka.{uuid.uuid4().hex[:8]}.ledger"
    with caplog.at_level(logging.WARNING):
        assert compacted_topic.ensure(admin, name, 2, 1) == []
    found = settings_of(admin, name)
    assert found["cleanup.policy"] == "compact"
    assert found["max.message.bytes"] == str(8 << 20)
    said = (record.getMessage() for record in caplog.records)
    (told,) = (one for one in said if name in one)
    assert "is created without delete.retention.ms=604800000, min.insync.replicas=1, seg" in told
    assert "cannot be set" in told and "retention.ms=-1" not in told


def test_a_name_that_is_like_another_one_is_said_with_the_options(admin):
    """Kafka takes '.' and '_' for the same in a new name."""
    name = f"{uuid.uuid4().hex[:8]}"
    compacted_topic.ensure(admin, f"__eo_kafka.a.{name}.ledger", 2, 1)
    with pytest.raises(EnvironmentRefused, match=r"collides.*'jobName'.*'ledgerTopic'"):
        compacted_topic.ensure(admin, f"__eo_kafka.a_{name}.ledger", 2, 1)


def test_an_inbox_keeps_its_retention(admin):
    name = f"inbox-{uuid.uuid4().hex[:8]}"
    inbox._create(admin, name)
    found = settings_of(admin, name)
    assert found["cleanup.policy"] == "delete"
    assert found["max.message.bytes"] == str(inbox.MAX_MESSAGE_BYTES)


def test_a_name_that_is_forbidden_is_said_with_the_policys_own_words(admin, caplog):
    with pytest.raises(EnvironmentRefused) as refused:
        compacted_topic.ensure(admin, "__eo_kafka.taken.ledger", 2, 1)
    assert "names like __eo_kafka.taken.ledger are ours" in str(refused.value)
    assert "'jobName'" in str(refused.value) and "'ledgerTopic'" in str(refused.value)
    assert "created without" not in caplog.text


def test_three_nodes(jars, caplog):
    """Of which one is away, as in a rolling restart: a ledger gets three replicas all the same.
    And with brokers that allow one replica only, which is theirs by default."""
    properties = {"create.topic.policy.class.name": "SomePolicy", "default.replication.factor": 1}
    properties["test.policy.settings"] = " ".join(wanted_settings(3))
    properties["test.policy.name"] = "__eo_kafka.taken"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "kafka_jars", lambda _: jars)
        with embedded.cluster(3, properties=properties) as three:
            admin = connect({"bootstrap.servers": three.bootstrap_servers}, 30.0)[0]
            assert len(compacted_topic.ensure(admin, "__eo_kafka.one.ledger", 2, 3)) == 1
            assert "they do not allow 3 (Replication factor must be 1)" in caplog.text
            three.brokers[2].kill()
            wait_until(lambda: len(admin.list_topics(timeout=30).brokers) == 2, "one is away")
            assert compacted_topic.ensure(admin, "__eo_kafka.pay.ledger", 2, 2) == []
            there = partitions_of(admin, "__eo_kafka.pay.ledger")
            assert [len(one.replicas) for one in there.values()] == [3, 3]
