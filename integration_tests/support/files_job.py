"""A job that writes files, run by the sink's own code in the test's process, and what readers see
of them."""

from __future__ import annotations

import json
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from pyarrow import dataset
from pyspark.sql.types import LongType, StringType, StructType

from eo_kafka.formats.shared.arrow_types import arrow_schema
from eo_kafka.sinks.files.options import read_options
from eo_kafka.targets.files.formats import read
from eo_kafka.targets.files.home import home_of
from eo_kafka.targets.files.manifest import DataFile, successor
from eo_kafka.targets.files.target import FilesTarget
from target_job import TargetJob

REFERENCE = "eo_kafka.targets.files.target:FilesTarget"
ROWS = StructType().add("id", LongType()).add("word", StringType())
_SPARK = {"bigint": LongType(), "string": StringType()}


@dataclass
class FilesJob(TargetJob):
    """Batches of two tasks; `database` is the directory."""

    script: ClassVar[str] = __file__

    def read(self):
        schema = StructType()
        for name, kind in self.columns:
            schema.add(name, _SPARK[kind])
        return read_options(self.given, schema)

    def there(self) -> Counter:
        """What readers see that honour the manifest; with Parquet plain ones see the same."""
        return Counter(honest_rows(self.database))

    def plain(self) -> Counter:
        """What others see of Parquet files."""
        return Counter(plain_rows(self.database))


def settings_of(path: str, **more: str) -> dict[str, str]:
    """Of a target for rows of `ROWS`, in a directory that is made ready."""
    settings = {"path": path, "schema": ROWS.json(), **more}
    FilesTarget(settings).check()
    return settings


def honest_rows(path: str) -> list[tuple[object, ...]]:
    """As `format("eo-files")` reads them."""
    home = home_of(path)
    newest = home.newest()
    if newest is None:
        return []
    found: list[tuple[object, ...]] = []
    for one in home.shown(newest):
        for batch in read(one.file, home.read(one), ROWS):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


def plain_rows(path: str) -> list[tuple[object, ...]]:
    """As pyarrow reads a directory."""
    if not any(Path(path).glob("batch=*/*")):
        return []
    table = dataset.dataset(path, schema=arrow_schema(ROWS), format="parquet").to_table()
    return [tuple(row.values()) for row in table.to_pylist()]


def files_job(folder: Path, servers: str, **more: str) -> FilesJob:
    """One that writes into a new directory."""
    name = f"f{uuid.uuid4().hex[:8]}"
    given = {"path": str(folder / name), "jobName": f"job-{name}"}
    return FilesJob({**given, "kafka.bootstrap.servers": servers, **more}, given["path"])


def words(*ids: int) -> pa.Table:
    """Some rows."""
    return pa.table({"id": list(ids), "word": [f"é {n}\n" for n in ids]}, arrow_schema(ROWS))


def leave_unpublished(target: FilesTarget) -> None:
    """A batch with row 7 has its manifest, and its driver has died."""
    home, name = target._home, "eo-a-left"
    target.stage(name, 0, words(7))
    files = [DataFile(file, size) for file, size in home.staged().items() if file.startswith(name)]
    newest = home.newest()
    assert home.create(successor(newest, "eo-a", b"left", ROWS.json(), files), newest, "eo-a")


def main() -> None:
    """Write a batch in a process of its own: a test may kill or stop it."""
    given, place, batch = json.loads(sys.argv[1])
    FilesJob(given, place).run(batch)


if __name__ == "__main__":
    main()
