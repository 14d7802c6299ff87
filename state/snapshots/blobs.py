"""Blobs in the state topic: read by position, checked by digest and size.

A chunk's key is the digest of the whole blob and its number, so that writing it twice changes
nothing and compaction keeps one of each. Which of them count, a manifest says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...core.errors import CorruptSnapshot
from ..ledger.blob_names import CHUNK, MANIFEST_MAX, Blob, digest_of, parse_chunk_key
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
        f"Blob {blob.digest} of topic '{topic}' is not whole: {len(found)} of {len(keys)} records, "
        f"{sum(map(len, found.values()))} of {blob.size} bytes. It was not used. Was the topic cut "
        "by retention, or written to by somebody else?"
    )


def keys_between(settings: Mapping[str, str], topic: str, start: int, end: int) -> set[bytes]:
    """The keys with a value among the records of [start, end). Raises CorruptSnapshot."""
    found: set[bytes] = set()
    for _, key, value in read_records(settings, topic, 0, start, end, AT_ONCE):
        parse_chunk_key(key)
        if value is None:
            found.discard(key)
        else:
            found.add(key)
    return found
