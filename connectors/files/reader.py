"""Spark's reader of files: the batches up to a manifest, each whole, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...core.errors import OptionsError, SourceError
from ...core.options import OptionReader
from ...sinks.files.options import PATH, path_of
from ...sinks.targets.custom import told
from ...targets.files.formats import read
from ...targets.files.home import Home, Shown, home_of
from ...targets.files.manifest import DataFile, Manifest, misread, staged_name
from ..one_build import OneBuild
from ..plain_errors import plain_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TASK_BYTES = 128 << 20
OPEN_BYTES = 4 << 20  # what opening a file costs, in bytes read meanwhile: as Spark's


@dataclass
class FilesTask(InputPartition):
    """What one task reads."""

    files: Sequence[Shown]


def columns(given: Mapping[str, str]) -> StructType:
    """Of all rows that are there. Raises OptionsError, SourceError."""
    from pyspark.sql.types import StructType

    home = _home(given)
    newest = _newest(home)
    if not newest.schema:
        raise SourceError(
            f"{home.place} has no row yet, so what its columns are is not known. Say them: "
            ".schema(...)."
        )
    return StructType.fromJson(json.loads(newest.schema))


@plain_errors
class FilesReader(OneBuild, DataSourceReader):
    """One `load()`."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._home = _home(given)
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Driver, once a `load()`: the files of all batches that are shown now."""
        newest = _newest(self._home)
        # Not: null, or rounded, without a word
        if problems := misread(newest.schema, self._schema.json()):
            raise OptionsError(problems)
        with told(self._home.place):
            found = sorted(self._home.shown(newest))
        tasks: list[list[Shown]] = [[]]
        size = 0
        for one in found:
            if size + one.bytes > TASK_BYTES and tasks[-1]:
                tasks.append([])
                size = 0
            tasks[-1].append(one)
            size += one.bytes + OPEN_BYTES
        return [FilesTask(files) for files in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Executor, once an attempt of a task."""
        assert isinstance(partition, FilesTask)
        for shown in partition.files:
            rows = 0
            with told(self._home.place):
                for batch in read(shown.file, self._home.read(shown), self._schema):
                    rows += batch.num_rows
                    yield batch
            # Of JSON and CSV that were cut nothing else tells
            if staged_name(shown.file) and rows != (wanted := DataFile(*shown[1:]).rows):
                raise SourceError(
                    f"{shown.file} of batch {shown.sequence} in {self._home.place} has {rows} rows "
                    f"of {wanted}: somebody changed it, or a copy was cut. Restore it."
                )


def _home(given: Mapping[str, str]) -> Home:
    reader = OptionReader(given)
    path = path_of(reader)
    if "paths" in reader:
        reader.problem("load() takes one path here.")
    reader.check_names([PATH.name])
    reader.finish()
    return home_of(path)


def _newest(home: Home) -> Manifest:
    """Raises SourceError where there is none: a wrong path, or a disk that is not there, would look
    like a table without rows."""
    with told(home.place):
        newest = home.newest()
    if newest is None:
        raise SourceError(
            f"{home.place} has no batch of eo-kafka: none was written yet, it is another path than "
            "the job writes, its disk is not mounted, or its manifest was removed. Restore all of "
            "it from one copy, then."
        )
    return newest
