"""One scenario through every role, on Kafkas that are not configured like the tests' own: each
format, both commit modes, a restore, a map, the tools."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

import eo_kafka
from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker, cluster
from eo_kafka.broker.settings import free_port
from eo_kafka.tools import cli
from harness import Copy, Stateful, committed, produce
from map_backends import COMPACTED
from secure_broker import LISTENERS, PASSWORD, USER, Certificates, SecureBroker, properties

JSON = {"value.format": "json", "value.schema": "n BIGINT, pad STRING"}
AVRO = {
    "value.format": "avro",
    "value.schema": json.dumps(
        {
            "type": "record",
            "name": "Row",
            "fields": [
                {"name": "n", "type": ["null", "long"]},
                {"name": "pad", "type": ["null", "string"]},
            ],
        }
    ),
}
# More than `SMALL` bytes for each task's producer.
VALUES = [b'{"n":%d,"pad":"%s"}' % (number, b"x" * 300) for number in range(400)]
SMALL = 48 * 1024


class Place(NamedTuple):
    """A Kafka: where the tests reach it, and how the jobs do."""

    servers: str
    client: dict[str, str]


@contextmanager
def one(**settings: object) -> Iterator[Place]:
    with KafkaBroker(properties={n.replace("_", "."): v for n, v in settings.items()}) as broker:
        yield Place(broker.bootstrap_servers, {"bootstrap.servers": broker.bootstrap_servers})


@contextmanager
def three(folder: Path) -> Iterator[Place]:
    """As a company has it: replication 3, min.insync.replicas=2."""
    with cluster(3) as kafka:
        yield Place(kafka.bootstrap_servers, {"bootstrap.servers": kafka.bootstrap_servers})


@contextmanager
def many_partitions(folder: Path) -> Iterator[Place]:
    """What it makes unasked has six partitions; and times are the broker's, rows zstd."""
    given = {"num_partitions": 6, "compression_type": "zstd"}
    with one(**given, log_message_timestamp_type="LogAppendTime") as place:
        yield place


