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
from eo_kafka.clients.kafka.topics import settings_of
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sources.queues import topic as inbox
from eo_kafka.state.ledger import compacted_topic
from harness import assert_exactly_once, make_copy, produce

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
    (told,) = (record.getMessage() for record in caplog.records)
    assert "is created without delete.retention.ms=604800000, min.insync.replicas=1, unc" in told
    assert "cannot be set" in told and "retention.ms=-1" not in told


def test_an_inbox_keeps_its_retention(admin):
    name = f"inbox-{uuid.uuid4().hex[:8]}"
    inbox._create(admin, name, 1)
    found = settings_of(admin, name)
    assert found["cleanup.policy"] == "delete"
    assert found["max.message.bytes"] == str(inbox.MAX_MESSAGE_BYTES)


def test_a_name_that_is_forbidden_is_said_with_the_policys_own_words(admin, caplog):
    with pytest.raises(EnvironmentRefused) as refused:
        compacted_topic.ensure(admin, "__eo_kafka.taken.ledger", 2, 1)
    assert "names like __eo_kafka.taken.ledger are ours" in str(refused.value)
    assert "Create it by hand (2 partition(s), cleanup.policy=compact)" in str(refused.value)
    assert "created without" not in caplog.text
