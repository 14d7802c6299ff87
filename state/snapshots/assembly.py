"""Puts blobs together from chunks, which may come in any order and more than once.

As they were sent, one after the other, is how they nearly always come: then a blob is digested
while it is written, and both while the next chunk is fetched. Memory stays bounded; what is
incomplete is on the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from ..ledger.blob_names import CHUNK, Blob, Digester, digest_of

Content: TypeAlias = "Path | bytes"


def pieces(content: Content) -> Iterator[bytes]:
    """A blob's content as it is cut in the topic; an empty one has one empty piece."""
    if isinstance(content, bytes):
        yield content
        return
    with open(content, "rb") as stream:
        while piece := stream.read(CHUNK):
            yield piece


def assembled(
    found: Iterable[tuple[Blob, int, bytes]], folder: Path
) -> Iterator[tuple[Blob, Content]]:
    """Each blob once its chunks are there and have its digest: in memory if it has one chunk, else
    in a file of `folder`, the caller's to move until it asks for the next. Of a chunk that is there
    more than once any copy may be the whole one."""
    with ThreadPoolExecutor(1, "eo-kafka-restore") as pool:
        yield from _assembled(found, folder, _Beside(pool))


def _assembled(
    found: Iterable[tuple[Blob, int, bytes]], folder: Path, beside: _Beside
) -> Iterator[tuple[Blob, Content]]:
    growing: dict[Blob, _Growing] = {}
    spoilt: dict[Blob, Path] = {}  # all chunks are there, and one of them is not what it was
    for blob, index, value in found:
        if len(value) != blob.chunk_size(index):
            continue
        if blob.chunks == 1:
            if digest_of(value) == blob.digest:
                yield blob, value
            continue
        if blob not in growing:
            growing[blob] = _Growing(folder / blob.digest)
        growing[blob].seen.add(index)
        beside.do(growing[blob].add, index, value)
        if len(growing[blob].seen) < blob.chunks:
            continue
        grown = growing.pop(blob)  # another copy of all of it may follow
        beside.wait()
        if grown.digest() == blob.digest:
            spoilt.pop(blob, None)
            yield blob, grown.path
            grown.path.unlink(missing_ok=True)
        else:
            spoilt[blob] = grown.path
    beside.wait()
    for blob, path in spoilt.items():
        if _digest_of_file(path) == blob.digest:
            yield blob, path


class _Beside:
    """Does one thing at a time in another thread; an error is raised when the next is begun."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._last: Future[None] | None = None

    def do(self, work: Callable[[int, bytes], None], index: int, value: bytes) -> None:
        self.wait()
        self._last = self._pool.submit(work, index, value)

    def wait(self) -> None:
        if self._last is not None:
            self._last.result()
            self._last = None


@dataclass
class _Growing:
    """A blob of which some chunks are in a file."""

    path: Path
    seen: set[int] = field(default_factory=set)  # asked for, and soon in the file
    _in_order: int = 0
    _digester: Digester | None = field(default_factory=Digester)  # none once order was broken

    def add(self, index: int, value: bytes) -> None:
        if index != self._in_order:
            self._digester = None
        elif self._digester is not None:
            self._digester.update(value)
            self._in_order += 1
        with open(self.path, "r+b" if self.path.exists() else "w+b") as stream:
            stream.seek(index * CHUNK)
            stream.write(value)

    def digest(self) -> str:
        return _digest_of_file(self.path) if self._digester is None else self._digester.digest()


def _digest_of_file(path: Path) -> str:
    digester = Digester()
    for piece in pieces(path):
        digester.update(piece)
    return digester.digest()
