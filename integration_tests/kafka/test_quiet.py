"""What a query writes to stderr: nothing of the clients, and of an outage one line at each end."""

from __future__ import annotations

import logging
import re
from concurrent.futures import ThreadPoolExecutor

from conftest import topic_maker
from eo_kafka.clients.kafka import config as kafka_config
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.core.offsets import OffsetRange, TopicPartition
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import preflight
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.reader import read_range
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.testing.processes import wait_until
from harness import assert_exactly_once, make_copy, produce

OF_LIBRDKAFKA = re.compile(r"^%\d\|.*", re.MULTILINE)
AS_SPARKS = re.compile(r"^[\d/]{8} [\d:]{8} WARNING eo_kafka\.\S+: .*single live", re.MULTILINE)
VALUES = [b"%d" % number for number in range(200)]


def test_a_run_writes_nothing_of_the_clients_to_stderr(broker, make_topic, tmp_path):
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=100)
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) == 0, log.read_text()[-3000:]
    said = log.read_text()
    assert OF_LIBRDKAFKA.findall(said) == []
    assert said.count("single live broker") == 1
    assert AS_SPARKS.search(said), "time and level, as in Spark's lines"
    assert_exactly_once(job, VALUES)


def test_a_single_broker_is_told_once_and_not_by_each_process(broker, make_topic, caplog):
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": make_topic("out")}
    options = SinkOptions.parse({**given, "jobName": f"single-{given['topic']}"}, streaming=True)
    for _ in range(3):
        preflight._checked.clear()  # as in another process
        preflight.ensure(options)
    assert caplog.text.count("single live broker") == 1


def test_a_broker_that_goes_and_comes_back_is_told_once_each(own, caplog, capfd):
    """A source, a sink's producer and its control plane, all waiting for the same broker."""
    servers, topic = own.bootstrap_servers, topic_maker(own.bootstrap_servers)("away")
    settings = {"bootstrap.servers": servers}
    produce(servers, topic, VALUES)
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    options = SourceOptions.parse({**given, "fetchOffset.numRetries": "90"}, streaming=True)
    at = TopicPartition(topic, 0)
    lookup, control = OffsetLookup(options), ControlPlane(settings)
    producer = kafka_config.producer({**settings, "acks": "all"})

    def read() -> int:
        return sum(batch.num_rows for batch in read_range(options, OffsetRange(at, 0, 200)))

    def write() -> int:
        producer.produce(topic, b"one more")
        return producer.flush(60)

    assert (read(), write(), lookup.latest([at])[at]) == (200, 0, 201)
    assert control.end_offset(topic, 0, committed=True) == 201
    caplog.set_level(logging.WARNING)
    capfd.readouterr()
    own.stop()
    with ThreadPoolExecutor() as waiting:
        answers = [
            waiting.submit(work)
            for work in (
                read,
                write,
                lambda: lookup.latest([at])[at],
                lambda: control.end_offset(topic, 0, committed=True),
            )
        ]
        wait_until(lambda: "is away" in caplog.text, "it is told that the broker is away")
        own.start()
        rows, unsent, *ends = [answer.result(60) for answer in answers]
    assert (rows, unsent) == (200, 0)
    assert all(end in (201, 202) for end in ends)
    wait_until(lambda: "is back" in caplog.text, "it is told that the broker is back")
    assert caplog.text.count(f"Kafka broker {servers} is away") == 1
    assert caplog.text.count(f"Kafka broker {servers} is back") == 1
    assert "rdkafka" not in capfd.readouterr().err
    control.close()
