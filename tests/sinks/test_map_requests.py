"""Requests that are made of whole columns are those that the client's own put_all would send."""

from __future__ import annotations

import types

import pyarrow as pa
import pytest
from hazelcast.config import Config
from hazelcast.future import ImmediateFuture
from hazelcast.hash import hash_to_index
from hazelcast.proxy.map import Map
from hazelcast.serialization import SerializationServiceV1
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eo_kafka.core import librdkafka
from eo_kafka.core.loops import Loop
from eo_kafka.errors import SinkError
from eo_kafka.sinks.maps import requests as map_requests
from eo_kafka.sinks.maps.objects import entries_of, keys_of
from eo_kafka.sinks.maps.requests import requests_of

partition_of = Loop("eo_kafka.sinks.maps.request_kernels", "partition_of", results=1)

pytestmark = pytest.mark.skipif(
    librdkafka.available() is not None, reason=str(librdkafka.available())
)
CLIENT = types.SimpleNamespace(_serialization_service=SerializationServiceV1(Config()))
TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
# few enough keys that some come twice
keys = st.text("aé€😀", max_size=3) | st.text(max_size=40)
row = st.tuples(keys, st.none() | st.text(max_size=40))


def by_the_client(name: str, rows: pa.RecordBatch, json: bool, partitions: int):
    """What the client sends, and the keys that we would remove one by one."""
    entries = entries_of(CLIENT, rows, json)
    sent = {}

    def partition_of(data) -> int:
        return hash_to_index(data.get_partition_hash(), partitions)

    def send(request, at: int) -> ImmediateFuture:
        assert at not in sent
        sent[at] = bytes(request.buf)
        return ImmediateFuture(None)

    proxy = types.SimpleNamespace(
        name=name,
        _to_data=CLIENT._serialization_service.to_data,
        _context=types.SimpleNamespace(
            partition_service=types.SimpleNamespace(get_partition_id=partition_of)
        ),
        _invoke_on_partition=send,
    )
    Map.put_all(proxy, {key: value for key, value in entries.items() if value is not None})
    return sent, [key for key, value in entries.items() if value is None]


def batch(rows, of_keys: pa.DataType, of_values: pa.DataType) -> pa.RecordBatch:
    found = []
    for column, kind in zip(zip(*rows, strict=True), (of_keys, of_values), strict=True):
        is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        encoded = [one.encode() if is_bytes and one is not None else one for one in column]
        found.append(pa.array(encoded, kind))
    return pa.record_batch(found, names=["key", "value"])


@settings(max_examples=300, deadline=None)
@given(
    st.lists(row, min_size=1, max_size=40),
    st.sampled_from(TYPES),
    st.sampled_from(TYPES),
    st.booleans(),
    st.integers(1, 271),
    st.integers(0, 3),
)
def test_they_are_byte_for_byte_what_the_client_sends(
    rows, of_keys, of_values, json, partitions, start
) -> None:
    some = batch(rows, of_keys, of_values).slice(start)
    expected, removed = by_the_client("a map", some, json, partitions)
    found = requests_of("a map", some, json, partitions)
    assert {at: bytes(request) for at, request in found.puts} == expected
    assert keys_of(CLIENT, found.removed) == removed


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), min_size=1))
def test_bytes_that_are_no_text_are_what_the_client_sends(rows) -> None:
    some = pa.record_batch(
        [pa.array(column, pa.binary()) for column in zip(*rows, strict=True)],
        names=["key", "value"],
    )
    expected, removed = by_the_client("m", some, False, 7)
    found = requests_of("m", some, False, 7)
    assert {at: bytes(request) for at, request in found.puts} == expected
    assert keys_of(CLIENT, found.removed) == removed


@given(st.integers(-(2**31), 2**31 - 1), st.integers(1, 1000))
@example(-(2**31), 271)
def test_a_hash_has_the_partition_that_the_members_find_it_in(found: int, partitions: int) -> None:
    expected = 0 if found == -(2**31) else abs(found) % partitions
    assert partition_of(found & 0xFFFFFFFF, partitions) == expected


def test_a_request_can_be_numbered_and_is_too_large_at_two_gibibytes(monkeypatch) -> None:
    some = batch([("a", "1"), ("b", None)], pa.string(), pa.string())
    ((_, request),) = requests_of("m", some, False, 1).puts
    assert not request.readonly
    with pytest.raises(SinkError, match="no UTF-8"):
        bad = pa.record_batch([pa.array(["a"]), pa.array([b"\xff"])], names=["key", "value"])
        requests_of("m", bad, True, 1)
    monkeypatch.setattr(map_requests, "_LARGEST", 10)
    with pytest.raises(SinkError, match="set 'putSize' lower"):
        requests_of("m", some, False, 1)
