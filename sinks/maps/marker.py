"""An entry on the members that holds a query's newest batch and a digest of its keys.

It keeps older tasks from writing, and finds keys that change when a batch is written again.

An IMap of ours, `__eo_kafka.batches`, has one entry for each query and map. It is as durable as the
map itself: in memory, with one backup by default.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ...clients.hazelcast.client import client
from ...core.errors import Fenced, OutcomeUnknown, SinkError, cut
from .options import MapSinkOptions

MAP = "__eo_kafka.batches"
_ATTEMPTS = 20


@dataclass(frozen=True)
class Marker:
    """One batch that is written."""

    batch: int
    rows: int
    keys: str

    def encode(self) -> str:
        """JSON."""
        return json.dumps({"v": 1, "batch": self.batch, "rows": self.rows, "keys": self.keys})

    @classmethod
    def decode(cls, written: Any) -> Marker:
        """Raises SinkError for what is not ours."""
        try:
            fields = json.loads(written)
            found = cls(fields["batch"], fields["rows"], fields["keys"])
            if fields["v"] != 1 or type(found.batch) is not int or not isinstance(found.keys, str):
                raise ValueError
            if json.loads(found.encode()) != fields:  # it says more than this version reads
                raise ValueError
        except (LookupError, TypeError, ValueError):
            raise SinkError(
                f"Map '{MAP}' holds what this eo-kafka has not written there: {cut(written)}. If a "
                "newer version wrote it, run that."
            ) from None
        return found


class Markers:
    """One query's marker for one map."""

    def __init__(self, options: MapSinkOptions, query: str) -> None:
        self._options = options
        self._stored = client(options.hazelcast).get_map(MAP).blocking()
        self._key = f"{options.map}/{query}"

    def check(self, batch: int) -> None:
        """Raise Fenced if the query is at a later batch: whoever asks is a task that was given up,
        or a query whose checkpoint is an old one. Executor, before each put."""
        written = self._stored.get(self._key)
        if written is not None and Marker.decode(written).batch > batch:
            raise self._fenced(batch, Marker.decode(written))

    def advance(self, marker: Marker) -> None:
        """Say that the batch is written. Driver, once a batch, or again after a failure.

        Raises Fenced, SinkError if the batch has been written with other keys.
        """
        for _ in range(_ATTEMPTS):
            written = self._stored.get(self._key)
            if written is None:
                if self._stored.put_if_absent(self._key, marker.encode()) is None:
                    return
                continue
            known = Marker.decode(written)
            if known.batch > marker.batch:
                raise self._fenced(marker.batch, known)
            if known.batch == marker.batch and known != marker:
                raise self._other_keys(known, marker)
            if self._stored.replace_if_same(self._key, written, marker.encode()):
                return
        raise OutcomeUnknown(
            f"The marker of {self._options.place} was changed by others {_ATTEMPTS} times in a row."
        )

    def _fenced(self, batch: int, known: Marker) -> Fenced:
        return Fenced(
            f"Batch {batch} is not written into {self._options.place}: the query is at batch "
            f"{known.batch}. Either this is an old task or driver, and there is nothing to do; or "
            f"the query's checkpoint is an older copy: then remove key '{self._key}' from map "
            f"'{MAP}', and entries go back to what they were."
        )

    def _other_keys(self, known: Marker, marker: Marker) -> SinkError:
        return SinkError(
            f"Batch {marker.batch} was written into {self._options.place} twice, with other keys "
            f"({known.rows} rows, then {marker.rows}): keys must follow from the query's input "
            "alone, and not from rand(), uuid() or the time. The map holds the entries of both. "
            f"Set that right, and remove key '{self._key}' from map '{MAP}' to go on."
        )
