"""Headers that librdkafka does not read are not taken for none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eo_kafka.core import librdkafka
from eo_kafka.errors import SourceError
from eo_kafka.sources.fetch import fast
from eo_kafka.testing.processes import wait_until

MOST = 100_000  # librdkafka's own
HEADERS = pa.list_(pa.binary())


@pytest.fixture(scope="module")
def consumer() -> Iterator[Any]:
    """Of a topic with a record without headers, one with three, and one with too many."""
    assert librdkafka.available() is None
    many = {"message.max.bytes": 10_000_000}
    host = Producer({"test.mock.num.brokers": 1, "log_level": 0, **many})
    brokers = host.list_topics("t", timeout=20).brokers.values()
    for count in (0, 3, MOST + 1):
        host.produce("t", b"v", b"k", 0, headers=[("h", b"1")] * count)
    assert host.flush(30) == 0
    servers = ",".join(f"{one.host}:{one.port}" for one in brokers)
    made = Consumer({"bootstrap.servers": servers, "group.id": "g", "enable.partition.eof": True})
    fast.set_apart(made, "t", 0)
    yield made
    made.close()
    del host


def read(consumer: Any, end: int, include_headers: bool) -> list[int | None]:
    """Of all records before `end`, the number of headers; None without them."""
    counts: list[int | None] = []
    consumer.assign([TopicPartition("t", 0, 0)])

    def complete() -> bool:
        for one in fast.fetch(consumer, "t", 0, end, include_headers=include_headers):
            if one.batch is not None:
                rows = one.batch.num_rows
                headers = one.batch["headers"] if include_headers else pa.nulls(rows, HEADERS)
                counts.extend(pc.list_value_length(headers).to_pylist())
        return len(counts) == end

    wait_until(complete, "all records are read", 30)
    return counts


def test_a_record_with_more_than_librdkafka_reads_is_refused(consumer: Any) -> None:
    with pytest.raises(SourceError, match="record of t-0 at offset 2 .* headers"):
        read(consumer, 3, include_headers=True)


def test_others_are_read(consumer: Any) -> None:
    assert read(consumer, 2, include_headers=True) == [None, 3]
    assert read(consumer, 3, include_headers=False) == [None] * 3