@contextmanager
def strict(folder: Path) -> Iterator[Place]:
    """SASL over TLS; nothing is made unasked; rows come in small requests."""
    made = Certificates(folder)
    ports = {name: free_port() for name in ("PLAINTEXT", "CONTROLLER", *LISTENERS)}
    more = {"auto.create.topics.enable": "false", "message.max.bytes": SMALL}
    given = {**properties(ports, made), **more}
    with KafkaBroker(port=ports["PLAINTEXT"], properties=given) as broker:
        client = SecureBroker(broker, ports, made).sasl("PLAIN", USER, PASSWORD)
        yield Place(broker.bootstrap_servers, {**client, "batch.size": str(SMALL // 2)})


@contextmanager
def as_it_comes(folder: Path) -> Iterator[Place]:
    """Kafka's defaults, num.partitions=1 and auto-creation among them."""
    with one() as place:
        yield place


PLACES = [
    pytest.param(many_partitions, marks=pytest.mark.full),
    strict,
    pytest.param(three, marks=pytest.mark.full),
    pytest.param(as_it_comes, marks=pytest.mark.full),  # all other tests run on it
]


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
def place(request, tmp_path) -> Iterator[Place]:
    folder = tmp_path / "certificates"
    folder.mkdir()
    with request.param(folder) as found:
        yield found


def test_every_role_works_on_this_kafka(place, spark, tmp_path):
    scene = Scene(place, spark, tmp_path)
    avro = scene.copy("avro", scene.source, JSON, {**AVRO, "commit": "idempotent"})
    back = scene.copy("json", avro, AVRO, JSON)
    assert committed(place.servers, back) == Counter(VALUES)
    raw = scene.batch(back)
    assert committed(place.servers, raw) == Counter(VALUES)
    scene.into_a_map(raw)
    job = scene.with_state_and_a_lost_disk()
    scene.tools(raw, job)


class Scene:
    """The steps, each a role. `tmp_path` has a folder for each query."""

    def __init__(self, place: Place, spark, tmp_path: Path) -> None:
        self.place, self.spark, self.folder = place, spark, tmp_path
        self.make_topic = topic_maker(place.servers)
        self.kafka = {f"kafka.{name}": value for name, value in place.client.items()}
        # The tests' own producer sends larger batches than the broker takes for other topics.
        self.source = self.make_topic("in", 2, {"max.message.bytes": "1000000"})
        produce(place.servers, self.source, VALUES)

    def job(self, kind: type[Copy], name: str, source: str, reads: dict, writes: dict) -> Copy:
        return kind(
            servers=self.place.servers,
            source_topic=source,
            sink_topic=self.make_topic(f"out-{name}", partitions=2),
            checkpoint=self.folder / name,
            job_name=f"{name}-{source}",
            per_batch=None,
            source_extra={**self.kafka, **reads},
            sink_extra={**self.kafka, **writes},
        )

    def copy(self, name: str, source: str, reads: dict[str, str], writes: dict[str, str]) -> str:
        job = self.job(Copy, name, source, reads, writes)
        job.run(self.spark)
        return job.sink_topic

    def batch(self, source: str) -> str:
        """Read and written as bytes."""
        target = self.make_topic("raw", partitions=2)
        rows = self.read("eo-kafka", subscribe=source).select("key", "value")
        writer = rows.write.format("eo-kafka").mode("append").options(**self.kafka)
        writer.option("topic", target).save()
        return target

    def read(self, form: str, **options: str):
        return self.spark.read.format(form).options(**self.kafka, **options).load()

    def into_a_map(self, source: str) -> None:
        """By foreach_batch, the numbers as keys."""
        name = self.make_topic("map", 2, COMPACTED)
        a_map = {"backend": "kafka", "map": name}
        write = eo_kafka.foreach_batch({**self.kafka, **a_map, "jobName": f"map-{source}"})
        rows = self.spark.readStream.format("eo-kafka").options(**self.kafka)
        rows = rows.option("subscribe", source).option("startingOffsets", "earliest").load()
        rows = rows.selectExpr("get_json_object(string(value), '$.n') key", "string(value) value")
        writer = rows.writeStream.foreachBatch(write).trigger(availableNow=True)
        writer.option("checkpointLocation", str(self.folder / "map")).start().awaitTermination()
        keys = {row.key for row in self.read("eo-map", **a_map).collect()}
        assert keys == {str(number) for number in range(len(VALUES))}

    def with_state_and_a_lost_disk(self) -> Stateful:
        source = self.make_topic("events", partitions=1)
        job = self.job(Stateful, "state", source, {}, {})
        job.operator = "deduplication"
        events = [
            json.dumps({"k": "k", "n": n // 2, "t": 1_000_000 + n // 2}).encode() for n in range(40)
        ]
        produce(self.place.servers, source, events[:21])  # the 21st comes again after the restore
        job.run(self.spark)
        shutil.rmtree(job.checkpoint)
        job.checkpoint = self.folder / "another disk"
        given = job.sink_options
        assert eo_kafka.restore(str(job.checkpoint), job.job_name, given, progress=False)
        produce(self.place.servers, source, events[21:])
        job.run(self.spark)
        found = committed(self.place.servers, job.sink_topic)
        assert sorted(json.loads(value)["n"] for value in found.elements()) == list(range(20))
        return job

    def tools(self, raw: str, job: Copy) -> None:
        config = self.folder / "client.properties"
        config.write_text("".join(f"{n}={v}\n" for n, v in self.place.client.items()))
        for words in (
            f"verify --input {self.source} --output {raw}",
            f"doctor --topic {raw} --job {job.job_name} --write",
            f"job show {job.job_name}",
            f"txn list --job {job.job_name}",
            f"snapshots list {job.job_name}",
            f"snapshots export {job.job_name} kept",
            f"snapshots verify {job.job_name} kept",
        ):
            assert cli.main([*words.split(), "--config", str(config)]) == 0, words
