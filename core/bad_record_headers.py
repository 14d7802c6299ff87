"""The headers by which a dead letter says what it is: written by formats, told of in errors."""

from __future__ import annotations

from collections.abc import Iterable

REASON, TOPIC, PARTITION, OFFSET = (
    f"eo_kafka.bad_record.{name}" for name in ("reason", "topic", "partition", "offset")
)


def origin(headers: Iterable[tuple[bytes, bytes | None]]) -> str | None:
    """The record of which this is the dead letter; None: it is none."""
    said = {name.decode(errors="replace"): value or b"" for name, value in headers}
    if not {TOPIC, PARTITION, OFFSET} <= said.keys():
        return None
    topic, partition, offset = (
        said[name].decode(errors="replace") for name in (TOPIC, PARTITION, OFFSET)
    )
    return f"offset {offset} of {topic}-{partition}"
