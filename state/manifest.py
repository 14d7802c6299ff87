"""A snapshot's manifest: its files with sizes and digests; and the head that names it.

The manifest itself is stored as the files are, under its own digest. Only its head, a small record
in the ledger, is written with the decision.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eo_kafka.errors import CorruptSnapshot, cut
from eo_kafka.options import json_object

VERSION = 1
CHUNK = 512 * 1024  # below every default limit of a Kafka message
MANIFEST_MAX = 1 << 30  # bytes of one manifest, unpacked
SIZE_MAX = 1 << 50  # bytes of one file
_DIGEST = 20  # bytes of BLAKE2b: who can write into our topics need not find a collision
_GZIP = 31  # zlib's name for that format: its CRC sees what zlib's own sum of bytes passes over
_CHUNK_KEY = re.compile(r"([0-9a-f]{40})/(0|[1-9][0-9]{0,9})")


def digest_of(content: bytes) -> str:
    """The name of a blob with this content."""
    return hashlib.blake2b(content, digest_size=_DIGEST).hexdigest()


class Digester:
    """`digest_of` for what comes in pieces."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=_DIGEST)
        self.size = 0

    def update(self, piece: bytes) -> None:
        """The next piece."""
        self._hash.update(piece)
        self.size += len(piece)

    def digest(self) -> str:
        """Of everything so far."""
        return self._hash.hexdigest()


@dataclass(frozen=True)
class Blob:
    """What a file holds, whatever it is called."""

    digest: str
    size: int

    @property
    def chunks(self) -> int:
        """How many records it is in the state topic. An empty file is an empty one."""
        return max(1, -(-self.size // CHUNK))

    def chunk_size(self, index: int) -> int:
        """Bytes of one of its chunks; negative if it has no such chunk."""
        return min(CHUNK, self.size - index * CHUNK) if index < self.chunks else -1

    def chunk_keys(self) -> Iterator[bytes]:
        """The keys of its chunks in the state topic."""
        for index in range(self.chunks):
            yield chunk_key(self.digest, index)


def chunk_key(digest: str, index: int) -> bytes:
    """The key of one chunk of a blob."""
    return f"{digest}/{index}".encode()


def parse_chunk_key(key: bytes) -> tuple[str, int]:
    """Digest and index. Raises CorruptSnapshot."""
    parsed = _CHUNK_KEY.fullmatch(key.decode("ascii", "replace"))
    if parsed is None:
        raise CorruptSnapshot(
            f"Unknown record {cut(repr(key))} in the state topic: somebody else writes into it. "
            "Nothing was used. Write a tombstone under that key, or run the eo-kafka that knows it."
        )
    return parsed[1], int(parsed[2])


@dataclass(frozen=True)
class FileEntry:
    """One file. `stamp` is what its file system said of it when it was read (`FileStat`)."""

    blob: Blob
    stamp: str


@dataclass(frozen=True)
class Manifest:
    """The files of one snapshot, by path."""

    files: Mapping[str, FileEntry] = field(default_factory=dict)

    def blobs(self) -> dict[str, Blob]:
        """The different contents, by digest."""
        return {entry.blob.digest: entry.blob for entry in self.files.values()}

    def encode(self) -> bytes:
        """Packed JSON."""
        packer = zlib.compressobj(1, wbits=_GZIP)
        return packer.compress(self._body().encode()) + packer.flush()

    def _body(self) -> str:
        rows = [
            [path, entry.blob.size, entry.blob.digest, entry.stamp]
            for path, entry in sorted(self.files.items())
        ]
        return json.dumps({"v": VERSION, "files": rows}, separators=(",", ":"))

    @classmethod
    def decode(cls, packed: bytes) -> Manifest:
        """Raises CorruptSnapshot."""
        try:
            unpacker = zlib.decompressobj(_GZIP)
            body = unpacker.decompress(packed, MANIFEST_MAX)
            if unpacker.unconsumed_tail or unpacker.unused_data or not unpacker.eof:
                raise ValueError("it does not end where it should")
            text = body.decode()
            fields = json_object(text)
            if fields["v"] != VERSION:
                raise ValueError(f"version {cut(repr(fields['v']))} is not {VERSION}")
            found = cls({_path(row[0]): _entry(*row[1:]) for row in fields["files"]})
            # Two texts never mean the same: what a reading would pass over is seen here.
            if found._body() != text:
                raise ValueError("it says more than a manifest of this version, or otherwise")
            return found
        except (zlib.error, LookupError, TypeError, ValueError) as error:
            raise CorruptSnapshot(
                f"The manifest cannot be read ({type(error).__name__}: {cut(error)})."
            ) from None


def _path(value: Any) -> str:
    """A path below the checkpoint, and nowhere else."""
    if (
        type(value) is not str
        or {"\\", "\0"} & set(value)
        or {"", ".", ".."} & set(value.split("/"))
    ):
        raise ValueError(f"{value!r} is not a path below a checkpoint")
    return value


def _entry(size: Any, digest: Any, stamp: Any) -> FileEntry:
    if type(size) is not int or type(digest) is not str or type(stamp) is not str:
        raise TypeError("a file's size, digest or stamp is something else")
    if not 0 <= size <= SIZE_MAX or _CHUNK_KEY.fullmatch(f"{digest}/0") is None:
        raise ValueError("a file's size or digest is none")
    return FileEntry(Blob(digest, size), stamp)


@dataclass(frozen=True)
class SnapshotHead:
    """What the ledger says of a snapshot: enough to find its manifest, and to show it.

    `batch` is the one a restart runs first. `manifest_from` is an offset of the state topic at or
    before the manifest's first chunk. `size` is the sum of the files' sizes, `sent` what
    of it was new. `made_ms` is in ms since 1970, of the driver's clock.
    """

    batch: int
    generation: int
    query: str
    manifest: Blob
    manifest_from: int
    files: int
    size: int
    sent: int
    made_ms: int
