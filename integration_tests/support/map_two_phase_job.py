"""A job that writes a map in two phases, run by the sink's own code in the test's process: what
Spark would add is who calls it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from eo_kafka.clients.hazelcast.internals import journal_bounds, read_journal, to_object
from eo_kafka.sinks.maps import two_phase as map_two_phase
from eo_kafka.sinks.maps.staging import CHUNK_ROWS
from eo_kafka.sinks.maps.two_phase_options import read_two_phase
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sources.maps.columns import as_text, events
from eo_kafka.testing.processes import CrashPoints, killed_at_last
from grid_fixtures import new_map

QUERY = "7d3ae3b8-0000-4000-8000-000000000002"
COLUMNS = [("key", "string"), ("value", "string")]
TASKS = 2
ADDING = {"onConflict": "merge", "mergeFunction": "map_two_phase_job:added"}
ROWS = 2 * CHUNK_ROWS + 10  # of a task: three chunks


@dataclass
class MapJob:
    """Batches of two tasks; each batch removes a few entries of the one before."""

    given: dict[str, str]
    rows_of_task: int = ROWS
    reports: list = field(default_factory=list)
    query: str = QUERY

    @property
    def options(self):
        return read_two_phase(self.given, COLUMNS)[0]

    def entries(self, batch: int, partition: int) -> dict[str, str | None]:
        """The same whoever writes the batch."""
        found: dict[str, str | None] = {
            f"{partition}-{number}": f"{batch}" for number in range(self.rows_of_task)
        }
        for number in range(5 * batch):
            found[f"{partition}-{number}"] = None
        return found

    def prepare(self, batch: int, *, attempt: int = 0, other: str = "") -> None:
        """S1 to S5. `other` goes behind each value: a query that is not deterministic."""
        options, target, _ = read_two_phase(self.given, COLUMNS)
        plan = make_plan(options)
        self.reports = [
            map_two_phase.write(
                options,
                target,
                plan,
                TaskIdentity(self.query, batch, partition, partition + attempt),
                iter([_rows(self.entries(batch, partition), other)]),
            )
            for partition in range(TASKS)
        ]

    def commit(self, batch: int) -> None:
        """S6 to S8."""
        committer.commit(self.options, self.reports, batch)

    def run(self, *batches: int) -> None:
        for batch in batches:
            self.prepare(batch)
            self.commit(batch)

    def expected(self, *batches: int) -> dict[str, str]:
        """The map after these batches."""
        found: dict[str, str | None] = {}
        for batch in batches:
            for partition in range(TASKS):
                found |= self.entries(batch, partition)
        return {key: value for key, value in found.items() if value is not None}

    def sums(self, *batches: int) -> dict[str, str]:
        """The map after these batches if its values are added up by `added`."""
        found: dict[str, int] = {}
        for batch in batches:
            for partition in range(TASKS):
                for key, value in self.entries(batch, partition).items():
                    if value is None:
                        found.pop(key, None)
                    else:
                        found[key] = found.get(key, 0) + int(value)
        return {key: str(value) for key, value in found.items()}

    def events(self, *batches: int) -> Counter:
        """What a journal has after these batches, if nothing is put or removed twice."""
        changes: Counter = Counter()
        stored: dict[str, str] = {}
        for batch in batches:
            for partition in range(TASKS):
                for key, value in self.entries(batch, partition).items():
                    if value is not None:
                        changes[key, value] += 1
                        stored[key] = value
                    elif stored.pop(key, None) is not None:
                        changes[key, None] += 1
        return changes


def added(key: str, old: str | None, new: str) -> str:
    """A merge that gives something else when it is made twice."""
    return str(int(old or 0) + int(new))


def _rows(entries: dict[str, str | None], other: str) -> pa.RecordBatch:
    values = [None if value is None else value + other for value in entries.values()]
    columns = [pa.array(list(entries), pa.string()), pa.array(values, pa.string())]
    return pa.record_batch(columns, names=["key", "value"])


def journal_of(client, stored) -> Counter:
    """Keys and new values (None: removed) of all events of a map, however often."""
    found: Counter = Counter()

    def plain(value: bytes) -> object:
        return to_object(client, value)

    for partition in range(client.partition_service.get_partition_count()):
        oldest, newest = journal_bounds(client, stored.name, partition).result()
        while oldest <= newest:
            items = read_journal(client, stored.name, partition, oldest, 1000).result()
            changes = events(items.items)
            keys, values = (as_text(column, plain) for column in (changes.keys, changes.values))
            found.update(zip(keys.to_pylist(), values.to_pylist(), strict=True))
            oldest = items.last() + 1
    return found


def job_of(grid, stored, servers: str, **more: str) -> MapJob:
    """A job that writes the map `stored`."""
    of_kafka = {"kafka.bootstrap.servers": servers, "jobName": f"job-{stored.name}"}
    given = {"backend": "hazelcast", "map": stored.name, "commit": "two-phase"}
    members = {"hazelcast.members": ",".join(grid.addresses)}
    return MapJob({**given, **members, **of_kafka, **more})


@pytest.fixture
def written_map(hazelcast_client):
    """An empty map with a journal."""
    return new_map(hazelcast_client)


@pytest.fixture
def map_job(grid, written_map, broker) -> MapJob:
    """A job that writes it."""
    return job_of(grid, written_map, broker.bootstrap_servers)


@pytest.fixture
def staged(hazelcast_client, map_job):
    """The job's staging map."""
    return hazelcast_client.get_map(staging_of(map_job)).blocking()


def staging_of(job: MapJob) -> str:
    """The name of its staging map."""
    return f"__eo_kafka.{job.given['jobName']}.staged"


@contextmanager
def driver(job: MapJob, batch: int) -> Iterator[subprocess.Popen]:
    """A driver of one batch in a process of its own."""
    given = json.dumps([job.given, job.rows_of_task, batch])
    process = subprocess.Popen([sys.executable, __file__, given], stderr=subprocess.PIPE, text=True)
    with killed_at_last(process.pid):
        yield process


def kill_at(job: MapJob, points: CrashPoints, point: str, batch: int) -> None:
    """A driver of one batch, dead at a point."""
    points.arm(point, "kill")
    with driver(job, batch) as process:
        assert process.wait(120) == -signal.SIGKILL
    assert points.reached(point)


def assert_exact(job: MapJob, client, stored, *batches: int) -> None:
    """The map is what the batches make of it, and nothing was put or removed twice."""
    assert dict(stored.entry_set()) == job.expected(*batches)
    assert journal_of(client, stored) == job.events(*batches)


def assert_once(job: MapJob, client, stored, *batches: int) -> None:
    """The same, also of a job that adds up."""
    if "mergeFunction" not in job.given:
        assert_exact(job, client, stored, *batches)
        return
    assert dict(stored.entry_set()) == job.sums(*batches)
    assert set(journal_of(client, stored).values()) == {1}


def main() -> None:
    """Write a batch in a process of its own: a test may kill or stop it."""
    given, rows, batch = json.loads(sys.argv[1])
    MapJob(given, rows).run(batch)


if __name__ == "__main__":
    main()
