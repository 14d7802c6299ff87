"""The receiver without Spark: what it drops, what it sends elsewhere, and what it refuses."""

from __future__ import annotations

import datetime
import json
import logging
import os
import sys
from threading import Thread

import pika
import pytest

from eo_kafka.clients.amqp.queue import Queue
from eo_kafka.connectors.queues.reader import QueueStreamReader, checked
from eo_kafka.core.process import driver_directory
from eo_kafka.errors import (
    EnvironmentRefused,
    Fenced,
    OutcomeUnknown,
    ReadTimeout,
    SourceError,
)
from eo_kafka.sources.queues import receiver
from eo_kafka.sources.queues.rows import with_messages
from eo_kafka.testing.processes import wait_until
from harness import committed, committed_messages, delete_records
from queue_job import (
    QueueCopy,
    channel,
    evaluate,
    new_queue,
    numbered,
    once,
    publish,
    waiting,
    with_each_kept,
)


def in_inbox(job: QueueCopy):
    return committed(job.servers, job.source_topic)


def test_a_start_reads_back_what_it_kept_as_far_as_the_window_reaches(queue_copy, caplog) -> None:
    job, ids = queue_copy, numbered(100)
    small = {"dedupWindow": "40", "prefetch": "7"}
    publish(job.url, job.queue, ids)
    one = job.receiver(**small)
    assert one.receive(all_there=True) == 100
    publish(job.url, job.queue, ids[60:])  # the newest 40
    assert one.receive(all_there=True) == 40
    assert in_inbox(job) == once(ids)
    publish(job.url, job.queue, [*ids[60:], "new"])
    assert job.receiver(**small).receive(all_there=True) == 41
    assert in_inbox(job) == once([*ids, "new"])
    assert "40 messages of queue" in caplog.text
    publish(job.url, job.queue, ids[:1])  # older than the window: a repeat, as is said
    assert job.receiver(**small).receive(all_there=True) == 1
    assert in_inbox(job) == once([*ids, "new"]) + once(ids[:1])
    assert waiting(job.url, job.queue) == 0


def test_a_backlog_is_taken_whole_and_what_keeps_coming_holds_no_batch_back(
    queue_copy, monkeypatch
) -> None:
    monkeypatch.setattr(receiver, "_PLAN_S", 0.0)
    job, ids = queue_copy, numbered(50)
    publish(job.url, job.queue, ids[:5])
    one, more = job.receiver(prefetch="2"), iter(ids[5:])
    with_each_kept(one, lambda: publish(job.url, job.queue, [next(more)]))
    assert one.receive() == 8, "2, 2, the last one with a new one, and 2 new ones"


def test_one_that_was_shut_out_keeps_nothing_and_gives_its_messages_back(queue_copy) -> None:
    job = queue_copy
    old, new = job.receiver(), job.receiver()
    old.open()
    new.open()
    publish(job.url, job.queue, ["a", "b"])
    with pytest.raises(Fenced, match="Run one of them"):
        old.receive()
    assert not in_inbox(job)
    assert new.receive() == 2
    assert in_inbox(job) == once(["a", "b"])


def test_a_message_that_is_older_than_the_window_is_counted(queue_copy, caplog) -> None:
    job = queue_copy
    publish(job.url, job.queue, numbered(3))
    assert job.receiver(dedupWindow="1", prefetch="1").receive(all_there=True) == 3
    publish(job.url, job.queue, ["late"])
    with channel(job.url) as opened:
        tag = next(opened.consume(job.queue))[0].delivery_tag
        opened.basic_nack(tag, requeue=True)
        opened.cancel()
    assert job.receiver(dedupWindow="1", prefetch="1").receive() == 1
    assert "1 messages of queue" in caplog.text
    assert "raise 'dedupWindow'" in caplog.text


def test_what_a_quorum_queue_delivered_too_often_goes_to_the_poison_topic(queue_copy) -> None:
    job = queue_copy
    job.queue = new_queue(job.url, "quorum")
    publish(job.url, job.queue, ["bad"])
    with channel(job.url) as opened:
        for count, (method, _, _) in enumerate(opened.consume(job.queue), 1):
            opened.basic_reject(method.delivery_tag, requeue=True)  # nack is not counted since 4.3
            if count == 3:
                break
        opened.cancel()
    publish(job.url, job.queue, ["good"])
    assert job.receiver(maxDeliveries="2").receive(all_there=True) == 2
    assert in_inbox(job) == once(["good"])
    (poison,) = committed_messages(job.servers, job.poison)
    assert (poison.key(), poison.value()) == (b"bad", b"bad")
    (meta,) = [value for name, value in poison.headers() if name == "eo-queue"]
    assert "maxDeliveries is 2" in json.loads(meta)["reason"]
    publish(job.url, job.queue, ["bad"])  # put back: it was in no inbox, and is there once now
    assert job.receiver(maxDeliveries="2").receive() == 1
    publish(job.url, job.queue, ["bad"])
    assert job.receiver(maxDeliveries="2").receive() == 1
    assert len(committed_messages(job.servers, job.poison)) == 1
    assert in_inbox(job) == once(["good", "bad"])


