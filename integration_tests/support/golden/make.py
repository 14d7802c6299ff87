"""Writes the golden files: what jobs of the installed version leave in Kafka and on disk.

Run it in a checkout of the version to be kept, with that version installed in its environment:

    golden=$PWD/integration_tests/support/golden
    git worktree add /tmp/old VERSION && make -C /tmp/old setup
    cp -r $golden /tmp/old/integration_tests/support/    # before support/: integration_tests/
    cd /tmp/old && export PYSPARK_PYTHON=$PWD/.venv/bin/python
    .venv/bin/python integration_tests/support/golden/make.py VERSION $golden

Names of jobs may follow: then only those are made.

Each job has a broker of its own, whose log files are read: they alone say which records belong to
which transaction, and where the markers stand.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka.record.memory_records import MemoryRecords

import eo_kafka
from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker
from hand_made_job import HandMadeJob
from harness import Copy, CrashPoints, Stateful, control_plane, kill_driver_at, produce
from map_backends import IntoMap, TopicMap

KAFKAS_OWN = ("__consumer_offsets", "__transaction_state")
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
# Or the logs would hold what only a client with the codec's library can read.
BROKER = {"compression.type": "uncompressed"}
# Which settings of a topic a ledger must have kept; the rest are the broker's.
TOPIC_SETTING = 1  # ConfigSource.DYNAMIC_TOPIC_CONFIG


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def events(start: int, end: int) -> list[bytes]:
    """Half a second of event time an event, for the windows of stateful_job.py."""
    return [
        json.dumps({"k": f"k{n % 3}", "n": n, "t": 1_000_000 + n // 2}).encode()
        for n in range(start, end)
    ]


@dataclass
class Place:
    """Where a job is made: a broker and a folder, both of its own."""

    broker: KafkaBroker
    folder: Path
    points: CrashPoints

    @property
    def servers(self) -> str:
        return self.broker.bootstrap_servers

    def copy(self, kind: type[Copy], name: str, **settings: Any) -> Copy:
        make = topic_maker(self.servers)
        return kind(
            servers=self.servers,
            source_topic=make(f"golden-{name}-in", partitions=2),
            sink_topic=make(f"golden-{name}-out", partitions=2),
            checkpoint=self.folder / "checkpoint",
            job_name=f"golden-{name}",
            timeout_ms=600_000,
            **settings,
        )

    def run(self, job: Copy) -> None:
        log = self.folder / "log"
        assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]

    def killed(self, job: Copy, point: str) -> None:
        self.points.clear()
        kill_driver_at(job, self.points, point, self.folder / "log")


def interrupted(place: Place, name: str, point: str, **settings: Any) -> Copy:
    """Batch 0 is DONE, batch 1 is where the driver was killed, and there is more to read."""
    job = place.copy(Copy, name, per_batch=None, tasks=3, **settings)
    for values, action in ((numbers(0, 60), place.run), (numbers(60, 150), None)):
        produce(place.servers, job.source_topic, values)
        if action:
            action(job)
    place.killed(job, point)
    produce(place.servers, job.source_topic, numbers(150, 180))
    return job


def decided(place: Place) -> Copy:
    return interrupted(place, "decided", "S6.after_decision")


def prepared(place: Place) -> Copy:
    return interrupted(place, "prepared", "S6.before_decision")


def torn(place: Place) -> Copy:
    """The first of three tasks has committed by itself; the others may have got anywhere."""
    extra = {"commit": "idempotent"}
    return interrupted(place, "torn", "one-phase.committed", sink_extra=extra)


def stateful(place: Place) -> Copy:
    """A snapshot with each batch; the newest is in a decision whose batch is not DONE."""
    job = place.copy(Stateful, "stateful", per_batch=None, conf={NO_DATA: "false"})
    produce(place.servers, job.source_topic, events(0, 60))
    place.run(job)
    produce(place.servers, job.source_topic, events(60, 120))
    place.killed(job, "S6.after_decision")
    produce(place.servers, job.source_topic, events(120, 180))
    return job


def interval(place: Place) -> Copy:
    """One snapshot, and batches after it of which only the ends are recorded."""
    job = place.copy(
        Stateful,
        "interval",
        per_batch=30,
        conf={NO_DATA: "false"},
        sink_extra={"snapshotInterval": "1 hour"},
        source_extra={"jobName": "golden-interval"},
    )
    produce(place.servers, job.source_topic, events(0, 120))
    place.run(job)
    produce(place.servers, job.source_topic, events(120, 180))
    return job


def map_topic(place: Place) -> IntoMap:
    """One map into another, both of them compacted topics; batch 1 was decided."""
    make = topic_maker(place.servers)
    source, target = (TopicMap(place.servers, make) for _ in range(2))
    job = IntoMap(
        servers=place.servers,
        source_topic=source.name,
        sink_topic=target.name,
        checkpoint=place.folder / "checkpoint",
        job_name="golden-map_topic",
        timeout_ms=600_000,
        map_options=source.options(),
        target=target.options(),
    )
    change(source, 0, 60)
    place.run(job)
    change(source, 60, 150)
    place.killed(job, "S6.after_decision")
    change(source, 150, 180)
    return job


def change(a_map: TopicMap, start: int, end: int) -> None:
    """Puts, replacements and removals."""
    a_map.put_all({f"k{n % 40}": str(n) for n in range(start, end)})
    for n in range(start, end, 20):
        a_map.remove(f"k{n % 40}")


def exported(place: Place) -> HandMadeJob:
    """Three batches by the sink's own code, exported as 'before'."""
    topic = topic_maker(place.servers)("golden-exported-out")
    job = HandMadeJob(place.servers, topic, "golden-exported", place.folder / "checkpoint")
    job.run(0, 1, 2)
    eo_kafka.export_snapshot(job.name, "before", job.given)
    return job


