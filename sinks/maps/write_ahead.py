"""Writes down a chunk's changes before its transaction commits, for repair. S7.

The members' transactions are whole only where the commit is answered without an error. Else some of
its changes may be made and some not, the marker's perhaps among them, and nothing says which: the
member that commits died, or some changes were refused (by split-brain protection, or a map's
store). Who goes on finds them out by this record: an entry is what it was before, or what it was to
become.

Each driver has one record a lane, in the job's staging map, until the commit is answered. Free of
decisions: sinks/maps/lanes.py says when a record is written and what follows from it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from ...core.errors import LedgerError, cut
from .staging import RecordKey, Staging, packed, unpacked

_HASH = 4  # a serialized value begins with its key's hash, which says nothing of a value
_FIELDS = b"eo-kafka.write-ahead"
# Once the members that were to commit: by one that does not answer, an older eo-kafka compares, too
_NO_MEMBERS = ["00000000-0000-0000-0000-000000000000"]


class State(Enum):
    """What became of a change."""

    MADE = auto()
    NOT_MADE = auto()
    OVERTAKEN = auto()  # somebody else has written the entry since


@dataclass(frozen=True)
class Change:
    """One entry's, serialized: its key, a digest of its value before, its value after; None where
    there is no entry."""

    key: bytes
    before: bytes | None
    after: bytes | None

    @classmethod
    def of(cls, key: bytes, before: bytes | None, after: bytes | None) -> Change:
        """Of whole values."""
        return cls(key, _digest(before), after)

    def state(self, now: bytes | None) -> State:
        """What became of it, if the entry's value is `now`. One that changes nothing is made."""
        found = _digest(now)
        if found == _digest(self.after):
            return State.MADE
        return State.NOT_MADE if found == self.before else State.OVERTAKEN


@dataclass(frozen=True)
class WriteAhead:
    """The changes of a decision's `number`th chunk in its lane. `decision`: the decision's
    generation; `merged`: the rows were, and do not replace; `digest`: what tells the decision from
    others of its generation."""

    decision: int
    number: int
    merged: bool
    changes: tuple[Change, ...]
    digest: str = ""

    def encode(self) -> bytes:
        """As Arrow's stream of one batch."""
        import pyarrow as pa

        fields = [self.decision, self.number, _NO_MEMBERS, self.merged, self.digest]
        binary = [pa.field(name, pa.binary()) for name in ("key", "before", "after")]
        schema = pa.schema(binary, {_FIELDS: json.dumps(fields).encode()})
        columns = [
            pa.array([getattr(change, field.name) for change in self.changes], field.type)
            for field in schema
        ]
        return packed(pa.record_batch(columns, schema=schema))

    @classmethod
    def decode(cls, written: bytes) -> WriteAhead:
        """Raises ValueError for what is not ours."""
        import pyarrow as pa

        try:
            rows = unpacked(written)
            decision, number, _, merged, *more = json.loads(rows.schema.metadata[_FIELDS])
            columns = (rows.column(name).to_pylist() for name in ("key", "before", "after"))
        except (LookupError, TypeError, pa.ArrowException) as error:
            raise ValueError(str(error)) from None
        changes = tuple(map(Change, *columns))
        return cls(decision, number, merged, changes, *more)


class WriteAheads:
    """The records of one sink. Its methods raise what the staging map's do."""

    def __init__(self, staging: Staging, sink: str) -> None:
        self._staging = staging
        self._sink = sink

    def read(self, lane: int, holder: int) -> WriteAhead | None:
        """The newest one of the driver of generation `holder`. Raises LedgerError for what we have
        not written."""
        key = self._key(lane, holder)
        found = self._staging.record(key)
        try:
            return None if found is None else WriteAhead.decode(found)
        except ValueError as error:
            raise LedgerError(
                f"Entry '{key.encode()}' of map '{self._staging.name}' is not what eo-kafka wrote "
                f"there ({cut(error)}): somebody else writes into that map. A decided batch waits "
                "for it and stays decided."
            ) from None

    def write(self, lane: int, holder: int, ahead: WriteAhead) -> None:
        """Once this returns the members have it, with its copies."""
        self._staging.put_record(self._key(lane, holder), ahead.encode())

    def remove(self, lanes: Iterable[int], holder: int) -> None:
        """Nobody needs them any more."""
        self._staging.remove(self._key(lane, holder) for lane in lanes)

    def _key(self, lane: int, holder: int) -> RecordKey:
        return RecordKey(self._sink, holder, lane)


def _digest(value: bytes | None) -> bytes | None:
    return None if value is None else hashlib.blake2b(value[_HASH:], digest_size=16).digest()
