"""Protobuf columns with a real schema registry, beside Confluent's own clients."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, seed, settings
from test_protobuf import ALL, ROWS

import protobuf_files as pb
from eo_kafka.broker.registry import SchemaRegistry
from eo_kafka.formats.protobuf.codec import codec
from harness import committed, committed_messages, produce

AT = datetime(2026, 11, 21, 1, 2, 3, 4, timezone.utc)


def parcels():
    """A message that refers to one of another file, behind another of its own."""
    made = pb.file("shop/parcel.proto", "shop", "shop/order.proto")
    pb.add(made.message_type.add(name="Label"), "text", 1, "string")
    parcel = made.message_type.add(name="Parcel")
    pb.add(parcel, "order", 1, ".shop.Order")
    pb.add(parcel, "weight", 2, "uint64")
    return made


@pytest.fixture(scope="module")
def url():
    with SchemaRegistry() as registry:
        yield registry.url


@pytest.fixture
def given_options(broker, url, tmp_path):
    path = tmp_path / "parcels.pb"
    path.write_bytes(pb.set_of(pb.orders(), parcels()))
    return {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "schema.registry.url": url,
        "value.format": "protobuf",
        "value.schema.file": str(path),
        "value.message": "shop.Parcel",
    }


def parcel_class():
    pool = DescriptorPool()
    for file in (*FileDescriptorSet.FromString(pb.set_of()).file, pb.orders(), parcels()):
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Parcel"))


def test_with_a_registry_there_and_back_and_beside_confluents_own_clients(
    spark, broker, make_topic, url, given_options
):
    source, target = make_topic("parcels"), make_topic("heavy")
    client, of_value = SchemaRegistryClient({"url": url}), MessageField.VALUE
    made = parcel_class()
    write = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    values = []
    for n in range(3):
        parcel = made(weight=2**64 - 1 - n)
        parcel.order.id, parcel.order.name = n, f"ä{n}"
        parcel.order.at.FromDatetime(AT)
        parcel.order.lines.add(sku="x", count=2**32 - 1)
        values.append(write(parcel, SerializationContext(source, of_value)))
    number = client.get_latest_version(f"{source}-value").schema_id
    label = b"\0" + number.to_bytes(4, "big") + b"\0" + b"\n\1x"
    produce(broker.bootstrap_servers, source, [*values, label, b"no Protobuf"])

    rows = spark.read.format("eo-kafka").options(**given_options, subscribe=source)
    rows = rows.option("mode", "PERMISSIVE").load()
    bad = rows.where("_bad_record IS NOT NULL").select("_bad_record.reason")
    reasons = sorted(row.reason for row in bad.collect())
    assert f"another message of schema {number} (0), and no 'shop.Parcel'" in reasons[1]
    assert "value: it does not begin with a zero byte" in reasons[0]

    heavy = rows.where("value.order.id > 0").selectExpr(
        "named_struct('order', value.order, 'weight', value.weight - 1) AS value"
    )
    save = heavy.write.format("eo-kafka").mode("append").options(**given_options, topic=target)
    with pytest.raises(Exception, match=r"refused subject.*'schema.register' to true"):
        save.save()
    save.option("schema.register", "true").save()
    save.option("schema.register", "false").save()  # it is there now
    read = ProtobufDeserializer(made, {"use.deprecated.format": False}, client)
    context = SerializationContext(target, of_value)
    found = [
        read(message.value(), context)
        for message in committed_messages(broker.bootstrap_servers, target)
    ]
    assert sorted((one.order.id, one.order.name, one.weight) for one in found) == [
        (n, f"ä{n}", 2**64 - 2 - n) for n in (1, 1, 2, 2)
    ]
    assert {one.order.at.ToDatetime(timezone.utc) for one in found} == {AT}
    again = spark.read.format("eo-kafka").options(**given_options, subscribe=target).load()
    assert again.selectExpr("value.order.lines[0].count").distinct().head()[0] == 2**32 - 1


def test_keys_and_values_without_a_registry(spark, broker, make_topic):
    topic = make_topic("both")
    orders = pb.base64_of(pb.orders())
    both = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    for name, message in (("key", "shop.Line"), ("value", "shop.Order")):
        both |= {f"{name}.format": "protobuf", f"{name}.schema": orders, f"{name}.message": message}
    rows = spark.sql(
        "SELECT named_struct('sku', 'x', 'count', 1) AS key, named_struct('id', 5L, 'kind', 'PAID')"
        " AS value"
    )
    rows.write.format("eo-kafka").mode("append").options(**both, topic=topic).save()
    assert list(committed(broker.bootstrap_servers, topic)) == [b"\x08\x05\x30\x01"]
    found = spark.read.format("eo-kafka").options(**both, subscribe=topic).load()
    row = found.selectExpr("key.sku", "value.id", "value.kind", "value.at", "value.name").head()
    assert tuple(row) == ("x", 5, "PAID", None, None)

    wrong = spark.sql("SELECT named_struct('id', 'x', 'more', 1) AS value")
    with pytest.raises(Exception) as raised:
        wrong.write.format("eo-kafka").mode("append").options(
            **{**both, "guarantee": "perhaps"}, topic=topic
        ).save()
    for told in ("'value.id' must be bigint", "'value.more' is no field", "guarantee"):
        assert told in str(raised.value)


@pytest.mark.full
def test_all_kinds_of_fields_pass_through_spark_unchanged(spark, broker, make_topic):
    source, target = make_topic("in"), make_topic("out")
    values = []

    @seed(1)
    @settings(max_examples=25, database=None, deadline=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(ROWS)
    def collect(row):
        values.append(codec(ALL, "all.All").encode(row))

    collect()
    produce(broker.bootstrap_servers, source, values)
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "value.format": "protobuf",
        "value.schema": ALL,
        "value.message": "all.All",
    }
    rows = spark.read.format("eo-kafka").options(**options, subscribe=source).load()
    rows = rows.select("value").repartition(2)  # through Spark's own rows
    rows.write.format("eo-kafka").mode("append").options(**options, topic=target).save()
    assert committed(broker.bootstrap_servers, target) == Counter(values)


@pytest.mark.full
@pytest.mark.parametrize("given_to_sink", ["file", "base64"])
def test_a_file_that_goes_while_the_query_runs(spark, broker, make_topic, tmp_path, given_to_sink):
    """Spark makes the sink anew for each batch, and the source once."""
    source, target, path = make_topic("in"), make_topic("out"), tmp_path / "orders.pb"
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    options = {**kafka, "value.format": "protobuf", "value.message": "shop.Order"}
    by_file = {**options, "value.schema.file": str(path)}
    given = {**options, "value.schema": pb.base64_of(pb.orders())}

    def start():
        path.write_bytes(pb.set_of(pb.orders()))
        rows = spark.readStream.format("eo-kafka").options(**by_file, subscribe=source)
        rows = rows.option("startingOffsets", "earliest").load()
        writer = rows.select("value").writeStream.format("eo-kafka").option("topic", target)
        writer = writer.options(**(by_file if given_to_sink == "file" else given))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.option("jobName", f"gone-{source}").start()

    query = start()
    try:
        produce(broker.bootstrap_servers, source, [b"\x08\x01"])
        query.processAllAvailable()
        path.unlink()
        produce(broker.bootstrap_servers, source, [b"\x08\x02"])
        if given_to_sink == "file":
            with pytest.raises(Exception, match="cannot be read on the driver's machine"):
                query.processAllAvailable()
            query = start()
        query.processAllAvailable()
    finally:
        query.stop()
    assert committed(broker.bootstrap_servers, target) == Counter([b"\x08\x01", b"\x08\x02"])
