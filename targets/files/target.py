"""Files as a target of the protocol's port: `Home` says where, this one says what is in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from ...core.errors import OptionsError
from ..port import MarkerChanged, NotStaged, Target
from .formats import CSV, written
from .home import Home, home_of
from .manifest import (
    DataFile,
    Manifest,
    chunk_file,
    clashes,
    merged,
    misplaced,
    staged_name,
    successor,
)

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPTS = 50


class FilesTarget(Target):
    """Settings: `path`; `fileformat`; `schema`, the rows' columns as Spark writes them in JSON;
    `failondataloss`."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._home: Home = home_of(settings["path"])
        self._ending = settings.get("fileformat", "parquet")
        self._schema = settings.get("schema", "")
        self._fail = settings.get("failondataloss", "true") == "true"

    @property
    def place(self) -> str:
        return self._home.place

    def check(self) -> None:
        """Driver, at a start. Raises EnvironmentRefused, OptionsError."""
        newest = self._home.check()
        if newest is not None and (problems := self._problems(newest.schema)):
            raise OptionsError(problems)

    def _problems(self, known: str) -> list[str]:
        found = clashes(known, self._schema)
        return found + (misplaced(known, self._schema) if self._ending == CSV else [])

    def show_columns(self, writer: str) -> None:
        """Driver, at a start, before a row has them: then no other job has one by another type.
        Raises MarkerChanged, OptionsError."""
        newest = self._home.newest()
        marker = newest.marker(writer) if newest else None
        if newest and marker and merged(newest.schema, self._schema) != newest.schema:
            self.apply(writer, {}, marker, marker)
        self.check()  # another job may have shown its own since the first look

    def stage(self, name: str, number: int, rows: pa.Table) -> None:
        file = chunk_file(name, number, rows.num_rows, self._ending)
        self._home.stage(file, written(self._ending, rows))

    def staged(self, writer: str) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for name, _, file in self._staged_of(writer):
            found[name] = found.get(name, 0) + (file.bytes >= 0)
        return found

    def marker(self, writer: str) -> bytes | None:
        newest = self._published()
        return None if newest is None else newest.marker(writer)

    def apply(
        self, writer: str, names: Mapping[str, int], before: bytes | None, after: bytes
    ) -> None:
        for _ in range(ATTEMPTS):  # several jobs may write here, each with its own marker
            newest = self._published()
            if (None if newest is None else newest.marker(writer)) != before:
                raise MarkerChanged
            files = self._chosen(writer, names)
            new = successor(newest, writer, after, self._schema, files)
            if self._home.create(new, newest, writer):
                self._home.publish(new, fail=self._fail)
                self._home.clean(new)
                return
        raise TimeoutError(f"{ATTEMPTS} other jobs' batches came first")

    def discard(self, names: Collection[str]) -> None:
        wanted = set(names)
        found = [file.name for name, _, file in self._staged_of("") if name in wanted]
        if found:
            self._home.remove(found)

    def _published(self) -> Manifest | None:
        """The newest, with its files where they stay: then another one may follow."""
        newest = self._home.newest()
        if newest is not None:
            self._home.publish(newest, fail=self._fail)
        return newest

    def _chosen(self, writer: str, names: Mapping[str, int]) -> list[DataFile]:
        """All chunks of these names, in their order. Raises NotStaged."""
        found: dict[str, dict[int, DataFile]] = {name: {} for name in names}
        for name, number, file in self._staged_of(writer) if names else ():
            if name in names and file.bytes >= 0:
                found[name][number] = file
        for name, chunks in names.items():
            if set(found[name]) != set(range(chunks)):
                raise NotStaged(f"{name} has {len(found[name])} chunks of {chunks}")
        return [of[number] for of in found.values() for number in sorted(of)]

    def _staged_of(self, writer: str) -> Iterator[tuple[str, int, DataFile]]:
        for file, size in self._home.staged().items():
            found = staged_name(file)
            if found is not None and found[0].startswith(writer):
                yield *found, DataFile(file, size)
