"""What is said of a key that a map that is a topic has twice. On either side."""

from __future__ import annotations

from ...core.errors import SourceError, cut


def key_twice(name: object, key: object) -> SourceError:
    """Of map `name`: a record would get an old entry, or be joined with both."""
    word = repr(bytes(key) if isinstance(key, bytearray) else key)  # Spark's bytes are those
    return SourceError(
        f"Map '{name}' has more than one entry with the key {cut(word)}, and which one is the "
        "newer is not known. Its topic has got more partitions since the first, or programs wrote "
        "it that place keys differently, or keys of other bytes are equal as columns. Nothing of "
        "the batch is visible. Remove the old one: write a record with its key and no value into "
        "its partition."
    )
