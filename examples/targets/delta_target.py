"""A Delta table as an exactly-once target: tasks write the files, the driver commits them."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from eo_kafka.errors import SinkError
from eo_kafka.targets import MarkerChanged, NotStaged, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable, Schema

ATTEMPTS = 20
# What a writer must know of a table and this one does. The others (constraints, column mapping,
# generated columns) would be passed over in silence.
FEATURES = {"appendOnly", "invariants", "timestampNtz", "deletionVectors"}


class DeltaTarget(Target):
    """Appends to a table that is there, without partition columns. `target.path`: its folder,
    which driver and executors see.

    The marker is the version of an application transaction (an action `txn` of the log), which is
    the digest of a small file beside the table: both outlive checkpoints of the log. Files wait in
    a folder that `vacuum` leaves alone, and get a second name in the table's own for the commit:
    once they were shown, they belong to the table, also when it shows them no more.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path = Path(options["path"])
        self._staged = self._path / "_eo_kafka_staged"

    @property
    def place(self) -> str:
        return f"Delta table {self._path}"

    def stage(self, name: str, number: int, rows: pa.Table) -> None:
        from pyarrow import parquet

        table = self._table()
        _check_table(table)
        full = {field.name for field in table.schema().fields if not field.nullable}
        for column in full.intersection(rows.column_names):
            if rows.column(column).null_count:
                # Not by another start: whoever keeps the job running gives up
                raise SinkError(f"Column '{column}' takes no nulls, and rows have some.")

        def write(file: BinaryIO) -> None:
            # Without Arrow's own schema, times are in UTC, as Delta has them
            parquet.write_table(rows, file, store_schema=False)

        def check(file: Path) -> None:
            _check_columns(file, table, exactly=True)

        self._staged.mkdir(exist_ok=True)
        _write(self._staged / f"{name}-{number}.parquet", write, check)

    def staged(self, writer: str) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for path in self._staged.glob(f"{writer}*.parquet"):
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
        for _ in range(ATTEMPTS):
            table = self._table()
            if self._marker(table, writer) != before:
                raise MarkerChanged
            self._check_staged(writer, names)
            _check_table(table)
            _write(self._marker_file(writer, version), lambda file: file.write(after))
            # No retry: it would commit on top of a newer version, whose marker nobody looked at
            properties = CommitProperties(
                max_commit_retries=0, app_transactions=[Transaction(writer, version)]
            )
            try:
                table.create_write_transaction(
                    [self._added(file, table) for file in files],
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
        for name in names:
            for path in self._staged.glob(f"{name}-*.parquet"):
                path.unlink(missing_ok=True)

    def _table(self) -> DeltaTable:
        from deltalake import DeltaTable

        return DeltaTable(self._path)

    def _marker(self, table: DeltaTable, writer: str) -> bytes | None:
        while (version := table.transaction_version(writer)) is not None:
            try:
                return self._marker_file(writer, version).read_bytes()
            except FileNotFoundError:
                table.update_incremental()  # another driver's commit came, and took it away
                if table.transaction_version(writer) == version:
                    raise
        return None

    def _marker_file(self, writer: str, version: int) -> Path:
        return self._path / f"_eo_kafka_{writer}-{version}"

    def _check_staged(self, writer: str, names: Mapping[str, int]) -> None:
        there = self.staged(writer)
        for name, chunks in names.items():
            if there.get(name) != chunks:
                raise NotStaged(f"{name} has {there.get(name, 0)} chunks of {chunks}")

    def _added(self, file: str, table: DeltaTable):  # type: ignore[no-untyped-def]
        from deltalake.transaction import AddAction
        from pyarrow import parquet

        path = self._path / file
        _check_columns(self._staged / file, table, exactly=False)
        with suppress(FileExistsError):  # of an apply that did not come to its commit
            os.link(self._staged / file, path)
        rows = parquet.read_metadata(path).num_rows
        stats, now = json.dumps({"numRecords": rows}), int(time.time() * 1000)
        return AddAction(file, path.stat().st_size, {}, now, True, stats)


def _check_table(table: DeltaTable) -> None:
    """Raise ValueError if what the log would say of our files were wrong."""
    partitioned, needs = table.metadata().partition_columns, table.protocol()
    if partitioned:
        raise ValueError(f"it has partition columns ({', '.join(partitioned)})")
    more = set(needs.writer_features or ()) - FEATURES
    if more or 2 < needs.min_writer_version < 7:
        raise ValueError(
            f"it asks more of a writer (version {needs.min_writer_version}) than this one can: "
            f"{', '.join(sorted(more)) or 'constraints, column mapping or generated columns'}"
        )
    if invariants := [f.name for f in table.schema().fields if "delta.invariants" in f.metadata]:
        raise ValueError(f"it has invariants, of {', '.join(invariants)}")


def _check_columns(file: Path, table: DeltaTable, *, exactly: bool) -> None:
    """Raise ValueError if the table cannot be read with this file, or a column would be null
    because of its name. Not `exactly`, it may have got a column since."""
    from deltalake import Schema
    from pyarrow import parquet

    mine = _kinds(Schema.from_arrow(parquet.read_schema(file)))
    there = _kinds(table.schema())
    fit = all(name in there and _fits(kind, there[name]) for name, kind in mine.items())
    if not fit or (exactly and len(mine) != len(there)):
        raise ValueError(f"its columns are {_shown(there)}, and those of the rows {_shown(mine)}")


def _kinds(schema: Schema) -> dict[str, Any]:
    return {field.name: json.loads(field.type.to_json()) for field in schema.fields}


def _fits(mine: Any, there: Any) -> bool:
    """Whether a column takes values of another type: the same, or one without nulls inside."""
    if isinstance(mine, dict) and isinstance(there, dict):
        return all(_fits(of, there.get(key)) for key, of in mine.items() if key != "metadata")
    if isinstance(mine, list) and isinstance(there, list):
        return len(mine) == len(there) and all(map(_fits, mine, there))
    if isinstance(mine, bool):  # whether there may be nulls
        return there is True or mine is there
    return bool(mine == there)


def _shown(columns: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in sorted(columns.items()))


def _write(
    path: Path, write: Callable[[BinaryIO], Any], check: Callable[[Path], None] | None = None
) -> None:
    """Whole or not at all, and durable."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(new)
        new.rename(path)
    finally:
        new.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _version(marker: bytes) -> int:
    """63 bits of its digest: a `txn` holds a whole number."""
    return int.from_bytes(hashlib.sha256(marker).digest()[:8], "big") >> 1
