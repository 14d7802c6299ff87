"""Spark's filters of a batch of a map: the same rows whether they restrict what is read or not, and
fewer entries are fetched when they do."""

from __future__ import annotations

import json
import random
import uuid

import pytest
from hazelcast.core import HazelcastJsonValue

from eo_kafka.connectors.maps.filters import pushed
from eo_kafka.connectors.maps.format import MapDataSource
from eo_kafka.sources.maps.options import MapOptions
from grid_fixtures import new_map
from map_backends import KAFKA_IN_FULL
from test_map_stream import options_of

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SCHEMA = "id BIGINT, small TINYINT, name STRING, inner STRUCT<n: INT>"
TYPED = {"value.format": "json", "value.schema": SCHEMA}
CONDITIONS = [
    "value.id > 5",
    "value.id = 7 AND partition IN (1, 2, 3, 5, 8, 13, 21)",
    "value.id IN (1, 2, 9223372036854775807)",
    "value.id <= -1 OR value.name = 'ab'",
    "value.small >= 3 AND value.small < 9",
    "value.inner.n = 2",
    "value.name = 'ab'",
    "value.name IN ('ab', '5', 'true')",
    "value.name = '5'",
    "value.name > 'aa'",
    "value.id IS NULL",
    "NOT (value.id > 5)",
    "value.id <=> 7",
    "value IS NOT NULL AND value.id = 8",
    "key = 'key-7'",
    "key IN ('key-1', 'key-2', 'nobody has it', '12')",
    "key = '12'",
    "key = 'key-7' AND value.id > 100",
    "key LIKE 'key-1%' AND value.id < 9",
    "key = 'key-7' AND key = 'key-8'",
    "partition = 9999",
]


@pytest.fixture
def filtering(spark):
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.unset(PUSHDOWN)


def a_value(random_number: random.Random) -> str:
    made = {
        "id": random_number.choice([*range(-2, 10), None, 2**63 - 1]),
        "small": random_number.randrange(12),
        "name": random_number.choice(["ab", "aa", "", "AB", "5", 5, True, None, [1], "ab\u00df"]),
        "inner": random_number.choice([None, {}, {"n": 2}, {"n": 3}]),
    }
    return json.dumps({name: one for name, one in made.items() if random_number.random() < 0.9})


KEYS = [f"key-{number}" for number in range(200)] + [12, "12", HazelcastJsonValue('"key-7"')]


def rows_of(spark, given: dict[str, str], condition: str) -> list:
    read = spark.read.format("eo-map").options(**given).load()
    return sorted(map(str, read.where(condition).collect()))


@pytest.mark.full
def test_filters_change_nothing_but_what_is_fetched(
    spark, grid, hazelcast_client, filtering
) -> None:
    """JSON values, and text and bytes of JSON among them, in one map."""
    number = random.Random(uuid.uuid4().int)
    stored = new_map(hazelcast_client, "plain")
    ways = (HazelcastJsonValue, str, lambda text: bytearray(text.encode()))
    for key in KEYS:
        stored.set(key, number.choice(ways)(a_value(number)))
    stored.set(HazelcastJsonValue("key-7"), HazelcastJsonValue('{"id": 7}'))
    given = options_of(grid, stored, **TYPED)
    for condition in CONDITIONS:
        found = rows_of(spark, {**given, "pushFilters": "true"}, condition)
        spark.conf.set(PUSHDOWN, "false")
        assert found == rows_of(spark, given, condition), condition
        spark.conf.set(PUSHDOWN, "true")


@KAFKA_IN_FULL
def test_partitions_of_both_backends(spark, a_map, filtering) -> None:
    a_map.put_all({f"k{number}": f"v{number}" for number in range(300)})
    read = spark.read.format("eo-map").options(**a_map.options(pushFilters="true")).load()
    every = read.collect()
    assert len(every) == 300
    wanted = read.where("partition IN (0, 1)")
    assert wanted.rdd.getNumPartitions() == 2
    assert sorted(wanted.collect()) == sorted(row for row in every if row.partition in (0, 1))
    assert read.where("partition = -1").collect() == []


def fetched(grid, stored, spark, condition: str) -> list[str]:
    """The keys of the entries that members gave, by a plan that Spark's filters went into."""
    from pyspark.sql import datasource as of

    filters = {
        "id": [of.GreaterThan(("value", "id"), 190)],
        "two": [of.In(("value", "id"), (5, 500)), of.LessThan(("value", "id"), 6)],
        "key": [of.In(("key",), ("key-1", "key-2", "nobody has it"))],
    }[condition]
    options = MapOptions.parse(
        options_of(grid, stored, **TYPED, pushFilters="true"), streaming=False
    )
    schema = spark.read.format("eo-map").options(**options_of(grid, stored, **TYPED)).load().schema
    reader = MapDataSource(options_of(grid, stored, **TYPED, pushFilters="true")).reader(schema)
    assert reader.pushFilters(filters) == filters, "Spark looks again"
    tables = [batch for task in reader.partitions() for batch in reader.read(task)]
    keys = [key for batch in tables for key in batch.column("key").to_pylist()]
    assert pushed(filters, options, schema) == reader._pushed
    return sorted(keys)


@pytest.mark.parametrize(
    ("condition", "keys"),
    [
        ("id", [f"key-{number}" for number in range(191, 200)]),
        ("two", ["key-5"]),
        ("key", ["key-1", "key-2"]),
    ],
)
def test_members_give_no_more_than_what_is_asked_for(
    spark, grid, hazelcast_client, condition, keys
) -> None:
    stored = new_map(hazelcast_client, "plain")
    stored.put_all({f"key-{n}": HazelcastJsonValue(f'{{"id": {n}}}') for n in range(200)})
    assert fetched(grid, stored, spark, condition) == sorted(keys)


def test_spark_refuses_the_option_while_its_own_setting_is_off(
    spark, grid, hazelcast_client
) -> None:
    stored = new_map(hazelcast_client, "plain")
    rows = spark.read.format("eo-map").options(**options_of(grid, stored, pushFilters="true"))
    with pytest.raises(Exception, match="filterPushdown.enabled"):
        rows.load().collect()
