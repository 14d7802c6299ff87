"""Kafka is away for longer than a wrong address is tried: queries that have run then go on."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Timer

import pytest

import eo_kafka
from conftest import topic_maker
from eo_kafka.clients.kafka.cluster import connect
from eo_kafka.core.patience import AT_FIRST_S, served
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import preflight
from eo_kafka.testing.processes import wait_until
from harness import committed, control_plane, produce

PATIENCE_S = 120.0


def test_queries_go_on_after_an_outage(own, spark, tmp_path):
    """They may be anywhere in their batches when it goes."""
    servers, make = own.bootstrap_servers, topic_maker(own.bootstrap_servers)
    source = make("in", partitions=2)
    kafka = {"kafka.bootstrap.servers": servers}
    read = {**kafka, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("eo-kafka").options(**read).load().select("key", "value")
    numbers, sent = count(), Counter()

    def write(how_many: int) -> None:
        values = [b"%d" % next(numbers) for _ in range(how_many)]
        produce(servers, source, values)
        sent.update(values)

    def sink(name: str, **more: str) -> dict[str, str]:
        target = {"topic": make(name, partitions=2), "jobName": f"{name}-{source}"}
        return {**kafka, **target, "checkpointLocation": str(tmp_path / name), **more}

    sinks = {name: sink(name) for name in ("rows", "direct")}
    sinks["alone"] = sink("alone", commit="idempotent")

    def started(name: str):
        if name == "direct":
            return eo_kafka.direct(spark, read, sinks[name]).start()
        return rows.writeStream.format("eo-kafka").options(**sinks[name]).start()

    queries = {}

    def is_written(name: str) -> bool:
        query = queries[name]
        assert query.isActive, query.exception()
        return committed(servers, sinks[name]["topic"]).keys() == sent.keys()

    write(50)
    for name in sinks:  # one after the other: a small machine starts their workers in time
        queries[name] = started(name)
        wait_until(lambda name=name: is_written(name), f"{name} is written", PATIENCE_S)
    try:
        for _ in range(10):
            write(20)
        own.stop()
        time.sleep(2 * AT_FIRST_S)
        own.start()
        write(50)
        for name in queries:
            wait_until(lambda name=name: is_written(name), f"{name} goes on", PATIENCE_S)
            assert committed(servers, sinks[name]["topic"]) == sent
    finally:
        for query in queries.values():
            query.stop()


def test_the_control_plane_answers_soon_after_an_outage(own, own_topic):
    """What it asks in vain meanwhile does not make it wait longer and longer: a batch asks in
    several processes, one after the other."""
    topic = own_topic("in")
    with control_plane(own.bootstrap_servers) as control, ThreadPoolExecutor(1) as asks:
        before = control.topic_ids([topic])
        served(own.bootstrap_servers)
        own.stop()
        answer = asks.submit(control.topic_ids, [topic])
        # By kafka-python's own bound of 30 s it would try again some 15 s later, or more; where
        # the broker's start has taken as long, only this shows it.
        assert control.admin.config["reconnect_backoff_max_ms"] <= 1000
        time.sleep(28.0)
        own.start()
        assert answer.result(timeout=10.0) == before


@pytest.mark.parametrize("longest", ["60s", "max"])
def test_a_new_process_of_a_sink_waits_through_an_outage(own, own_topic, monkeypatch, longest):
    """Spark ends one that is idle; the next looks at its topics again, in the middle of a query."""
    topic = own_topic("out")
    given = {"kafka.bootstrap.servers": own.bootstrap_servers, "topic": topic, "jobName": topic}
    options = SinkOptions.parse({**given, "transactionTimeout": longest}, streaming=True)
    preflight.ensure(preflight.with_allowed_timeout(options))
    served(own.bootstrap_servers)
    preflight._checked.clear()
    monkeypatch.setattr(preflight, "_allowed_ms", {})
    away = []

    def goes_away(*given):
        """Right after it was reached, and for longer than a wrong address is tried."""
        found = connect(*given)
        if not away:
            own.stop()
            away.append(Timer(AT_FIRST_S + 3, own.start))
            away[0].start()
        return found

    monkeypatch.setattr(preflight, "connect", goes_away)
    try:
        preflight.ensure(preflight.with_allowed_timeout(options))
    finally:
        away[0].join()
    assert preflight._checked
