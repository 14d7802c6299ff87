"""What a share group, its topics and its Kafka must be like; what is told of them at a start."""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.clients.kafka.share_group import ShareGroup
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sources.queues.receiver import Receiver
from eo_kafka.testing.processes import wait_until
from harness import committed, committed_messages, delete_records, delete_topic, write
from share_job import QUICK_GROUP, numbered, set_group, wait_taken


def test_a_kafka_without_share_groups_is_told_of(share_copy) -> None:
    with KafkaBroker(version="3.9.1") as old:
        share_copy.servers = old.bootstrap_servers
        with pytest.raises(EnvironmentRefused, match=r"no share groups.*4\.2.*share\.version=1"):
            share_copy.receiver().receive()


def test_records_of_aborted_transactions_are_no_messages(share_copy) -> None:
    job = share_copy
    set_group(job.servers, job.group, {"share.isolation.level": "read_uncommitted"})
    with pytest.raises(EnvironmentRefused, match=r"were aborted.*isolation\.level=read_committed"):
        job.receiver().receive()
    set_group(job.servers, job.group, {"share.isolation.level": "read_committed"})
    producer = job.transactional_producer()
    for value, is_committed in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.produce(job.queue, value, value)
        producer.flush(30)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(30)
    with job.member() as one:
        assert one.receive(all_there=True) == 2
    assert set(committed(job.servers, job.source_topic)) == {b"a", b"c"}


def test_a_limit_of_deliveries_that_loses_records_is_refused(share_copy) -> None:
    """With Kafka's default a driver that dies in the fifth delivery loses what is left."""
    job = share_copy
    set_group(job.servers, job.group, {"share.delivery.count.limit": "5"})
    with pytest.raises(EnvironmentRefused, match=r"is 4, .*=5: .*half.*delivery\.count\.limit=10"):
        job.receiver().receive()
    with job.member(maxDeliveries="2") as one:
        assert one.receive() == 0


def test_a_group_that_passes_over_what_is_there_is_told_of_once(share_copy, caplog) -> None:
    job = share_copy
    set_group(job.servers, job.group, {"share.auto.offset.reset": "latest"})
    with job.member() as one:
        for _ in range(2):
            assert one.receive() == 0
    assert caplog.text.count("share.auto.offset.reset=latest") == 1
    assert f"--entity-name {job.group} --add-config share.auto.offset.reset=earliest" in caplog.text


