"""Each message's id is once in the output, whoever dies and whenever: the receiver, the driver,
RabbitMQ, Kafka; and when two drivers of one job run."""

from __future__ import annotations

import pytest

from eo_kafka.clients.amqp import queue as amqp_queue
from eo_kafka.errors import EnvironmentRefused, ReadTimeout
from eo_kafka.testing.processes import has_ended, wait_until
from harness import committed, kill_driver_at, kill_group, start_driver, written
from queue_job import (
    QueueCopy,
    channel,
    copy_of,
    evaluate,
    kafka_is_killed_at,
    new_queue,
    numbered,
    once,
    publish,
    waiting,
)

FULL = pytest.mark.full
IDS = numbered(1200)  # more than are taken at a time


def check_each_once(job: QueueCopy, ids: list[str] = IDS) -> None:
    assert committed(job.servers, job.source_topic) == once(ids), "the inbox"
    assert committed(job.servers, job.sink_topic) == once(ids), "the output"
    wait_until(lambda: waiting(job.url, job.queue) == 0, "the queue is empty")


@pytest.mark.parametrize("kind", [pytest.param("classic", marks=FULL), "quorum"])
@pytest.mark.parametrize(
    "point",
    [
        "queue.received",
        "queue.before_commit",
        pytest.param("queue.after_commit", marks=pytest.mark.smoke),
        "queue.after_acknowledgement",
    ],
)
def test_a_driver_that_is_killed_loses_and_repeats_nothing(
    eo_rabbitmq, broker, make_topic, spark, crash_points, tmp_path, point, kind
) -> None:
    url = eo_rabbitmq.url
    queue = new_queue(url, kind)
    job = copy_of(url, broker.bootstrap_servers, make_topic, tmp_path, queue=queue)
    publish(url, queue, IDS)
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    inbox = committed(job.servers, job.source_topic)
    if point in ("queue.received", "queue.before_commit"):
        assert not inbox, "nothing of it was kept"
    else:
        assert inbox == once(IDS[:1000])
    given_back = 200 if point == "queue.after_acknowledgement" else 1200
    wait_until(lambda: waiting(url, queue) == given_back, "the others are in the queue again")
    beside_trial = any(written(job.servers, job.source_topic))  # that one is empty
    assert beside_trial == (point != "queue.received")
    job.run(spark)
    check_each_once(job)


@pytest.mark.parametrize(
    "point", [pytest.param("queue.received", marks=FULL), "queue.after_commit"]
)
def test_a_rabbitmq_that_is_killed_and_comes_back_is_waited_for(
    own_rabbitmq, broker, make_topic, spark, crash_points, tmp_path, point
) -> None:
    """What was acknowledged into the void comes again, and is dropped; the query goes on."""
    job = copy_of(own_rabbitmq.url, broker.bootstrap_servers, make_topic, tmp_path)
    publish(job.url, job.queue, IDS)
    crash_points.arm(point, "wait")
    with job.running(spark) as query:
        crash_points.wait_reached(point)
        own_rabbitmq.kill()
        crash_points.release(point)
        own_rabbitmq.start()
        assert query.awaitTermination(120)
    job.run(spark)
    check_each_once(job)


def test_a_quorum_queue_that_nobody_leads_is_not_empty(
    own_rabbitmq, broker, make_topic, tmp_path
) -> None:
    """As RabbitMQ says of one that has lost the majority of its nodes."""
    queue = new_queue(own_rabbitmq.url, "quorum")
    job = copy_of(own_rabbitmq.url, broker.bootstrap_servers, make_topic, tmp_path, queue=queue)
    publish(job.url, queue, IDS)
    member = f"{{'%2F_{queue}', node()}}"
    evaluate(own_rabbitmq, f"ra:stop_server(quorum_queues, {member})")
    with pytest.raises(ReadTimeout, match="No answer from RabbitMQ"):
        job.receiver(**{"fetchOffset.timeoutMs": "1000"}).receive(all_there=True)
    evaluate(own_rabbitmq, f"ra:restart_server(quorum_queues, {member})")
    one = job.receiver()
    wait_until(lambda: one.receive(all_there=True) == len(IDS), "all of them are taken")
    assert committed(job.servers, job.source_topic) == once(IDS)


@pytest.mark.parametrize(
    "point", ["queue.before_commit", pytest.param("queue.after_commit", marks=FULL)]
)
def test_a_kafka_that_is_killed_and_comes_back_has_each_message_once(
    own, own_topic, eo_rabbitmq, spark, crash_points, tmp_path, point
) -> None:
    job = copy_of(eo_rabbitmq.url, own.bootstrap_servers, own_topic, tmp_path)
    publish(job.url, job.queue, IDS)
    kafka_is_killed_at(point, job, own, spark, crash_points)
    job.run(spark)
    check_each_once(job)


@pytest.mark.parametrize(
    "point",
    [pytest.param("queue.before_commit", marks=pytest.mark.full), "queue.after_commit"],
)
def test_of_two_drivers_at_once_one_fills_the_inbox(
    queue_copy, spark, crash_points, tmp_path, point
) -> None:
    """The first is held up with messages in its hands; the second takes over and works; then the
    first goes on."""
    job = queue_copy
    publish(job.url, job.queue, IDS)
    crash_points.arm(point, "wait")
    log = tmp_path / "log"
    first = start_driver(job, log)
    try:
        planner = crash_points.wait_reached(point)
        job.run(spark)
        of_second = committed(job.servers, job.sink_topic)
        assert of_second == once(IDS[1000:] if point == "queue.before_commit" else IDS)
        crash_points.release(point)
        wait_until(lambda: has_ended(planner), "the first one stops")
        assert first.wait(60) != 0
    finally:
        kill_group(first)
    if point == "queue.before_commit":  # else it has nothing more to keep, and the sink stops it
        assert "Another driver of this job fills inbox" in log.read_text()
    wait_until(lambda: waiting(job.url, job.queue) in (0, 1000), "its messages are back")
    job.run(spark)
    check_each_once(job)


@pytest.mark.parametrize("meanwhile", ["a-minute", "an-outage"])
def test_a_queue_that_is_made_again_is_looked_at_again(queue_copy, monkeypatch, meanwhile) -> None:
    """As one that is deleted, with what waits in it, when the receiver leaves it."""
    job, one = queue_copy, queue_copy.receiver()
    publish(job.url, job.queue, ["a"])
    assert one.receive() == 1
    with channel(job.url) as opened:
        opened.queue_delete(job.queue)
        opened.queue_declare(job.queue, durable=True, auto_delete=True)
    publish(job.url, job.queue, ["b", "c"])
    if meanwhile == "a-minute":
        monkeypatch.setattr(amqp_queue, "_LOOK_S", 0.0)
    else:
        one.close()
    with pytest.raises(EnvironmentRefused, match="is deleted with what is in it"):
        one.receive()
    assert waiting(job.url, job.queue) == 2
