"""A share group's receiver without Spark: what it remembers, drops, sends elsewhere and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from eo_kafka.clients.kafka import share_group
from eo_kafka.errors import EnvironmentRefused, Fenced
from eo_kafka.sources.queues import receiver
from eo_kafka.testing.processes import killed_at_last
from harness import committed, committed_messages, delete_topic, wait_until, write
from queue_job import with_each_kept
from share_job import ShareCopy, numbered, polled, share_copy_of, wait_taken


def in_inbox(job: ShareCopy) -> Counter[bytes]:
    return committed(job.servers, job.source_topic)


def test_a_record_comes_as_it_was(share_copy) -> None:
    job = share_copy
    job.publish([b"a"], headers=[("h", b"1"), ("none", None), ("eo-queue", b"not ours")])
    job.publish([b"a"])
    with job.member() as one:
        assert one.receive(all_there=True) == 2
    first, second = committed_messages(job.servers, job.source_topic)
    assert (first.key(), first.value(), second.key()) == (b"a", b"a", b"a")
    (_, meta), *headers = first.headers()
    assert headers == [("h", b"1"), ("none", None), ("eo-queue", b"not ours")]
    said = json.loads(meta)
    assert said["id"] == f"{job.queue}-0-0"
    assert said["properties"]["topic"] == job.queue


def test_what_comes_again_is_dropped_also_by_another_receiver(share_copy, caplog) -> None:
    job, values = share_copy, numbered(50)
    job.publish(values)
    job.receive(50)
    with job.member() as one:
        assert one.receive(all_there=True) == 0, "all of it was acknowledged"
    assert in_inbox(job) == Counter(values)


@contextmanager
def trickle(job: ShareCopy, seconds: float) -> Iterator[Thread]:
    """Ten records a second, for so long or until the end."""
    is_ended = Event()

    producer = Producer({"bootstrap.servers": job.servers, "linger.ms": "1"})

    def publish() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not is_ended.wait(0.1):
            producer.produce(job.queue, b"new")
        producer.flush(30)

    producer.produce(job.queue, b"new")
    producer.flush(30)  # else it begins when it has found the topic
    thread = Thread(target=publish)
    thread.start()
    try:
        yield thread
    finally:
        is_ended.set()
        thread.join()


def test_records_that_keep_coming_hold_no_batch_back(share_copy) -> None:
    with share_copy.member() as one, trickle(share_copy, 25) as producer:
        for _ in range(3):
            wait_taken(one, 1)
            assert producer.is_alive()


def test_a_backlog_is_taken_whole(share_copy, monkeypatch) -> None:
    """And no more than a second of what comes meanwhile."""
    monkeypatch.setattr(receiver, "_PLAN_S", 0.0)
    job, new = share_copy, iter(numbered(50))
    for value in numbered(8):  # a batch for each, as these are not divided
        job.publish([value])
    with job.member(prefetch="2") as one:
        with_each_kept(one, lambda: job.publish([next(new)]))
        assert 8 <= one.receive() < 20


def test_one_that_comes_again_after_ten_thousand_others_is_known(share_kafka, tmp_path) -> None:
    """It was kept, and its acknowledgement was lost. The others of its partition go on. There is
    one partition: of several, Kafka gives some to one member alone."""
    job = share_copy_of(
        share_kafka.bootstrap_servers,
        tmp_path,
        **{"share.partition.max.record.locks": "10000", "share.record.lock.duration.ms": "60000"},
    )
    job.publish([b"first"])
    with job.member(maxMessagesPerTrigger="1") as one:
        one.open()
        one._queue.acknowledge = lambda taken: one.close()
        wait_until(one.receive, "it is taken", 30)
    assert in_inbox(job) == Counter([b"first"])
    others = numbered(9_990)
    with job.other() as other:
        (held,) = polled(other)
        assert (held.value(), held.delivery_count()) == (b"first", 2)
        job.publish(others)
        job.receive(len(others))
    job.receive(1)
    assert in_inbox(job) == Counter([b"first", *others])


def test_records_that_are_there_and_do_not_come_are_told(
    share_kafka, tmp_path, caplog, monkeypatch
) -> None:
    """Another member has them: nobody tells how many, and it is not waited for ever."""
    monkeypatch.setattr(share_group, "_BEHIND_S", 3.0)
    long = {"share.record.lock.duration.ms": "60000"}
    job = share_copy_of(share_kafka.bootstrap_servers, tmp_path, **long)
    job.publish(numbered(3))
    with job.other() as other:
        assert len(polled(other)) == 3
        with job.member() as one:
            assert one.receive(all_there=True) == 0
        assert "handed out nothing of" in caplog.text
    job.receive(3)
    caplog.clear()
    with job.member() as one:
        assert one.receive(all_there=True) == 0
    assert "handed out nothing of" not in caplog.text, "all of it is in the inbox"


def test_what_another_member_acknowledged_is_not_ours_and_what_it_died_with_is(
    share_copy, tmp_path
) -> None:
    job, values = share_copy, numbered(30)
    job.publish(values)
    die = """
import os, signal, sys
from confluent_kafka import ShareConsumer
one = ShareConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2],
                     "share.acknowledgement.mode": "explicit"})
one.subscribe([sys.argv[3]])
while not (found := list(one.poll(0.5))):
    pass
