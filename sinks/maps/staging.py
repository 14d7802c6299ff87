"""Stages rows for a map in a map of the job's own, until the batch's decision.

An entry is a chunk: up to two hundred rows of one task, as Arrow's bytes, under a key that says
whose they are. Nobody overwrites one: each attempt of a task has keys of its own. Chunks are as
durable as the members' maps are, in memory with their backups; which of them are there is asked
before the decision, and before anything is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ...clients.hazelcast import internals
from ...clients.hazelcast.client import HazelcastSettings, answer, client
from ...core.crash_points import crash_point
from ...core.errors import LedgerError, cut
from ...core.transaction import Participant, Staged

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_ROWS = 200  # applied in one transaction; who reads their keys meanwhile waits for it
_CHUNK_BYTES = 1 << 20
_IN_FLIGHT, _CHUNKS_IN_FLIGHT = 64, 8
# In the chunk's schema: its values are to become JSON values; which function merges them
_JSON, _MERGE = b"eo-kafka.json", b"eo-kafka.merge"
K = TypeVar("K", bound="_Key")


@dataclass(frozen=True)
class MapTarget:
    """Which map rows go into once they are decided, and how. Pickled to the tasks; its repr shows
    no secrets. `fail_on_loss`: whether the query stops where entries are lost for good; `merge`:
    the function that makes an entry and a row one (sinks/maps/merge.py)."""

    map: str
    hazelcast: HazelcastSettings
    json: bool
    fail_on_loss: bool
    merge: str | None = None

    @property
    def place(self) -> str:
        """For sentences: which map."""
        return f"map '{self.map}' of {self.hazelcast.place}"


@dataclass(frozen=True)
class _Key:
    """Of an entry beside the map: a sink's name, and numbers."""

    sink: str

    def encode(self) -> str:
        """All fields in their order, with slashes between them."""
        return "/".join(map(str, vars(self).values()))

    @classmethod
    def decode(cls: type[K], text: object) -> K | None:
        """None for what is not such a key."""
        sink, *numbers = str(text).split("/")
        if len(numbers) != len(fields(cls)) - 1 or not all(map(str.isdecimal, numbers)):
            return None
        return cls(sink, *map(int, numbers))


@dataclass(frozen=True)
class ChunkKey(_Key):
    """Whose rows a chunk holds, and which of them."""

    generation: int
    batch: int
    round: int
    partition: int
    attempt: int
    chunk: int


@dataclass(frozen=True)
class RecordKey(_Key):
    """Whose record an entry beside the chunks is (sinks/maps/write_ahead.py): a driver's generation
    and a lane."""

    holder: int
    lane: int


def chunk_keys(sink: str, batch: int, part: Participant) -> list[ChunkKey]:
    """The keys of what `part` of a batch staged, in the order of its rows."""
    staged = part.staged
    if staged is None:
        return []
    whose = (sink, part.generation, batch, part.round, part.partition)
    return [ChunkKey(*whose, staged.attempt, chunk) for chunk in range(staged.chunks)]


class Staging:
    """The staged rows of one job. Its methods raise ReadTimeout, or what `explained` makes of an
    error of the members."""

    def __init__(self, target: MapTarget, job: str) -> None:
        self.target = target
        self.name = f"__eo_kafka.{job}.staged"
        self._client = client(target.hazelcast)
        self._map = self._client.get_map(self.name)

    @property
    def cluster(self) -> str:
        """The id of the cluster; another one once all members were started anew."""
        return internals.cluster_id(self._client)

    def missing(self, keys: Iterable[ChunkKey]) -> list[ChunkKey]:
        """Those that are not there. Driver, before a decision and before it is carried out."""
        wanted = list(keys)
        there = self._each(wanted, self._map.contains_key)
        return [key for key, found in zip(wanted, there, strict=True) if not found]

    def read(self, key: ChunkKey) -> pa.Table | None:
        """A chunk's rows; None if it is gone. Raises LedgerError for what we have not written."""
        found = answer(self._map.get(key.encode()), self.name, self.target.hazelcast)
        return None if found is None else _decoded(found, key, self.name)

    def remove(self, keys: Iterable[_Key]) -> None:
        """Those that are applied, or that nothing will decide; and records."""
        self._each(list(keys), self._map.delete)

    def remove_left(self, sink: str, generation: int, kept: Collection[ChunkKey]) -> int:
        """Remove what generations before `generation` left and no decision in `kept` names, and
        their records; how many chunks these were. Driver, once a batch: generations that are over
        decide no more."""
        found = answer(self._map.key_set(), self.name, self.target.hazelcast)
        self.remove(
            key
            for key in map(RecordKey.decode, found)
            if key and key.sink == sink and key.holder < generation
        )
        left = [
            key
            for key in map(ChunkKey.decode, found)
            if key and key.sink == sink and key.generation < generation and key not in kept
        ]
        self.remove(left)
        return len(left)

    def put(self, key: ChunkKey, chunk: bytes) -> Any:
        """A chunk, under way when this returns."""
        return self._map.set(key.encode(), bytearray(chunk))

    def record(self, key: RecordKey) -> bytes | None:
        """An entry that is no chunk."""
        found = answer(self._map.get(key.encode()), self.name, self.target.hazelcast)
        return None if found is None else bytes(found)

    def put_record(self, key: RecordKey, record: bytes) -> None:
        """Such an entry; the members have it when this returns."""
        answer(self._map.set(key.encode(), bytearray(record)), self.name, self.target.hazelcast)

    def _each(self, keys: Sequence[_Key], ask: Any) -> list[Any]:
        """The answers about all keys, some requests under way at a time."""
        answers: list[Any] = []
        for first in range(0, len(keys), _IN_FLIGHT):
            asked = [ask(key.encode()) for key in keys[first : first + _IN_FLIGHT]]
            answers += [answer(one, self.name, self.target.hazelcast) for one in asked]
        return answers


