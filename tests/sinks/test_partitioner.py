"""Which partitions are chosen for rows, against librdkafka's own mock broker: a partition without a
leader is hard to provoke otherwise."""

from __future__ import annotations

import ctypes

import confluent_kafka
import numpy as np
import pyarrow as pa
import pytest

from eo_kafka.core import librdkafka
from eo_kafka.sinks.rows.columns import by_topic
from eo_kafka.sinks.rows.partitions import STICKY_ROWS, Partitioner

PARTITIONS = 5
ROWS = 4 * STICKY_ROWS


@pytest.fixture
def mock():
    """A producer with a broker of its own, and the handle of that."""
    assert librdkafka.available() is None
    producer = confluent_kafka.Producer(
        {"test.mock.num.brokers": 1, "log_level": 0, "partitioner": "murmur2_random"}
    )
    find = librdkafka.library().rd_kafka_handle_mock_cluster
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    cluster = ctypes.c_void_p(find(librdkafka.raw_handle(producer)))
    call = librdkafka.library().rd_kafka_mock_topic_create
    assert call(cluster, b"t", ctypes.c_int(PARTITIONS), ctypes.c_int(1)) == 0
    return producer, cluster


def chosen(producer, size, topic="t", key=None):
    rows = pa.record_batch({"key": pa.array([key] * size, pa.binary()), "value": [b"v"] * size})
    ((_, given),) = by_topic(rows, topic)
    partitioner = Partitioner(producer, librdkafka.raw_handle(producer))
    return partitioner.choose(topic, given)


def lose_leader(cluster, partition):
    call = librdkafka.library().rd_kafka_mock_partition_set_leader
    assert call(cluster, b"t", ctypes.c_int32(partition), ctypes.c_int32(-1)) == 0


def test_rows_without_a_key_avoid_a_partition_without_a_leader(mock):
    producer, cluster = mock
    lose_leader(cluster, 2)
    found = [chosen(producer, ROWS) for _ in range(10)]
    assert set(np.concatenate(found).tolist()) == {0, 1, 3, 4}


def test_rows_with_a_key_wait_for_the_leader_of_their_partition(mock):
    producer, cluster = mock
    (expected,) = set(chosen(producer, ROWS, key=b"k").tolist())
    lose_leader(cluster, expected)
    assert set(chosen(producer, ROWS, key=b"k").tolist()) == {expected}


def test_what_is_not_worth_it_is_left_to_librdkafka(mock):
    producer, cluster = mock
    assert set(chosen(producer, 999)) == {-1}
    assert -1 not in chosen(producer, 1000)
    call = librdkafka.library().rd_kafka_mock_topic_create
    assert call(cluster, b"wide", ctypes.c_int(1000), ctypes.c_int(1)) == 0
    assert set(chosen(producer, 19_999, "wide")) == {-1}
    for partition in range(PARTITIONS):
        lose_leader(cluster, partition)
    assert set(chosen(producer, ROWS)) == {-1}


def test_a_key_stays_in_its_partition_when_its_topic_has_grown(mock):
    """Few rows, too, go by the number of partitions that the many before them went by."""
    producer, _ = mock
    partitioner = Partitioner(producer, librdkafka.raw_handle(producer))

    def chosen_for(keys):
        rows = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": [b"v"] * len(keys)})
        ((_, given),) = by_topic(rows, "t")
        return partitioner.choose("t", given).tolist()

    assert chosen_for([b"k"] * 10) == [-1] * 10  # nothing is known of the topic
    (expected,) = set(chosen_for([b"k"] * ROWS))
    found = chosen_for([b"k", None, b"k"])
    assert found[0] == found[2] == expected
    assert found[1] >= 0  # in the order of the rows, which a topic of one partition keeps
    assert chosen_for([None] * 10) == [-1] * 10
