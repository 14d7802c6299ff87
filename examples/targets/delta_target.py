"""A Delta table as an exactly-once target: tasks write the files, the driver commits them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from eo_kafka.targets import MarkerChanged, NotStaged, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

ATTEMPTS = 20


class DeltaTarget(Target):
    """Appends to a table that is there. `target.path`: its folder, which driver and executors see.

    The marker is the version of an application transaction (an action `txn` of the log), which is
    the digest of a small file beside the table: both outlive checkpoints of the log.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = Path(options["path"])

    @property
    def place(self) -> str:
        return f"Delta table {self._path}"

    def stage(self, name: str, number: int, rows: pa.Table) -> None:
        import os

        from pyarrow import parquet

        path = self._path / f"{name}-{number}.parquet"
        with path.with_suffix(".new").open("wb") as file:
            parquet.write_table(rows, file)
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".new").rename(path)

    def staged(self, writer: str) -> Mapping[str, int]:
        shown = self._shown(self._table())
        found: dict[str, int] = {}
        for path in self._path.glob(f"{writer}*.parquet"):
            if path.name not in shown:
                name = path.stem.rpartition("-")[0]
                found[name] = found.get(name, 0) + 1
        return found

    def marker(self, writer: str) -> bytes | None:
        return self._marker(self._table(), writer)

    def apply(
        self, writer: str, names: Mapping[str, int], before: bytes | None, after: bytes
    ) -> None:
        from deltalake import CommitProperties
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import Transaction

        files = [f"{name}-{number}.parquet" for name, of in names.items() for number in range(of)]
        version = _version(after)
        self._marker_file(writer, version).write_bytes(after)
        for _ in range(ATTEMPTS):
            table = self._table()
            if self._marker(table, writer) != before:
                raise MarkerChanged
            self._check_staged(names, files, self._shown(table))
            # No retry: it would commit on top of a newer version, whose marker nobody looked at
            properties = CommitProperties(
                max_commit_retries=0, app_transactions=[Transaction(writer, version)]
            )
            try:
                table.create_write_transaction(
                    [self._added(file) for file in files],
                    mode="append",
                    schema=table.schema(),
                    commit_properties=properties,
                )
            except CommitFailedError:  # somebody else was first: perhaps with other rows
                continue
            if before is not None:
                self._marker_file(writer, _version(before)).unlink(missing_ok=True)
            return
        raise TimeoutError(f"{ATTEMPTS} other commits came first")

    def discard(self, names: Collection[str]) -> None:
        shown = self._shown(self._table())
        for name in names:
            for path in self._path.glob(f"{name}-*.parquet"):
                if path.name not in shown:
                    path.unlink(missing_ok=True)

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self._path)

    def _marker(self, table: DeltaTable, writer: str) -> bytes | None:
        version = table.transaction_version(writer)
        return None if version is None else self._marker_file(writer, version).read_bytes()

    def _marker_file(self, writer: str, version: int) -> Path:
        return self._path / f"_eo_kafka_{writer}-{version}"

    def _shown(self, table: DeltaTable) -> set[str]:
        return {Path(uri).name for uri in table.file_uris()}

    def _check_staged(
        self, names: Mapping[str, int], files: Collection[str], shown: Collection[str]
    ) -> None:
        for file in files:
            if file in shown or not (self._path / file).exists():
                raise NotStaged(file)
        for name, chunks in names.items():
            if (self._path / f"{name}-{chunks}.parquet").exists():
                raise NotStaged(f"{name} has more than {chunks} chunks")

    def _added(self, file: str):  # type: ignore[no-untyped-def]
        from deltalake.transaction import AddAction
        from pyarrow import parquet

        path = self._path / file
        rows = parquet.read_metadata(path).num_rows
        stats, now = json.dumps({"numRecords": rows}), int(time.time() * 1000)
        return AddAction(file, path.stat().st_size, {}, now, True, stats)


def _version(marker: bytes) -> int:
    """63 bits of its digest: a `txn` holds a whole number."""
    return int.from_bytes(hashlib.sha256(marker).digest()[:8], "big") >> 1
