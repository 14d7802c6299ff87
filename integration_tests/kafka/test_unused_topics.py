"""A topic of ours that a look-up made, with the settings that a broker gives to all topics,
is set right as long as it never held a record."""

from __future__ import annotations

import logging
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from eo_kafka.clients.kafka.topics import partitions_of, settings_of
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.state.ledger import compacted_topic, topic_settings
from harness import delete_records, produce, wait_until


@pytest.fixture
def admin(broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def ledger(admin) -> str:
    """As a broker makes what it is asked about by name."""
    name = f"__eo_kafka.{uuid.uuid4().hex[:8]}.ledger"
    admin.list_topics(name, timeout=30)
    wait_until(lambda: name in admin.list_topics(timeout=30).topics, "the broker has made it")
    return name


def test_a_ledger_that_a_look_up_made_is_set_right_and_told(admin, ledger, caplog):
    with caplog.at_level(logging.WARNING):
        assert compacted_topic.ensure(admin, ledger, 2, 1) == []
    assert f"Topic '{ledger}' was there with wrong settings" in caplog.text
    wait_until(lambda: len(partitions_of(admin, ledger)) == 2, "both partitions are known")
    wanted = topic_settings.wanted_settings(1)
    found = settings_of(admin, ledger)
    assert {name: found[name] for name in wanted} == wanted


def test_one_replica_is_refused_with_the_command_that_mends_it(admin, ledger):
    (sentence,) = compacted_topic.ensure(admin, ledger, 2, 3)
    assert f"kafka-topics.sh --bootstrap-server ... --delete --topic {ledger}" in sentence


@pytest.mark.parametrize("emptied", [False, True], ids=["a record", "a record that was deleted"])
def test_one_that_held_a_record_is_left_alone(broker, admin, ledger, emptied):
    produce(broker.bootstrap_servers, ledger, [b"1"])
    if emptied:
        delete_records(broker.bootstrap_servers, ledger, -1)
    check_refused(admin, ledger)


def test_one_with_a_record_that_is_not_committed_is_left_alone(broker, admin, ledger):
    settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": ledger}
    writer = Producer(settings)
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(ledger, b"1")
    writer.flush(30)
    check_refused(admin, ledger)
    writer.abort_transaction(30)


def test_a_topic_that_is_not_ours_by_name_is_left_alone(admin):
    name = f"ledger-of-theirs-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    check_refused(admin, name)


def check_refused(admin: AdminClient, name: str) -> None:
    with pytest.raises(EnvironmentRefused, match="cleanup.policy=delete"):
        compacted_topic.ensure(admin, name, 2, 1)
    assert len(partitions_of(admin, name)) == 1
    assert settings_of(admin, name)["cleanup.policy"] == "delete"
