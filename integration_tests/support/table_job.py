"""A job that writes a table, run by the sink's own code in the test's process: what Spark would add
is who calls it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import psycopg
import pyarrow as pa
import pytest

from eo_kafka.broker.postgres import Postgres
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.tables import writing
from eo_kafka.sinks.tables.options import read_table
from eo_kafka.testing.processes import CrashPoints, killed_at_last

QUERY = "7d3ae3b8-0000-4000-8000-000000000003"
COLUMNS = [("id", "bigint"), ("word", "string")]
OF_TOPIC = [("key", "string"), ("value", "string")]
TASKS = 2
ROWS = 50  # of a task


@dataclass
class TableJob:
    """Batches of two tasks; each row of each batch is told from all others."""

    given: dict[str, str]
    database: str
    reports: list = field(default_factory=list)

    @property
    def columns(self) -> list[tuple[str, str]]:
        more = [("op", "string")] if "operationColumn" in self.given else []
        return [*COLUMNS, *more, *(OF_TOPIC if "topic" in self.given else [])]

    script: ClassVar[str] = __file__
    writing: ClassVar[ModuleType] = writing

    @property
    def options(self):
        return self.read()[0]

    def read(self):
        """Options and target."""
        return read_table(self.given, self.columns)

    def rows(self, batch: int, partition: int) -> list[tuple[int, str, str]]:
        """The same whoever writes the batch: id, word, operation. With keys, each batch has the ids
        of the one before, and takes five of them away."""
        first = partition * 1000 if "keys" in self.given else batch * 10_000 + partition * 1000
        gone = 5 if "operationColumn" in self.given and batch else 0
        return [
            (first + n, f"{batch}, 'é'\n{n}", "delete" if n < gone else "upsert")
            for n in range(ROWS)
        ]

    def prepare(self, batch: int, *, attempt: int = 0, other: str = "") -> None:
        """S1 to S5. `other` goes behind each word: a query that is not deterministic."""
        options, target = self.read()
        plan = make_plan(options)
        place = self.given.get("checkpointlocation")
        self.reports = [
            self.writing.write(
                options,
                target,
                plan,
                TaskIdentity(QUERY, batch, partition, partition + attempt, checkpoint=place),
                iter([self._batch(self.rows(batch, partition), other)]),
            )
            for partition in range(TASKS)
        ]

    def _batch(self, rows: list[tuple[int, str, str]], other: str) -> pa.RecordBatch:
        ids, words = [one[0] for one in rows], [one[1] + other for one in rows]
        columns = {
            "id": pa.array(ids, pa.int64()),
            "word": pa.array(words, pa.string()),
            "op": pa.array([one[2] for one in rows], pa.string()),
            "key": pa.array(map(str, ids), pa.string()),
            "value": pa.array(words, pa.string()),
        }
        return pa.record_batch({name: columns[name] for name, _ in self.columns})

    def commit(self, batch: int) -> None:
        """S6 to S8."""
        committer.commit(self.options, self.reports, batch)

    def run(self, *batches: int) -> None:
        for batch in batches:
            self.prepare(batch)
            self.commit(batch)

    def expected(self, *batches: int) -> Counter:
        """The table after these batches."""
        if "keys" not in self.given:
            return Counter(self.sent(*batches))
        found: dict[int, str] = {}
        for batch in batches:
            for partition in range(TASKS):
                for key, word, operation in self.rows(batch, partition):
                    found[key] = word
                    if operation == "delete" and "operationColumn" in self.given:
                        del found[key]
        return Counter(found.items())

    def sent(self, *batches: int) -> Counter:
        """All rows of these batches."""
        return Counter(
            row[:2] for batch in batches for part in range(TASKS) for row in self.rows(batch, part)
        )

    def there(self) -> Counter:
        """What the table holds."""
        return Counter(self.ask(f"SELECT id, word FROM {self.given['table']}"))

    def ask(self, statement: str) -> list[tuple]:
        """Rows of an answer; none of what has no answer."""
        with psycopg.connect(self.database, autocommit=True) as connection:
            asked = connection.execute(statement)
            return asked.fetchall() if asked.description else []

    def prepared(self) -> list[str]:
        """The prepared transactions that hold the table, whoever's."""
        found = self.ask(
            "SELECT DISTINCT gid FROM pg_prepared_xacts p "
            "JOIN pg_locks mine ON mine.transactionid = p.transaction AND mine.granted "
            "JOIN pg_locks held USING (virtualtransaction) WHERE mine.pid IS NULL "
            f"AND held.pid IS NULL AND held.relation = '{self.given['table']}'::regclass"
        )
        return sorted(name for (name,) in found)

    def left(self) -> list[str]:
        """Staging tables that are there, of any job that staged for this table."""
        table = self.given["table"].partition(".")[0]
        found = self.ask(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            f"WHERE n.nspname = '{table}' AND c.relname LIKE 'eo_kafka_staged%' AND c.relkind = 'r'"
        )
        return sorted(name for (name,) in found)


