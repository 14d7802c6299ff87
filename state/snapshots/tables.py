"""A job's snapshots as rows for `format("eo-state")`. Only reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from .search import SnapshotSearch, snapshots

Row = tuple[Any, ...]


class Table(NamedTuple):
    """Columns as DDL, and the rows of a job's snapshot of a given name."""

    schema: str
    rows: Callable[[str, str, Mapping[str, str]], Iterator[Row]]


def _snapshots(job: str, _: str, options: Mapping[str, str]) -> Iterator[Row]:
    for name, found in snapshots(job, options).items():
        if found is None:
            yield name, False, None, None, None, None, None, None
            continue
        head = found.head
        made = datetime.fromtimestamp(head.made_ms / 1000, timezone.utc)
        yield name, True, head.batch, made, head.query, head.files, head.size, found.topic


def _files(job: str, name: str, options: Mapping[str, str]) -> Iterator[Row]:
    search = SnapshotSearch(job, options)
    for path, entry in sorted(search.manifest(search.of(name)).files.items()):
        yield path, entry.blob.size, entry.blob.digest


def _operators(job: str, name: str, options: Mapping[str, str]) -> Iterator[Row]:
    search = SnapshotSearch(job, options)
    found = search.of(name)
    for one in search.operators(found, search.manifest(found)):
        yield one.id, one.name, one.partitions, list(one.stores)


def _offsets(job: str, name: str, options: Mapping[str, str]) -> Iterator[Row]:
    search = SnapshotSearch(job, options)
    found = search.of(name)
    for number, line in enumerate(search.offsets(found, search.manifest(found))):
        yield number, _tidy(line)


def _tidy(line: str) -> str:
    """The ends of a source in one way of writing; those that are no JSON as they are."""
    try:
        return json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"))
    except ValueError:
        return line


TABLES = {
    "snapshots": Table(
        "name STRING, finished BOOLEAN, batch LONG, made TIMESTAMP, query STRING, files LONG, "
        "bytes LONG, topic STRING",
        _snapshots,
    ),
    "files": Table("path STRING, bytes LONG, digest STRING", _files),
    "operators": Table(
        "operator INT, name STRING, partitions INT, stores ARRAY<STRING>", _operators
    ),
    "offsets": Table("source INT, offsets STRING", _offsets),
}