class TaskStaging:
    """What one attempt of a task stages. Executor."""

    def __init__(self, staging: Staging, first: ChunkKey) -> None:
        self._staging = staging
        self._first = first
        self._under_way: list[Any] = []
        self._chunks = 0
        self.staged: Staged | None = None  # once the members have all of it

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches, each staged on its way; at their end the members have all rows."""
        for batch in batches:
            self._add(batch)
            yield batch
        while self._under_way:
            self._acknowledged(self._under_way.pop(0))
        target = self._staging.target
        self.staged = Staged(target.map, self._staging.cluster, self._first.attempt, self._chunks)

    def _add(self, rows: pa.RecordBatch) -> None:
        """Columns key and value, null to remove; nothing waits for the last chunk's answer."""
        for piece in _pieces(rows):
            key = replace(self._first, chunk=self._chunks)
            self._under_way.append(self._staging.put(key, _encoded(piece, self._staging.target)))
            self._chunks += 1
            if len(self._under_way) > _CHUNKS_IN_FLIGHT:
                self._acknowledged(self._under_way.pop(0))
            crash_point("map.while_staging")

    def _acknowledged(self, asked: Any) -> None:
        answer(asked, self._staging.name, self._staging.target.hazelcast)


def _pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of few enough rows and bytes; a row that is larger goes alone."""
    at = 0
    while at < rows.num_rows:
        piece = rows.slice(at, CHUNK_ROWS)
        while piece.num_rows > 1 and piece.nbytes > _CHUNK_BYTES:
            piece = piece.slice(0, piece.num_rows // 2)
        yield piece
        at += piece.num_rows


def packed(rows: pa.RecordBatch) -> bytes:
    """As Arrow's stream of one batch, by LZ4."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def unpacked(stream: bytes) -> pa.Table:
    """What `packed` made. Raises ArrowException."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
        return reader.read_all()


def _encoded(rows: pa.RecordBatch, target: MapTarget) -> bytes:
    how = {_JSON: b"1"} if target.json else {}
    if target.merge is not None:
        how[_MERGE] = target.merge.encode()
    return packed(rows.replace_schema_metadata(how))


def _decoded(found: Any, key: ChunkKey, name: str) -> pa.Table:
    import pyarrow as pa

    try:
        rows = unpacked(bytes(found))
        if rows.column_names != ["key", "value"]:
            raise ValueError(f"its columns are {rows.column_names}")
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise LedgerError(
            f"Entry '{key.encode()}' of map '{name}' is not what eo-kafka staged there "
            f"({cut(error)}): somebody else writes into that map. Nothing of it was applied; batch "
            f"{key.batch} stays decided."
        ) from None
    return rows


def is_json(rows: pa.Table) -> bool:
    """Whether a chunk's values are to become JSON values."""
    return _JSON in (rows.schema.metadata or {})


def merge_of(rows: pa.Table) -> str | None:
    """The function that merges a chunk's rows with what is there: the one of when it was staged."""
    found = (rows.schema.metadata or {}).get(_MERGE)
    return None if found is None else found.decode()
