"""Blobs in the state topic: read by position, checked by digest and size.

A chunk's key is the digest of the whole blob and its number, so that writing it twice changes
nothing and compaction keeps one of each. Which of them count, a manifest says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...core.errors import CorruptSnapshot
from ..ledger.blob_names import CHUNK, MANIFEST_MAX, Blob, Digester, digest_of, parse_chunk_key
from ..ledger.log_reader import read_records

AT_ONCE = 32  # chunks fetched ahead of us


def chunks(content: bytes, blob: Blob) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each record of a blob that is in memory."""
    for index, key in enumerate(blob.chunk_keys()):
        yield key, content[index * CHUNK : (index + 1) * CHUNK]


def read_blob(settings: Mapping[str, str], topic: str, start: int, end: int, blob: Blob) -> bytes:
    """One blob from the records of [start, end), which fits into memory.

    Raises CorruptSnapshot, ReadTimeout.
    """
    if not 0 <= blob.size <= MANIFEST_MAX:
        raise CorruptSnapshot(f"Blob {blob.digest} of topic '{topic}' has {blob.size} bytes.")
    found: dict[bytes, bytes] = {}
    keys = list(blob.chunk_keys())
    wanted = set(keys)
    for _, key, value in read_records(settings, topic, 0, start, end, AT_ONCE):
        if value is None or key not in wanted:
            continue
        found[key] = value
        if len(found) == len(keys):  # the rest are other blobs' records, perhaps gigabytes
            content = b"".join(found[key] for key in keys)
            if digest_of(content) == blob.digest:
                return content
    raise CorruptSnapshot(
        f"Blob {blob.digest} of topic '{topic}' is not whole: {len(found)} of {len(keys)} "
        f"records, {sum(map(len, found.values()))} of {blob.size} bytes. It was not used. Was "
        "the topic cut by retention, or did somebody else write to it?"
    )


@dataclass
class Strays:
    """What stands in the topic that perhaps no manifest names: the keys with a value, and what was
    read of each blob's newest records, up to the first that is not in its place."""

    keys: set[bytes] = field(default_factory=set)
    _contents: dict[str, Digester | None] = field(default_factory=dict)

    def whole(self) -> set[str]:
        """The blobs whose newest records are all that they are, by their content: the keys alone
        would not tell of one whose file changed while it was sent."""
        found = self._contents.items()
        return {name for name, read in found if read and read.digest() == name}

    def note(self, key: bytes, value: bytes | None, *, content: bool) -> None:
        """The next record; its `content` counts or not. Raises CorruptSnapshot."""
        name, index = parse_chunk_key(key)
        if value is None:
            self.keys.discard(key)
        else:
            self.keys.add(key)
        if not content:
            return
        read = Digester() if index == 0 else self._contents.get(name)
        if value is None or read is None or read.size != index * CHUNK:
            self._contents[name] = None
            return
        read.update(value)
        self._contents[name] = read


def strays_between(
    settings: Mapping[str, str], topic: str, start: int, end: int, sent_from: int
) -> Strays:
    """Of the records of [start, end). From `sent_from` on their contents count. Raises
    CorruptSnapshot."""
    found = Strays()
    for offset, key, value in read_records(settings, topic, 0, start, end, AT_ONCE):
        found.note(key, value, content=offset >= sent_from)
    return found


def keys_between(settings: Mapping[str, str], topic: str, start: int, end: int) -> set[bytes]:
    """The keys with a value among the records of [start, end). Raises CorruptSnapshot."""
    return strays_between(settings, topic, start, end, sent_from=end).keys
