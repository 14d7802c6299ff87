"""A job that writes a target of one's own, run by the sink's own code in the test's process."""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import redis
from deltalake import DeltaTable

from eo_kafka.sinks.targets import writing
from eo_kafka.sinks.targets.options import read_options
from table_job import TableJob
from target_places import DELTA, REDIS, SCHEMA, RedisServer, delta_rows


@dataclass
class TargetJob(TableJob):
    """Batches of two tasks; `database` is where tests read what is shown: a URL or a path."""

    script: ClassVar[str] = __file__
    writing: ClassVar[ModuleType] = writing

    def read(self):
        names = [name for name, _ in self.columns]
        return read_options(self.given, names, self.columns)

    def there(self) -> Counter:
        if "target.path" in self.given:
            return Counter(delta_rows(self.database))
        client = redis.Redis.from_url(self.database)
        rows = client.lrange(self.given["target.list"], 0, -1)
        return Counter(tuple(json.loads(row).values()) for row in rows)

    def left(self) -> list[str]:
        """What is staged."""
        options, target = self.read()
        from eo_kafka.sinks.targets.custom import writer_of

        return sorted(target.made().staged(writer_of(options.job_and_ledger[0], options.sink)))


def redis_job(server: RedisServer, servers: str, **more: str) -> TargetJob:
    """One that appends to a new list."""
    name = f"l{uuid.uuid4().hex[:8]}"
    given = {"target": REDIS, "target.url": server.url, "target.list": name}
    return _job(given, server.url, servers, name, more)


def delta_job(folder: Path, servers: str, **more: str) -> TargetJob:
    """One that appends to a new table."""
    name = f"d{uuid.uuid4().hex[:8]}"
    path = str(folder / name)
    DeltaTable.create(path, SCHEMA)
    return _job({"target": DELTA, "target.path": path}, path, servers, name, more)


def _job(
    given: dict[str, str], place: str, servers: str, name: str, more: dict[str, str]
) -> TargetJob:
    of_kafka = {"jobName": f"job-{name}", "kafka.bootstrap.servers": servers}
    return TargetJob({**given, **of_kafka, **more}, place)


def main() -> None:
    """Write a batch in a process of its own: a test may kill or stop it."""
    given, place, batch = json.loads(sys.argv[1])
    TargetJob(given, place).run(batch)


if __name__ == "__main__":
    main()
