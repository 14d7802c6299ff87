"""A map of each backend, for tests of what both have in common."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer

from grid_fixtures import new_map
from harness import Copy

BACKENDS = ("hazelcast", "kafka")
COMPACTED = {"cleanup.policy": "compact"}
ADDED = {"hazelcast": "ADDED", "kafka": "UPDATED"}


FULL = pytest.mark.full
# Where the other backend's way is the Kafka source's or sink's, which has such a test of its own
KAFKA_IN_FULL = pytest.mark.parametrize(
    "a_map", ["hazelcast", pytest.param("kafka", marks=FULL)], indirect=True
)
HAZELCAST_IN_FULL = pytest.mark.parametrize(
    "a_map", [pytest.param("hazelcast", marks=FULL), "kafka"], indirect=True
)


class IMap:
    """One of Hazelcast's."""

    backend = "hazelcast"

    def __init__(self, members, client) -> None:
        self.members = members
        self.stored = new_map(client)
        self.name = self.stored.name

    def put_all(self, entries: dict[str, str]) -> None:
        self.stored.put_all(entries)

    def remove(self, key: str) -> None:
        self.stored.remove(key)

    def options(self, **more: str) -> dict[str, str]:
        """Of a reader."""
        given = {"backend": self.backend, "map": self.name}
        return {**given, "hazelcast.members": ",".join(self.members.addresses), **more}


class TopicMap:
    """A compacted topic."""

    backend = "kafka"

    def __init__(self, servers: str, make_topic, partitions: int = 2, **config: str) -> None:
        self.servers = servers
        self.name = make_topic("map", partitions, {**COMPACTED, **config})
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "linger.ms": 0,
            }
        )

    def put_all(self, entries: dict[str, str]) -> None:
        for key, value in entries.items():
            self.producer.produce(self.name, value.encode(), key.encode())
        assert self.producer.flush(30) == 0

    def remove(self, key: str) -> None:
        self.producer.produce(self.name, None, key.encode())
        assert self.producer.flush(30) == 0

    def options(self, **more: str) -> dict[str, str]:
        """Of a reader."""
        given = {"backend": self.backend, "map": self.name}
        return {**given, "kafka.bootstrap.servers": self.servers, **more}


@pytest.fixture(params=BACKENDS)
def a_map(request, broker, make_topic):
    """An empty one of each backend in turn."""
    if request.param == "kafka":
        return TopicMap(broker.bootstrap_servers, make_topic)
    return IMap(request.getfixturevalue("grid"), request.getfixturevalue("hazelcast_client"))


@pytest.fixture
def target(a_map, broker, make_topic, hazelcast_client):
    """An empty map of the same backend as `a_map`."""
    if a_map.backend == "kafka":
        return TopicMap(broker.bootstrap_servers, make_topic)
    return IMap(a_map.members, hazelcast_client)


def entries_of(spark, a_map, **more: str) -> dict[str, str]:
    """What the map holds, as text."""
    rows = spark.read.format("eo-map").options(**a_map.options(**more)).load().collect()
    found = {row.key: row.value for row in rows}
    assert len(found) == len(rows), "a key came twice"
    return found


def run(spark, source: dict[str, str], checkpoint) -> list[list]:
    """Read what there is, as batches of rows."""
    batches: list[list] = []
    query = (
        spark.readStream.format("eo-map")
        .options(**source)
        .load()
        .writeStream.foreachBatch(lambda rows, _: batches.append(rows.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return batches


def all_of(batches: list[list]) -> list:
    return [row for batch in batches for row in batch]


@dataclass
class MapCopy(Copy):
    """A copy of a map's events to a topic."""

    map_options: dict[str, str] | None = None
    key_of = staticmethod(lambda value: b"key %d" % (int(value) % 300))  # as `write` has them

    def as_job(self) -> dict[str, object]:
        return {
            **super().as_job(),
            "source": "eo-map",
            "source_options": {**(self.map_options or {}), **self.source_extra},
        }


@dataclass
class IntoMap(MapCopy):
    """A copy of a map's events into another map."""

    target: dict[str, str] | None = None

    def as_job(self) -> dict[str, object]:
        given = self.target or {}
        of_kafka = {
            "jobName": self.job_name,
            "kafka.transaction.timeout.ms": str(self.timeout_ms),
        }
        options = {
            **given,
            **(of_kafka if given["backend"] == "kafka" else {}),
            "checkpointLocation": str(self.checkpoint),
            **self.sink_extra,
        }
        return {**super().as_job(), "sink": "eo-map", "sink_options": options}


def map_copy(broker, make_topic, tmp_path, source: dict[str, str]) -> MapCopy:
    return MapCopy(
        servers=broker.bootstrap_servers,
        source_topic="none",
        sink_topic=make_topic("out", partitions=2),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{uuid.uuid4().hex[:6]}",
        map_options={**source, "maxEventsPerTrigger": "500"},
    )


def write(a_map, first: int, count: int) -> list[bytes]:
    """Entries whose values are their own numbers, so that each event is told from all others."""
    numbers = range(first, first + count)
    entries = {f"key {number % 300}": f"{number}" for number in numbers}
    a_map.put_all(entries)
    return sorted(value.encode() for value in entries.values())