def test_the_name_of_a_consumer_group_is_refused(share_copy) -> None:
    job = share_copy
    job.publish(numbered(1))
    job.group += "-of-consumers"
    set_group(job.servers, job.group, QUICK_GROUP)
    settings = {"group.id": job.group, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": job.servers, **settings})
    consumer.subscribe([job.queue])
    wait_until(lambda: consumer.poll(0.5) is not None, "the consumer is a member", 60)
    with pytest.raises(EnvironmentRefused, match="not be a group's of another kind"):
        wait_until(job.receiver().receive, "it is told", 60)
    consumer.close()


def test_a_topic_that_is_not_there_is_not_created(share_copy) -> None:
    job = share_copy
    with pytest.raises(EnvironmentRefused, match="There is no topic 'elsewhere'"):
        job.receiver(queue="elsewhere").receive()
    topics = AdminClient({"bootstrap.servers": job.servers}).list_topics(timeout=30).topics
    assert "elsewhere" not in topics


def test_an_inbox_whose_memory_is_gone_is_refused(share_copy) -> None:
    job = share_copy
    job.publish(numbered(3))
    job.receive(3)
    delete_topic(job.servers, f"{job.source_topic}.kept")
    with pytest.raises(EnvironmentRefused, match=r"is empty, and inbox.*is not.*repeated"):
        job.receiver().receive()


def test_an_inbox_that_is_gone_is_not_made_anew_in_silence(share_copy) -> None:
    """The group hands out what it has lost to nobody any more."""
    job = share_copy
    job.publish(numbered(3))
    job.receive(3)
    delete_topic(job.servers, job.source_topic)
    job.publish(numbered(3, 3))
    for _ in range(2):
        with pytest.raises(EnvironmentRefused, match=r"3 messages.*was deleted.*\.kept"):
            job.receiver().receive()
    delete_topic(job.servers, f"{job.source_topic}.kept")  # as it says, to go on without them
    job.receive(3)
    assert committed(job.servers, job.source_topic).keys() == {b"m00003", b"m00004", b"m00005"}


def test_records_that_expired_before_they_were_handed_out_are_told(share_copy, caplog) -> None:
    """As of a query that was away for longer than the topic keeps them."""
    job = share_copy
    job.publish(numbered(3))
    job.receive(3)
    with job.member() as one:
        one.receive()
    assert "has deleted" not in caplog.text
    job.publish(numbered(5, 3))
    delete_records(job.servers, job.queue, 6)
    job.receive(2)
    assert f"in {job.queue}-0 from offset 3 up to 6" in caplog.text
    assert committed(job.servers, job.source_topic) == Counter(numbered(3) + numbered(2, 6))


def is_told(one: Receiver, said: str, caplog) -> bool:
    return not one.receive() and said in caplog.text


def test_records_that_expire_while_the_query_lives_are_told_once(share_copy, caplog) -> None:
    """As of one that is slower than the producer, or has a batch that is longer than the topic
    keeps them. What is kept afterwards hides the gap from each later start."""
    job = share_copy
    with job.member(prefetch="10") as one:
        assert one.receive() == 0
        for end, left in ((200, 10), (400, 0), (600, 10)):
            for first in range(end - 200, end, 10):  # what is on its way to the member comes
                job.publish(numbered(10, first))
            delete_records(job.servers, job.queue, end - left)
            said = f"{end - left}, and"
            wait_until(partial(is_told, one, said, caplog), "it is told and has taken all", 60)
    told = re.findall(r"from offset (\d+) up to (\d+), and", caplog.text)
    lost = [at for begin, until in told for at in range(int(begin), int(until))]
    kept = committed(job.servers, job.source_topic)
    assert kept + Counter(b"m%05d" % at for at in lost) == Counter(numbered(600))
    assert len(lost) > 300


def test_records_that_expire_in_its_hands_are_not_told_as_lost(
    share_copy, caplog, monkeypatch
) -> None:
    job, take = share_copy, ShareGroup.take

    def taken(self, is_behind):
        found = take(self, is_behind)
        delete_records(job.servers, job.queue, -1)  # all there are
        return found

    monkeypatch.setattr(ShareGroup, "take", taken)
    job.publish(numbered(3))
    with job.member() as one:
        wait_taken(one, 3)
        assert one.receive() == 0
    assert "has deleted" not in caplog.text
    assert committed(job.servers, job.source_topic) == Counter(numbered(3))


def test_a_memory_that_cannot_be_read_is_refused(share_copy) -> None:
    job = share_copy
    job.receiver().open()
    write(job.servers, f"{job.source_topic}.kept", [("[]", "{}")])
    with pytest.raises(EnvironmentRefused, match="not written by this version"):
        job.receiver().receive()


def set_topic(servers: str, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_message_that_is_too_large_is_named_and_holds_back_no_other(share_copy) -> None:
    """Each start counts as a delivery of what is not acknowledged. At last it is kept in parts."""
    job, good, large = share_copy, numbered(20), os.urandom(1_100_000)
    set_topic(job.servers, job.queue, "max.message.bytes", "2000000")
    job.receiver().open()
    for topic in (job.source_topic, job.poison):
        set_topic(job.servers, topic, "max.message.bytes", "1048588")
    job.publish(good)
    producer = Producer({"bootstrap.servers": job.servers, "message.max.bytes": "2000000"})
    producer.produce(job.queue, large, b"large", 0)
    assert producer.flush(30) == 0
    given = {"maxDeliveries": "2"}
    for _ in range(2):
        with pytest.raises(EnvironmentRefused, match=rf"'{job.queue}-0-20' .*1,100,000 .*parts"):
            job.receive(1, **given)
        assert committed(job.servers, job.source_topic) == Counter(good)
    job.receive(1, **given)
    assert b"".join(one.value() for one in committed_messages(job.servers, job.poison)) == large
