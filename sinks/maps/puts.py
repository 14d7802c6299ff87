"""Writes rows into an IMap. On an executor, once a task attempt.

Entries are put as the rows come: they are visible at once, a batch that runs again writes them
again, and the map is the same then if its keys and values are.
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Any

from ...clients.hazelcast.client import client, explained
from ...core import librdkafka
from ...core.crash_points import crash_point
from ...core.digest import Digest
from ...core.errors import EoKafkaError, SinkError, WriteFailed, cut
from ..rows.fast import row_digest
from .expiry import check_kept
from .marker import MAP as MARKERS
from .marker import Marker, Markers
from .objects import Entries, keys_of, pairs_of
from .options import KEEP, NEWEST, REPLACE, MapSinkOptions
from .placing import check_placed
from .requests import put_all, requests_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
_IN_FLIGHT = 256
_ATTEMPTS = 20


@dataclass(frozen=True)
class MapReport:
    """What one task wrote: of which query, how many rows, and the digest of their keys."""

    query: str | None
    rows: int
    keys: str


def write(
    options: MapSinkOptions,
    batches: Iterator[pa.RecordBatch],
    query: str | None = None,
    batch: int | None = None,
) -> MapReport:
    """Put or remove every row's key; of rows with the same key the last one counts. `batches` have
    a key and a value, null to remove. `query` and `batch` are of a stream's.

    Raises WriteFailed and ReadTimeout (Spark tries again), Fenced, SinkError, EnvironmentRefused.
    """
    check_placed(options.hazelcast, options.map)
    markers = None if query is None else Markers(options, query)
    writer = _Writer(options)

    def written() -> Iterator[pa.RecordBatch]:
        for found in batches:
            for first in range(0, found.num_rows, options.put_size):
                if markers is not None and batch is not None:
                    _explained(options, partial(markers.check, batch))
                crash_point("map.before_put")
                piece = found.slice(first, options.put_size)
                _explained(options, partial(writer.put, piece))
                crash_point("map.after_put")
            yield _keys_of(found)

    rows, digest = row_digest(written(), options.map)
    return MapReport(query, rows, digest)


def commit(options: MapSinkOptions, reports: Sequence[MapReport], batch: int) -> None:
    """Say that a stream's batch is written. Driver, once a batch, or again after a failure.

    Raises Fenced, WriteFailed, SinkError if it was written before with other keys,
    EnvironmentRefused if the members would not remember it.
    """
    queries = {report.query for report in reports}
    if not queries:
        return  # a batch without a task
    (query,) = queries
    if query is None:
        raise SinkError("The tasks of a stream were not told which query they belong to.")
    digest = Digest()
    for report in reports:
        digest.merge(Digest.of(report.rows, report.keys))
    marker = Marker(batch, digest.rows, digest.text())
    check_kept(options.hazelcast, MARKERS)
    _explained(options, lambda: Markers(options, query).advance(marker))
    crash_point("map.committed")


def _explained(options: MapSinkOptions, request: Callable[[], None]) -> None:
    try:
        request()
    except EoKafkaError:
        raise
    except Exception as error:
        said = explained(error, options.map, options.hazelcast)
        raise WriteFailed(f"{said} What was written will be written again.") from None


class _Writer:
    def __init__(self, options: MapSinkOptions) -> None:
        self._options = options
        self._client = client(options.hazelcast)
        self._map = self._client.get_map(options.map).blocking()
        self._pipelined = self._client.get_map(options.map)

    def put(self, rows: pa.RecordBatch) -> None:
        missing = librdkafka.available()  # compiled loops need what it needs
        if self._options.on_conflict == REPLACE and missing is None:
            self._put_requests(rows)
            return
        if missing is not None:
            _warn(missing)
        self._put_objects(rows)

    def _put_requests(self, rows: pa.RecordBatch) -> None:
        count = self._client.partition_service.get_partition_count()
        asked = requests_of(self._options.map, rows, self._options.json, count)
        removed = keys_of(self._client, asked.removed)
        self._remove(removed)
        # One a partition and all at once, as the client's put_all; the next rows come after them
        puts = [put_all(self._client, *put) for put in asked.puts]
        for put in puts:
            put.result()

    def _put_objects(self, rows: pa.RecordBatch) -> None:
        pairs = pairs_of(self._client, rows, self._options.json)
        if self._options.on_conflict == KEEP:
            self._put_absent(pairs)
        elif self._options.on_conflict == NEWEST:
            self._put_newest(self._newest_of(pairs))
        else:
            entries = dict(pairs)
            self._remove(key for key, one in entries.items() if one is None)
            self._map.put_all({key: one for key, one in entries.items() if one is not None})

    def _remove(self, keys: Iterable[Any]) -> None:
        self._wait(self._pipelined.delete(key) for key in keys)

    def _put_absent(self, pairs: Iterator[tuple[Any, Any]]) -> None:
        """As if one row came after the other: of a key the first one stays, after a removal the
        next."""
        entries: Entries = {}
        removed = set()
        for key, value in pairs:
            if value is None:
                removed.add(key)
            if value is None or entries.get(key) is None:
                entries[key] = value
        self._remove(removed)
        there = ((key, one) for key, one in entries.items() if one is not None)
        self._wait(self._pipelined.put_if_absent(key, one) for key, one in there)

    def _newest_of(self, pairs: Iterator[tuple[Any, Any]]) -> Entries:
        """Of each key the newest. Raises SinkError for a removal."""
        entries: Entries = {}
        for key, value in pairs:
            if value is None:
                raise SinkError(
                    f"A row has no value, key {cut(key)}: it would remove the key, and with "
                    "'onConflict' 'newest' an older row would bring it back. Filter such rows, or "
                    "put an entry that says that it is gone."
                )
            if key not in entries or self._version(key, value) > self._version(key, entries[key]):
                entries[key] = value
        return entries

    def _wait(self, asked: Iterator[Any]) -> None:
        """Some requests under way at a time."""
        under_way: list[Any] = []
        for future in asked:
            under_way.append(future)
            if len(under_way) == _IN_FLIGHT:
                for one in under_way:
                    one.result()
                under_way.clear()
        for one in under_way:
            one.result()

    def _put_newest(self, entries: Entries) -> None:
        """Each entry, unless the map has one that is as new: a request takes effect only if the
        entry still is the one that was compared with, otherwise it is compared again."""
        for _ in range(_ATTEMPTS):
            if not entries:
                return
            known = self._known(list(entries))
            asked: dict[Any, Any] = {}
            for key, value in entries.items():
                old = known.get(key)
                version = self._version(key, value)
                if old is None:
                    asked[key] = self._pipelined.put_if_absent(key, value)
                elif version > self._version(key, old):
                    asked[key] = self._pipelined.replace_if_same(key, old, value)
            # put_if_absent answers None where it put, replace_if_same true
            entries = {
                key: entries[key]
                for key, future in asked.items()
                if future.result() not in (None, True)
            }
        raise WriteFailed(
            f"{len(entries)} entries of {self._options.place} were changed by others {_ATTEMPTS} "
            "times in a row while they were compared."
        )

    def _known(self, keys: Sequence[Any]) -> Entries:
        """What the map has of them. Keys that are bytes are asked for one by one: `get_all` makes a
        dictionary of them as bytearrays, which can be no keys of one."""
        if all(isinstance(key, str) for key in keys):
            found: Entries = self._map.get_all(set(keys))
            return found
        asked = {key: self._pipelined.get(key) for key in keys}
        return {key: one.result() for key, one in asked.items()}

    def _version(self, key: Any, value: Any) -> int | Decimal:
        field = self._options.version_field
        try:
            text = value.to_string()
            # Doubles would make one of two neighbours; NaN is none of JSON's numbers
            found = json.loads(text, parse_float=_exact, parse_constant=str)[field]
            if isinstance(found, bool) or not isinstance(found, int | Decimal):
                raise TypeError
        except (AttributeError, LookupError, TypeError, ValueError):
            raise SinkError(
                f"An entry of {self._options.place} has no number in field '{field}' of a JSON "
                f"object, so nobody can say which is newer: key {cut(key)}."
            ) from None
        return found


def _exact(number: str) -> Decimal | None:
    try:
        return Decimal(number)
    except InvalidOperation:  # its exponent has too many digits
        return None


@functools.cache
def _warn(reason: str) -> None:
    log.warning("Entries are put as objects, several times slower than possible: %s.", reason)


def _keys_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    key = rows.column("key")
    return pa.record_batch([key, pa.nulls(len(key), pa.binary())], names=["key", "value"])
