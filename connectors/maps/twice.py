"""What is said of a key that a map has twice, as it is read. On either side."""

from __future__ import annotations

from ...core.errors import SourceError, cut


def key_twice(name: object, key: object, backend: object) -> SourceError:
    """Of map `name`: a record would get an old entry, or be joined with both."""
    word = repr(bytes(key) if isinstance(key, bytearray) else key)  # Spark's bytes are those
    why = (
        "Its topic has got more partitions since the first, or programs wrote "
        "it that place keys differently, or keys of other bytes are equal as columns. Nothing of "
        "the batch is visible. Remove the old one: write a record with its key and no value into "
        "its partition."
        if backend == "kafka"
        else "Keys of an IMap that differ are equal as they are read here (the text '1' and the "
        "number 1, or what 'key.schema' leaves out): choose another 'key.format' or 'key.schema', "
        "or a map with keys of one type. Or members moved the key's partition while it was read: "
        "then it works when it runs again. Nothing of the batch is visible."
    )
    return SourceError(
        f"Map '{name}' has more than one entry with the key {cut(word)}, and which one is the "
        f"newer is not known. {why}"
    )