JOBS: tuple[Callable[[Place], Copy | HandMadeJob], ...] = (
    decided,
    prepared,
    torn,
    stateful,
    interval,
    map_topic,
    exported,
)


def found_in(broker: KafkaBroker) -> dict[str, Any]:
    """Topics with their settings and all that is in their logs."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    names = sorted(set(admin.list_topics(timeout=30).topics) - set(KAFKAS_OWN))
    described = admin.describe_topics(TopicCollection(names))
    found = {}
    for name in names:
        topic = described[name].result(30)
        resource = ConfigResource(ResourceType.TOPIC, name)
        settings = admin.describe_configs([resource])[resource].result(30).values()
        with control_plane(broker.bootstrap_servers) as control:
            topic_id = control.topic_ids([name])[name]
        found[name] = {
            "id": topic_id,
            "settings": {one.name: one.value for one in settings if one.source == TOPIC_SETTING},
            "logs": [
                batches(broker.directory / "data" / f"{name}-{number}")
                for number in range(len(topic.partitions))
            ],
        }
    return found


def batches(folder: Path) -> list[dict[str, Any]]:
    """The batches of a partition: offset, producer, and records, or how a transaction ended."""
    (segment,) = folder.glob("*.log")
    read, found = MemoryRecords(segment.read_bytes()), []
    while read.has_next():
        batch = read.next_batch()
        one = {"offset": batch.base_offset, "producer": batch.producer_id}
        records = list(batch)
        if batch.is_control_batch:
            one["end"] = ("abort", "commit")[int.from_bytes(records[0].key[2:4], "big")]
        else:
            one["transactional"] = batch.is_transactional
            one["records"] = [[text(record.key), text(record.value)] for record in records]
        found.append(one)
    return found


def text(content: bytes | None) -> str | None:
    """Any bytes as text, one character each."""
    return None if content is None else bytes(content).decode("latin-1")


def main() -> None:
    commit, target, wanted = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    points = CrashPoints(Path(tempfile.mkdtemp()))
    os.environ["EO_KAFKA_CRASH_POINTS"] = str(points.folder)  # the drivers' workers inherit it
    for make in (job for job in JOBS if not wanted or job.__name__ in wanted):
        with tempfile.TemporaryDirectory() as folder, KafkaBroker(properties=BROKER) as broker:
            place = Place(broker, Path(folder), points)
            job = make(place)
            with control_plane(broker.bootstrap_servers) as control:
                found = control.open_transactions(".*", lambda _: True)
            checkpoint = place.folder / "checkpoint"
            golden = {
                "made": {"from": commit, "eo-kafka": eo_kafka.__version__, "kafka": broker.version},
                "job": {name: value for name, value in asdict(job).items() if plain(value)},
                "open": {str(one.producer_id): one.transactional_id for one in found},
                "topics": found_in(broker),
                "checkpoint": {
                    str(path.relative_to(checkpoint)): text(path.read_bytes())
                    for path in sorted(checkpoint.rglob("*"))
                    if path.is_file()
                },
            }
        content = json.dumps(golden, indent=0).encode()
        path = target / f"{make.__name__}.json.gz"
        path.write_bytes(gzip.compress(content, mtime=0))
        print(f"{path}: {path.stat().st_size} bytes, open: {golden['open']}")


def plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | dict)


if __name__ == "__main__":
    main()
