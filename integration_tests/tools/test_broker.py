"""The local Kafka: starts, is reached on loopback only, crashes and comes back with its data."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType
from confluent_kafka.cimpl import NewTopic
from kafka.admin import KafkaAdminClient
from kafka.errors import CoordinatorLoadInProgressError, NotCoordinatorError

from eo_kafka.broker.embedded import KafkaBroker, cluster
from eo_kafka.broker.errors import BrokerError, PortTaken
from eo_kafka.broker.settings import DIFFERENCES
from eo_kafka.testing.processes import await_gone, listening_addresses, wait_until

IDENTITY = {
    "node.id",
    "broker.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "controller.listener.names",
    "controller.quorum.voters",
    "log.dirs",
    "log.dir",
}


def create_topic(bootstrap_servers: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(name, num_partitions=1)])[name].result(timeout=30)
    return name


def produce(bootstrap_servers: str, topic: str, values: list[bytes]) -> None:
    """Write with acks=all; every delivery is checked."""
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "log_level": 0})
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _: failed.append(error) if error else None
        )
    assert producer.flush(60) == 0
    assert failed == []


def committed(bootstrap_servers: str, topic: str) -> list[bytes]:
    """What a read_committed consumer sees in partition 0, up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "no end of the partition within a minute"
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
    finally:
        consumer.close()


def transaction_state(bootstrap_servers: str, transactional_id: str) -> str:
    """As its coordinator tells, which a broker that just restarted is still loading."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    deadline = time.monotonic() + 30
    try:
        while True:
            try:
                described = admin.describe_transactions([transactional_id])
                return str(described[transactional_id].state.name)
            except (NotCoordinatorError, CoordinatorLoadInProgressError):
                assert time.monotonic() < deadline, "the coordinator was not loaded in 30 s"
                time.sleep(0.1)
    finally:
        admin.close()


@pytest.fixture(scope="module")
def own_broker() -> Iterator[KafkaBroker]:
    """A broker this module may kill; always running when a test gets it."""
    with KafkaBroker() as kafka:
        yield kafka


@pytest.fixture
def kafka(own_broker: KafkaBroker) -> KafkaBroker:
    own_broker.start()
    return own_broker


def test_what_was_written_is_read(kafka: KafkaBroker) -> None:
    topic = create_topic(kafka.bootstrap_servers, "plain")
    produce(kafka.bootstrap_servers, topic, [b"1", b"2", b"3"])
    assert committed(kafka.bootstrap_servers, topic) == [b"1", b"2", b"3"]


def test_listens_on_loopback_only(kafka: KafkaBroker) -> None:
    assert listening_addresses(kafka.pid) == {"127.0.0.1"}


def test_a_prepared_transaction_outlives_sigkill(kafka: KafkaBroker) -> None:
    topic = create_topic(kafka.bootstrap_servers, "prepared")
    produce(kafka.bootstrap_servers, topic, [b"committed"])
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "transactional.id": "prepared",
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"prepared")
    assert producer.flush(30) == 0
    address, pid = kafka.bootstrap_servers, kafka.pid

    kafka.kill()
    assert not psutil.pid_exists(pid)
    kafka.restart()

    assert kafka.bootstrap_servers == address
    assert kafka.pid != pid
    assert transaction_state(address, "prepared") == "ONGOING"
    assert committed(address, topic) == [b"committed"]
    producer.commit_transaction(30)
    wait_until(lambda: len(committed(address, topic)) > 1, "the commit's marker is written")
    assert committed(address, topic) == [b"committed", b"prepared"]


def test_stop_and_restart_keep_a_given_folder(tmp_path: Path) -> None:
    with KafkaBroker(directory=tmp_path) as first:
        topic = create_topic(first.bootstrap_servers, "kept")
        produce(first.bootstrap_servers, topic, [b"kept"])
    assert not first.running
    with KafkaBroker(directory=tmp_path) as second:
        assert committed(second.bootstrap_servers, "kept") == [b"kept"]


def test_a_taken_port_is_refused_at_once(kafka: KafkaBroker) -> None:
    with pytest.raises(PortTaken, match=f"127.0.0.1:{kafka.port}"), KafkaBroker(port=kafka.port):
        pass


def test_a_broker_that_cannot_start_says_why() -> None:
    bad = KafkaBroker(properties={"log.segment.bytes": "many"})
    with pytest.raises(BrokerError, match=r"log\.segment\.bytes"), bad:
        pass
    assert not bad.directory.exists()


def test_features_are_finalized_as_asked() -> None:
    with KafkaBroker(features={"transaction.version": 1}) as old_transactions:
        admin = KafkaAdminClient(bootstrap_servers=old_transactions.bootstrap_servers)
        try:
            features = admin.describe_features()
        finally:
            admin.close()
    assert features["transaction.version"]["finalized"] == (1, 1)


def run_command(*options: str) -> tuple[subprocess.Popen[str], str]:
    """Start `eo-kafka broker`; return it and the one line it prints."""
    command = [sys.executable, "-m", "eo_kafka.tools.cli", "broker", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline()


def test_the_command_runs_until_sigterm() -> None:
    process, line = run_command("--port", "0")
    try:
        key, _, address = line.strip().partition("=")
        assert key == "bootstrap.servers"
        create_topic(address, "through-the-command")
        family = psutil.Process(process.pid).children(recursive=True)
        assert any(one.name() == "java" for one in family)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        await_gone(family)
    finally:
        process.kill()
        process.communicate()


def test_the_broker_dies_with_a_killed_command(tmp_path: Path) -> None:
    process, line = run_command("--dir", str(tmp_path))  # a temporary one would be left behind
    try:
        assert line.startswith("bootstrap.servers=127.0.0.1:")
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        await_gone(family)
    finally:
        process.kill()
        process.communicate()


def test_three_nodes_survive_the_loss_of_one() -> None:
    with cluster(nodes=3) as kafka:
        topic = create_topic(kafka.bootstrap_servers, "replicated")
        produce(kafka.bootstrap_servers, topic, [b"before"])
        victim = kafka.brokers[0]
        victim.kill()
        produce(kafka.bootstrap_servers, topic, [b"while one is gone"])
        victim.start()
        produce(kafka.bootstrap_servers, topic, [b"after"])
        assert committed(kafka.bootstrap_servers, topic) == [
            b"before",
            b"while one is gone",
            b"after",
        ]


@pytest.mark.full
@pytest.mark.parametrize("version", ["3.9.1", "4.0.1", "4.4.0"])
def test_other_versions_start(version: str) -> None:
    with KafkaBroker(version=version) as old:
        topic = create_topic(old.bootstrap_servers, "old")
        produce(old.bootstrap_servers, topic, [b"1"])
        assert committed(old.bootstrap_servers, topic) == [b"1"]


@pytest.mark.smoke
def test_kafkas_defaults_hold_but_for_what_the_help_lists(own_broker: KafkaBroker) -> None:
    """All that the broker was told, beside who and where it is; and the defaults are as listed."""
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap_servers})
    resource = ConfigResource(ResourceType.BROKER, "1")
    entries = admin.describe_configs([resource])[resource].result(30)
    assert entries["auto.create.topics.enable"].value == "true"
    listed = {one.name: one for one in DIFFERENCES}
    static = ConfigSource.STATIC_BROKER_CONFIG.value
    told = {name: entry for name, entry in entries.items() if entry.source == static}
    assert set(told) - set(listed) <= IDENTITY
    for name in set(told) & set(listed):
        values = {found.source: found.value for found in told[name].synonyms.values()}
        assert values[ConfigSource.DEFAULT_CONFIG.value] == str(listed[name].default)