def spark_runs(job: TableJob, folder: Path, batch: int) -> None:
    """The query's checkpoint, and what Spark has written there when a batch's tasks start."""
    for log, batches in (("offsets", batch + 1), ("commits", batch)):
        (folder / log).mkdir(parents=True, exist_ok=True)
        for number in range(batches):
            (folder / log / f"{number}").write_text(f'v1\n{{}}\n{{"in":{{"0":{number}}}}}')
    (folder / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    job.given["checkpointlocation"] = str(folder)


def new_table(url: str, more: str = "") -> str:
    """An empty one in a schema of its own."""
    schema = f"t{uuid.uuid4().hex[:8]}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.written (id bigint, word text {more})")
    return f"{schema}.written"


def job_of(url: str, servers: str, table: str, **more: str) -> TableJob:
    """A job that writes it."""
    job = f"job-{table}-{uuid.uuid4().hex[:4]}"
    given = {"url": url, "table": table, "jobName": job, "kafka.bootstrap.servers": servers}
    return TableJob({**given, **more}, url)


@pytest.fixture
def table_job(eo_postgres, broker) -> TableJob:
    """A job that appends to a new table."""
    url = eo_postgres.url
    return job_of(url, broker.bootstrap_servers, new_table(url))


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server that a test may kill."""
    with Postgres() as server:
        yield server


@contextmanager
def driver(job: TableJob, batch: int) -> Iterator[subprocess.Popen]:
    """A driver of one batch in a process of its own."""
    given = json.dumps([job.given, job.database, batch])
    process = subprocess.Popen(
        [sys.executable, job.script, given], stderr=subprocess.PIPE, text=True
    )
    with killed_at_last(process.pid):
        yield process


def kill_at(job: TableJob, points: CrashPoints, point: str, batch: int) -> None:
    """A driver of one batch, dead at a point."""
    points.arm(point, "kill")
    with driver(job, batch) as process:
        assert process.wait(120) == -signal.SIGKILL
    assert points.reached(point)


def overtaken(job: TableJob, points: CrashPoints, point: str) -> str:
    """A driver of batch 1, paused at a point until another one has written batches 1 and 2; what it
    says when it goes on and fails."""
    job.run(0)
    points.arm(point, "stop")
    with driver(job, 1) as process:
        assert points.wait_reached(point) == process.pid
        job.run(1, 2)
        assert job.there() == job.expected(0, 1, 2)
        os.kill(process.pid, signal.SIGCONT)
        _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert job.there() == job.expected(0, 1, 2)
    return str(said)


class CuttingProxy:
    """Forwards to a server; a connection in which a client sends `word`, after so many others that
    did, is cut once the server has answered it: the answer is lost."""

    def __init__(self, port: int, word: bytes, after: int) -> None:
        self._target, self._word, self.left = port, word, after
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for pump in (self._requests, self._answers):
                    threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(1 << 16):
                self.left -= self._word in data
                if self.left < 0 and not self.cuts:
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)  # nothing is forwarded any more
                    server.sendall(data)
                    server.recv(1 << 16)
                    break
                server.sendall(data)
        self._end(client, server)

    def _answers(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        self._end(client, server)

    def _end(self, *both: socket.socket) -> None:
        for one in both:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def main() -> None:
    """Write a batch in a process of its own: a test may kill or stop it."""
    given, database, batch = json.loads(sys.argv[1])
    TableJob(given, database).run(batch)


if __name__ == "__main__":
    main()