def publish_nameless(job: QueueCopy) -> None:
    with channel(job.url) as opened:
        opened.basic_publish("", job.queue, b"nameless", pika.BasicProperties(delivery_mode=2))


def test_a_message_without_an_id_stops_the_query_and_stays(queue_copy) -> None:
    job = queue_copy
    publish(job.url, job.queue, ["a"])
    publish_nameless(job)
    publish(job.url, job.queue, ["b"])
    told = r"has no id.*not acknowledged.*onMissingId.*goes back.*15 .*own limit is lower"
    for _ in range(2):
        with pytest.raises(SourceError, match=told):
            job.receiver().receive()
        assert in_inbox(job) == once(["a", "b"]), "the others are kept"
        assert waiting(job.url, job.queue) == 1
    assert job.receiver(onMissingId="dead-letter").receive(all_there=True) == 1
    assert in_inbox(job) == once(["a", "b"])
    assert committed(job.servers, job.poison) == once(["nameless"])


def test_starts_that_stop_lose_nothing_of_a_quorum_queue(queue_copy) -> None:
    """Each counts as a delivery of what is not acknowledged; at the limit RabbitMQ drops it."""
    job = queue_copy
    job.queue = new_queue(job.url, "quorum", **{"x-delivery-limit": 4})
    publish_nameless(job)
    publish(job.url, job.queue, numbered(20))
    for _ in range(3):
        with pytest.raises(SourceError, match="has no id"):
            job.receiver(maxDeliveries="3").receive()
    for _ in range(4):
        job.receiver(maxDeliveries="3").receive()
    assert in_inbox(job) == once(numbered(20))
    assert committed(job.servers, job.poison) == once(["nameless"])


def test_ids_of_headers_and_of_bodies(queue_copy) -> None:
    job = queue_copy
    with channel(job.url) as opened:
        for order in (1, 2, 1):
            headers = {"order": order}
            opened.basic_publish("", job.queue, b"x", pika.BasicProperties(headers=headers))
    assert job.receiver(messageId="header:order").receive(all_there=True) == 3
    inbox = committed_messages(job.servers, job.source_topic)
    assert [one.key() for one in inbox] == [b"1", b"2"]
    job.source_topic += "-bodies"
    publish(job.url, job.queue, ["x"])
    with channel(job.url) as opened:
        opened.basic_publish("", job.queue, b"x")
    assert job.receiver(messageId="body").receive(all_there=True) == 2
    assert in_inbox(job) == once(["x"])


def test_a_time_that_python_has_no_date_for_is_read(queue_copy, monkeypatch) -> None:
    """Of a publisher that writes milliseconds: with pika as it is, it ends each connection."""
    job, then = queue_copy, datetime.datetime.now()
    with channel(job.url) as opened, monkeypatch.context() as patched:
        patched.setattr("pika.data.calendar.timegm", lambda _: 1_767_225_600_000)
        given = pika.BasicProperties(message_id="a", headers={"when": then, "in": {"at": then}})
        opened.basic_publish("", job.queue, b"a", given)
    assert job.receiver().receive() == 1
    (found,) = committed_messages(job.servers, job.source_topic)
    assert dict(found.headers())["when"] == b"1767225600000"


def test_a_message_that_cannot_be_read_takes_nothing_with_it(queue_copy) -> None:
    """Taken for an outage, it would be asked for again and again, and at the limit RabbitMQ drops
    what is delivered with it."""
    job, headers = queue_copy, {}
    job.queue = new_queue(job.url, "quorum", **{"x-delivery-limit": 4})
    for _ in range(900):
        headers = {"a": headers}
    publish(job.url, job.queue, ["a"])
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(20_000)
        publish(job.url, job.queue, ["deep"], headers=headers)
    finally:
        sys.setrecursionlimit(limit)
    publish(job.url, job.queue, ["b"])
    with pytest.raises(SourceError, match="cannot be read by the client .*RecursionError"):
        job.receiver(maxDeliveries="3").receive()
    wait_until(lambda: waiting(job.url, job.queue) == 3, "all of them are in the queue again")


def test_a_message_that_is_too_large_for_kafka_stays_in_the_queue(queue_copy, make_topic) -> None:
    job = queue_copy
    job.source_topic = make_topic("inbox", config={"max.message.bytes": "2000"})
    publish(job.url, job.queue, ["first"])
    with channel(job.url) as opened:
        opened.basic_publish(
            "", job.queue, os.urandom(5000), pika.BasicProperties(message_id="big")
        )
    publish(job.url, job.queue, ["last"])
    for _ in range(2):
        with pytest.raises(EnvironmentRefused, match=r"'big' .* 5,000 bytes.*max\.message\.bytes"):
            job.receiver().receive()
        assert in_inbox(job) == once(["first", "last"]), "the others are kept"
        assert waiting(job.url, job.queue) == 1


