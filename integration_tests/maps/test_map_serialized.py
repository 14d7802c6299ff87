"""Compact and Portable keys and values as typed columns, out of a real member: as a batch, as a
stream, as a side input. What decoding makes of every kind of field: test_compact_columns.py
and test_portable_columns.py in tests/formats."""

from __future__ import annotations

import datetime
from decimal import Decimal

import hazelcast
import pytest
from hazelcast.serialization.api import CompactSerializer, Portable

import eo_kafka
from eo_kafka.clients.hazelcast import internals
from eo_kafka.errors import SourceError
from eo_kafka.formats.hazelcast.columns import CompactColumn, PortableColumn
from eo_kafka.sources.maps.entries import plan, read_entries
from eo_kafka.sources.maps.options import MapOptions
from grid_fixtures import new_map
from map_backends import all_of, run
from test_map_stream import options_of

WHEN = datetime.datetime(2024, 2, 29, 12, 30, 0, 5)


class Order:
    def __init__(self, number: int, price: Decimal | None = None, **more) -> None:
        self.number, self.price, self.more = number, price, more


class OrderSerializer(CompactSerializer):
    """The first version of the type."""

    def read(self, reader):
        raise NotImplementedError

    def write(self, writer, order) -> None:
        writer.write_int32("number", order.number)
        writer.write_decimal("price", order.price)

    def get_type_name(self) -> str:
        return "order"

    def get_class(self):
        return Order


class LaterSerializer(OrderSerializer):
    """A later one: a wider number, new fields, and the customer is a value of its own."""

    def write(self, writer, order) -> None:
        writer.write_int64("number", order.number)
        writer.write_decimal("price", order.price)
        writer.write_timestamp("placed", WHEN)
        writer.write_array_of_nullable_boolean("flags", [True, None])
        writer.write_compact("customer", Customer())


class Customer:
    """Whoever ordered."""


class CustomerSerializer(CompactSerializer):
    def read(self, reader):
        raise NotImplementedError

    def write(self, writer, customer) -> None:
        writer.write_string("name", "Ada")
        writer.write_date("born", WHEN.date())

    def get_type_name(self) -> str:
        return "customer"

    def get_class(self):
        return Customer


class OrderPortable(Portable):
    def __init__(self, number: int = 0, version: int = 0) -> None:
        self.number, self.version = number, version

    def get_factory_id(self) -> int:
        return 2

    def get_class_id(self) -> int:
        return 1

    def get_class_version(self) -> int:
        return self.version

    def write_portable(self, writer) -> None:
        writer.write_int("number", self.number)
        if self.version:
            writer.write_string_array("tags", ["x", "y"])
            writer.write_timestamp_with_timezone(
                "placed", WHEN.replace(tzinfo=datetime.timezone.utc)
            )


SCHEMA = (
    "number BIGINT, price DECIMAL(10, 2), placed TIMESTAMP_NTZ, flags ARRAY<BOOLEAN>, "
    "customer STRUCT<name STRING, born DATE>"
)
COMPACT = {"value.format": "compact", "value.schema": SCHEMA}
FIRST = (1, Decimal("1.50"), None, None, None)
LATER = (2, None, WHEN, [True, None], ("Ada", WHEN.date()))


def writer(grid, *serializers: CompactSerializer) -> hazelcast.HazelcastClient:
    """A client of an application's, with serializers that the reader does not have."""
    return hazelcast.HazelcastClient(
        cluster_members=grid.addresses, compact_serializers=list(serializers)
    )


def put_orders(grid, name: str) -> None:
    """One of each version."""
    for serializer, key, order in (
        (OrderSerializer(), "a", Order(1, Decimal("1.5"))),
        (LaterSerializer(), "b", Order(2)),
    ):
        client = writer(grid, serializer, CustomerSerializer())
        client.get_map(name).blocking().set(key, order)
        client.shutdown()


def values_of(rows) -> dict:
    return {row.key: row.value and tuple(row.value) for row in rows}


def test_compact_values_of_several_versions_are_columns(
    spark, grid, hazelcast_client, tmp_path
) -> None:
    stored = new_map(hazelcast_client)
    put_orders(grid, stored.name)
    given = options_of(grid, stored, **COMPACT)
    rows = spark.read.format("eo-map").options(**given).load()
    assert values_of(rows.collect()) == {"a": FIRST, "b": LATER}
    assert [row.name for row in rows.select("value.customer.name").collect() if row.name] == ["Ada"]
    put_orders(grid, stored.name)
    stored.delete("a")
    found = all_of(run(spark, given, tmp_path))
    assert sorted(
        (row.key, row.event, row.value, row.old_value) for row in found if row.key == "a"
    ) == [
        ("a", "ADDED", FIRST, None),
        ("a", "REMOVED", None, FIRST),
        ("a", "UPDATED", FIRST, FIRST),
    ]
    assert [row.old_value for row in found if row.key == "b"] == [None, LATER]


