"""A snapshot's manifest: its files with sizes and digests.

It is stored as the files are, under its own digest. Only its head, a small record in the ledger, is
written with the decision.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import CorruptSnapshot, cut
from ...core.options import json_object
from ..ledger.blob_names import MANIFEST_MAX, SIZE_MAX, Blob, is_digest

VERSION = 1
_GZIP = 31  # zlib's name for that format: its CRC sees what zlib's own sum of bytes passes over


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
            found = cls({checked_path(row[0]): _entry(*row[1:]) for row in fields["files"]})
            # Two texts never mean the same: what a reading would pass over is seen here.
            if found._body() != text:
                raise ValueError("it says more than a manifest of this version, or otherwise")
            return found
        except (zlib.error, LookupError, TypeError, ValueError) as error:
            raise CorruptSnapshot(
                f"The manifest cannot be read ({type(error).__name__}: {cut(error)})."
            ) from None


def checked_path(value: Any) -> str:
    """A path below the checkpoint, and nowhere else. Raises ValueError."""
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
    if not 0 <= size <= SIZE_MAX or not is_digest(digest):
        raise ValueError("a file's size or digest is none")
    return FileEntry(Blob(digest, size), stamp)