def test_nobody_else_may_write_into_an_inbox(queue_copy) -> None:
    from harness import produce

    job = queue_copy
    one = job.receiver()
    one.open()
    produce(job.servers, job.source_topic, [b"foreign"])
    publish(job.url, job.queue, ["a"])
    with pytest.raises(Exception, match="somebody else writes into it"):
        one.receive()
    assert in_inbox(job) == once(["foreign"])
    assert waiting(job.url, job.queue) == 1


def test_a_receiver_that_another_prefix_does_not_fence_is_noticed(queue_copy) -> None:
    """A job that gets a prefix of its own while its old driver still runs: two ids, one inbox."""
    job = queue_copy
    old, new = job.receiver(), job.receiver(transactionalIdPrefix="orders")
    publish(job.url, job.queue, ["a"])
    assert old.receive() == 1
    publish(job.url, job.queue, ["b"])
    assert new.receive() == 1
    publish(job.url, job.queue, ["c"])
    with pytest.raises(OutcomeUnknown, match="somebody else writes into it"):
        old.receive()
    assert in_inbox(job) == once(["a", "b"])
    assert waiting(job.url, job.queue) == 1
    assert job.receiver().receive() == 1  # which reads all that there is first
    with pytest.raises(OutcomeUnknown, match="somebody else writes into it"):
        publish(job.url, job.queue, ["d"])
        new.receive()
    assert in_inbox(job) == once(["a", "b", "c"])
    assert waiting(job.url, job.queue) == 1


def test_another_source_of_ids_makes_another_id(queue_copy, caplog) -> None:
    """A publisher's counter, and the number of an order."""
    job = queue_copy
    with channel(job.url) as opened:
        for body, count, order in ((b"17", "1001", 17), (b"1001", "2002", 1001)):
            given = pika.BasicProperties(message_id=count, headers={"order": order})
            opened.basic_publish("", job.queue, body, given)
            changed = {} if order == 17 else {"messageId": "header:order"}
            assert job.receiver(**changed).receive(all_there=True) == 1
    assert in_inbox(job) == once(["17", "1001"])
    assert "1 are of another kind" in caplog.text


def test_a_compacted_inbox_is_refused(queue_copy, make_topic) -> None:
    queue_copy.source_topic = make_topic("inbox", config={"cleanup.policy": "compact"})
    with pytest.raises(EnvironmentRefused, match="acknowledged and not read yet"):
        queue_copy.receiver().open()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"durable": False}, "is not durable"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
        ({"durable": True, "exclusive": True}, "another connection's alone"),
        ({"durable": True, "arguments": {"x-queue-type": "stream"}}, "is a stream"),
        (None, "has no queue"),
    ],
)
def test_a_queue_that_does_not_keep_messages_is_refused(queue_copy, given, said) -> None:
    job = queue_copy
    with channel(job.url) as opened:
        job.queue += "-wrong"
        if given is not None:
            opened.queue_declare(job.queue, **given)
        with pytest.raises(EnvironmentRefused, match=said):
            job.receiver().receive()
    if given is None:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue"):
            waiting(job.url, job.queue)  # looking for it has not made it


def test_a_queue_with_settings_of_its_own_is_left_as_it_is(queue_copy) -> None:
    job = queue_copy
    with channel(job.url) as opened:  # a name that looks like what is refused
        opened.queue_declare("stream", durable=True)
    job.queue = "stream"
    publish(job.url, job.queue, ["named"])
    assert job.receiver().receive() == 1
    job.queue = new_queue(job.url, **{"x-message-ttl": 60_000_000, "x-max-priority": 3})
    publish(job.url, job.queue, ["a"])
    assert job.receiver().receive() == 1
    new = {"x-message-ttl": 60_000_000, "x-max-priority": 3, "x-queue-type": "classic"}
    with channel(job.url) as opened:  # the same settings: no error
        opened.queue_declare(job.queue, durable=True, arguments=new)


