"""Names of blobs in the state topic, by digest; and a snapshot's head, which the ledger holds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...core.errors import CorruptSnapshot, cut

CHUNK = 512 * 1024  # below every default limit of a Kafka message
MANIFEST_MAX = 1 << 30  # bytes of one manifest, unpacked
SIZE_MAX = 1 << 50  # bytes of one file
_DIGEST = 20  # bytes of BLAKE2b: who can write into our topics need not find a collision
_CHUNK_KEY = re.compile(r"([0-9a-f]{40})/(0|[1-9][0-9]{0,9})")


def digest_of(content: bytes) -> str:
    """The name of a blob with this content."""
    return hashlib.blake2b(content, digest_size=_DIGEST).hexdigest()


def is_digest(name: str) -> bool:
    """Whether a blob could have this name."""
    return _CHUNK_KEY.fullmatch(f"{name}/0") is not None


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
class SnapshotHead:
    """What the ledger says of a snapshot: enough to find its manifest, and to show it.

    `batch` is the one a restart runs first. `manifest_from` is an offset of the state topic at or
    before the manifest's first chunk. `size` is the sum of the files' sizes, `sent` what
    of it was new. `made_ms` is in ms since 1970, of the driver's clock. `topic_from`: where the
    state topic began then. That is 0, as compaction does not move it, but deletion does. `topic`:
    the state topic, where that is known. `run`: the start of the query that made it; older ones do
    not say.
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
    topic_from: int = 0
    topic: str = ""
    run: str = ""