for each in found[::2]:
    one.acknowledge(each)
for each in found[1::2]:
    one.acknowledge(each, 2)
assert set(one.commit_sync(30).values()) == {None}
while not (again := list(one.poll(0.5))):
    pass
print(*(each.value().decode() for each in found[::2]), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    arguments = [sys.executable, "-c", die, job.servers, job.group, job.queue]
    other = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    with killed_at_last(other.pid):
        theirs, _ = other.communicate(timeout=60)
    accepted = [one.encode() for one in theirs.split()]
    assert len(accepted) == 15
    job.receive(15)
    assert in_inbox(job) == Counter(values) - Counter(accepted)


def test_one_whose_lock_ended_is_in_the_inbox_once_and_may_be_another_members_too(
    share_copy, caplog
) -> None:
    job = share_copy
    job.publish([b"slow"])
    with job.member() as one, job.other() as other:
        one.open()
        append = one._inbox.append

        def slow(*given) -> bool:
            is_done = append(*given)
            assert [each.value() for each in polled(other)] == [b"slow"]
            return is_done

        one._inbox.append = slow
        wait_until(one.receive, "it is taken", 30)
    assert "Their locks had ended" in caplog.text
    job.receive(1)
    assert in_inbox(job) == Counter([b"slow"])


def test_what_is_not_remembered_any_more_goes_to_the_poison_topic(share_copy) -> None:
    """Only what sets a group's offsets back brings it: here the memory is of an earlier group."""
    job, values = share_copy, numbered(10)
    job.publish(values[:1])
    job.receive(1)
    key, kept = [job.topic_id, 0], {"kept1": [3, 0, 2]}
    write(job.servers, f"{job.source_topic}.kept", [(json.dumps(key), json.dumps(kept))])
    job.publish(values[1:])
    job.receive(9)
    assert in_inbox(job) == Counter(values[:1] + values[5:])
    poison = committed_messages(job.servers, job.poison)
    assert [one.value() for one in poison] == values[1:3]
    assert "is not remembered" in json.loads(poison[0].headers()[0][1])["reason"]


def test_a_group_that_is_deleted_and_made_again_repeats_nothing(share_copy, caplog) -> None:
    job, values = share_copy, numbered(40)
    job.publish(values)
    job.receive(40)
    admin = AdminClient({"bootstrap.servers": job.servers})
    admin.delete_consumer_groups([job.group])[job.group].result(30)
    job.receive(40)
    assert in_inbox(job) == Counter(values)
    assert "40 messages of queue" in caplog.text


def test_a_topic_that_is_deleted_and_made_again_has_new_messages(share_copy) -> None:
    job = share_copy
    job.publish(numbered(5))
    with job.member() as one:
        assert one.receive(all_there=True) == 5
        admin = AdminClient({"bootstrap.servers": job.servers})
        delete_topic(job.servers, job.queue)
        with pytest.raises(EnvironmentRefused, match="There is no topic"):
            one.receive()
        admin.create_topics([NewTopic(job.queue, 1, 1)])[job.queue].result(30)
        job.publish(numbered(8, first=100))
        took = 0

        def all_new() -> bool:
            nonlocal took
            took += one.receive()
            return took == 8

        wait_until(all_new, "the new topic's messages come", 60)
    assert in_inbox(job) == Counter(numbered(5) + numbered(8, first=100))


def test_one_that_was_shut_out_keeps_nothing_and_gives_its_messages_back(share_copy) -> None:
    job = share_copy
    with job.member() as old, job.member() as new:
        old.open()
        new.open()
        job.publish(numbered(3))
        with pytest.raises(Fenced, match="Run one of them"):
            wait_until(old.receive, "it takes something", 30)
        assert not in_inbox(job)
        wait_until(new.receive, "they come to the other", 30)
    assert in_inbox(job) == Counter(numbered(3))


@pytest.mark.parametrize("deaths", [4, 9])
def test_a_record_that_was_delivered_too_often_goes_to_the_poison_topic(
    share_copy, caplog, deaths
) -> None:
    """In any delivery up to the tenth, which is the last with the limit that the docs set."""
    job = share_copy
    job.publish([b"bad"])
    for _ in range(deaths):
        with job.other() as other:
            polled(other)  # and dies with it
    job.publish([b"good"])
    job.receive(2)
    assert in_inbox(job) == Counter([b"good"])
    (poison,) = committed_messages(job.servers, job.poison)
    assert (poison.key(), poison.value()) == (b"bad", b"bad")
    assert f"delivered {deaths} times before" in json.loads(poison.headers()[0][1])["reason"]
    assert "went to the poison topic" in caplog.text


def test_null_values_and_keys_stay_null(share_copy) -> None:
    job = share_copy
    producer = Producer({"bootstrap.servers": job.servers})
    producer.produce(job.queue, None, b"tombstone")
    producer.produce(job.queue, b"keyless")
    producer.produce(job.queue, b"", b"")
    producer.flush(30)
    with job.member() as one:
        assert one.receive(all_there=True) == 3
    found = committed_messages(job.servers, job.source_topic)
    assert [(one.key(), one.value()) for one in found] == [
        (b"tombstone", None),
        (None, b"keyless"),
        (b"", b""),
    ]