def test_a_limit_of_deliveries_that_loses_messages_is_refused(queue_copy) -> None:
    """It is named last, behind what else a queue was declared with."""
    job, limit = queue_copy, {"x-delivery-limit": 3}
    others = {
        "x-dead-letter-exchange": "it's 'one'",
        "x-max-length-bytes": 2**40,
        "x-single-active-consumer": True,
        "x-message-ttl": 60_000_000,
    }
    for more in ({}, others):
        job.queue = new_queue(job.url, "quorum", **limit, **more)
        publish(job.url, job.queue, ["a"])
        for most in ("3", "15"):
            with pytest.raises(EnvironmentRefused, match=r"x-delivery-limit=3, .*maxDeliveries"):
                job.receiver(maxDeliveries=most).receive()
        assert job.receiver(maxDeliveries="2").receive(all_there=True) == 1
    for given in ({"x-delivery-limit": 16}, others):
        job.queue = new_queue(job.url, "quorum", **given)
        assert job.receiver().receive(all_there=True) == 0


def test_to_look_at_a_queue_that_is_gone_makes_none(queue_copy) -> None:
    job = queue_copy
    one = Queue(checked(job.as_job()["source_options"]).queue.amqp, "gone", "test", 15)
    connection = pika.BlockingConnection(pika.URLParameters(job.url))
    assert one._declared_limit(connection) is None
    connection.close()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue"):
        waiting(job.url, "gone")


def test_a_queue_that_another_consumer_has_for_itself_is_waited_for(queue_copy, caplog) -> None:
    job = queue_copy
    publish(job.url, job.queue, ["a"])
    one = job.receiver(**{"fetchOffset.timeoutMs": "1000"})
    with channel(job.url) as opened:
        opened.basic_qos(prefetch_count=1)
        tag = opened.basic_consume(job.queue, lambda *_: None, exclusive=True)
        with pytest.raises(ReadTimeout, match=r"Another consumer has queue .* in exclusive use"):
            one.receive(all_there=True)
        assert caplog.text.count("Trying again") == 1
        opened.basic_cancel(tag)
    assert one.receive(all_there=True) == 1


def test_a_wrong_password_or_no_server_is_told_without_the_password(
    queue_copy, caplog, monkeypatch
) -> None:
    monkeypatch.setattr(driver_directory, "_seen", set())
    job = queue_copy
    caplog.set_level(logging.DEBUG)
    job.given = {"fetchOffset.timeoutMs": "1000"}
    place = job.url.rpartition("@")[2]
    for url, kind in (
        (f"amqp://guest:s3cr3t@{place}", EnvironmentRefused),
        ("amqp://guest:s3cr3t@127.0.0.1:1/%2F", ReadTimeout),
        (f"amqp://guest:s3cr3t@{place.replace('%2F', 'nowhere')}", EnvironmentRefused),
    ):
        with pytest.raises(kind, match=r"RabbitMQ at 127\.0\.0\.1") as told:
            job.receiver(url=url).receive()
        assert "s3cr3t" not in str(told.value) + repr(told.value)
    assert "s3cr3t" not in caplog.text


def test_a_login_that_is_refused_later_is_waited_for(own_rabbitmq, queue_copy, caplog) -> None:
    """RabbitMQ says the same where the backend that it asks (LDAP, HTTP) does not answer."""
    job, took = queue_copy, []
    job.url = own_rabbitmq.url
    job.queue = new_queue(job.url)
    one = job.receiver()
    publish(job.url, job.queue, ["a"])
    assert one.receive() == 1
    publish(job.url, job.queue, ["b"])
    change = 'rabbit_auth_backend_internal:change_password(<<"guest">>, <<"{}">>, <<"test">>)'
    evaluate(own_rabbitmq, change.format("other"))
    works = Thread(target=lambda: took.append(one.receive()), daemon=True)
    works.start()
    wait_until(lambda: "Trying again" in caplog.text or not works.is_alive(), "it is told")
    evaluate(own_rabbitmq, change.format("guest"))
    works.join(30)
    assert took == [1]
    assert "refuses this user" in caplog.text
    assert in_inbox(job) == once(["a", "b"])


def test_other_consumers_are_told(queue_copy, caplog) -> None:
    job = queue_copy
    with channel(job.url) as opened:
        opened.basic_consume(job.queue, lambda *_: None)
        job.receiver().receive(all_there=True)
    assert "1 other consumers" in caplog.text


@pytest.mark.parametrize("messages", [5, 11])  # of ten, and the end of their transaction
def test_an_inbox_whose_beginning_has_expired(queue_copy, messages, caplog) -> None:
    gone = 2 + messages  # before them is the trial
    job, ids = queue_copy, numbered(10)
    publish(job.url, job.queue, ids)
    assert job.receiver().receive(all_there=True) == 10
    delete_records(job.servers, job.source_topic, gone)
    publish(job.url, job.queue, ids)
    given = checked(job.as_job()["source_options"])
    reader = QueueStreamReader(given, with_messages(given.source.schema()))
    assert reader.initialOffset() == {job.source_topic: {"0": gone}}
    assert f"begins at offset {gone}" in caplog.text
    reader.latestOffset()
    left = ids[messages:]
    assert in_inbox(job) == once(left) + once([one for one in ids if one not in left])
    reader.stop()