def test_portable_keys_and_values_are_columns(spark, grid, hazelcast_client, tmp_path) -> None:
    stored = new_map(hazelcast_client)
    stored.put(OrderPortable(1), OrderPortable(10))
    stored.put(OrderPortable(2), OrderPortable(20, version=3))
    given = options_of(
        grid,
        stored,
        **{"key.format": "portable", "key.schema": "number INT", "value.format": "portable"},
        **{"value.schema": "placed STRING, tags ARRAY<STRING>, number BIGINT"},
    )
    expected = {1: (None, None, 10), 2: (WHEN.isoformat() + "+00:00", ["x", "y"], 20)}
    rows = spark.read.format("eo-map").options(**given).load().collect()
    assert {row.key.number: tuple(row.value) for row in rows} == expected
    found = all_of(run(spark, given, tmp_path))
    assert {row.key.number: tuple(row.value) for row in found} == expected


@pytest.mark.full
def test_a_side_input_of_compact_values(spark, grid, hazelcast_client, tmp_path) -> None:
    stored = new_map(hazelcast_client, "plain")
    put_orders(grid, stored.name)
    side = eo_kafka.SideInput(options_of(grid, stored, **COMPACT), str(tmp_path / "side"))
    joined = []

    def enrich(rows, batch) -> None:
        joined.extend(side.join(rows.select("key"), batch).collect())

    keys = new_map(hazelcast_client)
    keys.put_all({"a": "1", "b": "2", "c": "3"})
    stream = spark.readStream.format("eo-map").options(**options_of(grid, keys)).load()
    query = stream.writeStream.foreachBatch(enrich).trigger(availableNow=True)
    assert (
        query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
        .awaitTermination(60)
    )
    entries_of = {row.key: row.entry and tuple(row.entry) for row in joined}
    assert entries_of == {"a": FIRST, "b": LATER, "c": None}


def entries(grid, stored, reader: type, kind: str, schema: str, spark) -> list:
    given = options_of(grid, stored, **{"value.format": kind, "value.schema": schema})
    options = MapOptions.parse(given, streaming=False)
    fields = spark.createDataFrame([], schema).schema
    return [
        row
        for task in plan(options)
        for batch in read_entries(options, task, {"value": reader(fields)})
        for row in batch.to_pylist()
    ]


def test_a_value_that_does_not_fit_is_named_with_map_and_key(spark, grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    put_orders(grid, stored.name)
    at = hazelcast_client.partition_service.get_partition_id("b")
    with pytest.raises(SourceError) as refused:
        entries(grid, stored, CompactColumn, "compact", "placed BIGINT", spark)
    told = str(refused.value)
    assert f"An entry of partition {at} of map '{stored.name}'" in told
    assert "its key is 'b'" in told
    assert "$.placed is timestamp, which is not read as bigint" in told
    stored.put("c", OrderPortable(1))
    with pytest.raises(SourceError, match="its key is 'c'. It is of Hazelcast's type -1, and Comp"):
        entries(grid, stored, CompactColumn, "compact", "number BIGINT", spark)
    with pytest.raises(SourceError, match="of Hazelcast's type -55, and Portable is -1"):
        entries(grid, stored, PortableColumn, "portable", "number BIGINT", spark)


def test_the_way_out_that_text_names_is_one(spark, grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    put_orders(grid, stored.name)
    plain = MapOptions.parse(options_of(grid, stored), streaming=False)
    with pytest.raises(SourceError, match="'value.format' 'compact' and 'value.schema'"):
        for task in plan(plain):
            list(read_entries(plain, task))
    assert len(entries(grid, stored, CompactColumn, "compact", "number BIGINT", spark)) == 2


def test_the_cluster_tells_the_fields_of_a_compact_schema(grid, hazelcast_client) -> None:
    """What clients/hazelcast/internals.py takes the client's private codec for."""
    stored = new_map(hazelcast_client, "plain")
    client = writer(grid, OrderSerializer())
    client.get_map(stored.name).blocking().set("a", Order(1))
    (number,) = client._compact_schema_service._compact_serializer._id_to_schema
    found = internals.compact_schema(hazelcast_client, number).result()
    assert found == ("order", (("number", 9), ("price", 19)))
    assert internals.compact_schema(hazelcast_client, number + 1).result() is None
    client.shutdown()
