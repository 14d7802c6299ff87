"""The records of a view of keyed state, in a compacted topic.

Each transaction brings it from one batch of the query to a later one, and says so in the record
`MARKER`; no key of the state looks like it, because those are JSON objects. A key that is gone has
a tombstone. Its only writer holds the transactional id that is the topic's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..core.errors import CorruptSnapshot, cut
from ..core.options import json_object
from .ledger.job_topics import is_part
from .ledger.log_reader import read_records

TOPIC = "__eo_kafka.{job}.view.{view}"
MARKER = b'"eo-kafka"'
PARTITION = 0


def name_in(topic: str, job: str) -> str | None:
    """The name of the view that the topic holds; None if it is no view of this job."""
    stem = TOPIC.format(job=job, view="")
    name = topic.removeprefix(stem)
    return name if name != topic and is_part(name) else None


@dataclass(frozen=True)
class Marker:
    """Which batch of which query the view shows, and of which state. Version 1 does not say which:
    it is never the one that is asked for, so that the view is brought to that as a whole."""

    query: str
    batch: int
    state: str = ""

    def encode(self) -> bytes:
        """JSON."""
        known = {"state": self.state} if self.state else {}
        fields = {"v": 1 + len(known), "query": self.query, "batch": self.batch, **known}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> Marker:
        """Raises CorruptSnapshot."""
        try:
            fields = json_object(value.decode())
            found = cls(fields["query"], fields["batch"], fields.get("state", ""))
            if (
                not isinstance(found.query, str)
                or not isinstance(found.state, str)
                or type(found.batch) is not int
                or json_object(found.encode().decode()) != fields
            ):
                raise ValueError("not of this version")
            return found
        except (LookupError, TypeError, ValueError) as error:
            raise CorruptSnapshot(
                f"The view's own record cannot be read ({cut(error)}): {cut(value)}. Was the topic "
                "written to by somebody else, or a newer eo-kafka? Delete it, and it is made anew."
            ) from None


@dataclass(frozen=True)
class View:
    """What the topic holds up to an offset: the newest value of each key, and the marker."""

    values: Mapping[bytes, bytes]
    marker: Marker | None


def read_view(settings: Mapping[str, str], topic: str, end: int) -> View:
    """Read all of it; all keys are held in memory. Runs anywhere. Raises CorruptSnapshot,
    ReadTimeout, EnvironmentRefused."""
    values: dict[bytes, bytes] = {}
    marker = None
    for key, value in _records(settings, topic, end):
        if key == MARKER:
            marker = None if value is None else Marker.decode(value)
        elif value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return View(values, marker)


def _records(
    settings: Mapping[str, str], topic: str, end: int
) -> Iterator[tuple[bytes, bytes | None]]:
    for _, key, value in read_records(settings, topic, PARTITION, 0, end):
        yield key, value
