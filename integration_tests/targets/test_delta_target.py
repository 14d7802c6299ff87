"""What others do to a Delta table that the example of docs/targets.md writes, and tables that it
must refuse: what it commits can be read, now and later."""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import target_places  # noqa: F401 - the examples can be imported then
from eo_kafka.errors import SinkError
from eo_kafka.targets import MarkerChanged

# isort: split
from delta_target import DeltaTarget

from target_job import delta_job
from target_places import SCHEMA, delta_rows

WRITER, NAME = "eo-a", "eo-a-1-0-0"
GOOD = pa.table({"id": [1, 2], "word": ["a", "b"]}, schema=SCHEMA)


def write(path: str, rows: pa.Table) -> None:
    """As the first batch."""
    target = DeltaTarget({"path": path})
    target.stage(NAME, 0, rows)
    target.apply(WRITER, {NAME: 1}, None, b"after")
    target.discard([NAME])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (pa.table({"id": [1]}), "and those of the rows id long"),
        (pa.table({"id": [1], "word": ["a"], "more": [1]}), "more long"),
        (pa.table({"ID": [1], "word": ["a"]}), "ID long"),
        (pa.table({"id": ["x"], "word": ["a"]}), "id string"),
        (pa.table({"id": [[1]], "word": ["a"]}), "'type': 'array'"),
    ],
    ids=["missing", "more", "case", "type", "nested"],
)
def test_rows_that_the_table_cannot_take_are_refused(tmp_path, rows, said):
    DeltaTable.create(str(tmp_path / "t"), SCHEMA)
    with pytest.raises(ValueError, match=said):
        write(str(tmp_path / "t"), rows)
    write(str(tmp_path / "t"), GOOD)
    assert len(delta_rows(str(tmp_path / "t"))) == 2
    assert sorted(one.name for one in (tmp_path / "t" / "_eo_kafka_staged").iterdir()) == []


def test_tables_that_ask_for_more_are_refused(tmp_path):
    path = str(tmp_path / "partitioned")
    DeltaTable.create(path, SCHEMA, partition_by=["word"])
    with pytest.raises(ValueError, match=r"partition columns \(word\)"):
        write(path, GOOD)
    path = str(tmp_path / "constrained")
    DeltaTable.create(path, SCHEMA).alter.add_constraint({"large": "id > 1"})
    with pytest.raises(ValueError, match="constraints"):
        write(path, GOOD)
    path = str(tmp_path / "no nulls")
    DeltaTable.create(path, pa.schema([SCHEMA.field("id").with_nullable(False), SCHEMA[1]]))
    with pytest.raises(SinkError, match="'id' takes no nulls"):
        write(path, pa.table({"id": [1, None], "word": ["a", "b"]}, schema=SCHEMA))


def test_all_kinds_of_columns_come_back(tmp_path):
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    local = pa.timestamp("us", "Europe/Paris")
    columns = {
        "time": pa.array([at, None], local),
        "times": pa.array([[at], None], pa.list_(local)),
        "naive": pa.array([at.replace(tzinfo=None), None], pa.timestamp("us")),
        "price": pa.array([Decimal("1.20"), None], pa.decimal128(10, 2)),
        "small": pa.array([1, None], pa.int8()),
        "bytes": pa.array([b"\xff", None]),
        "nested": pa.array([{"a": [1], "b": "x"}, None]),
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32())),
        "large": pa.array(["a", None], pa.large_string()),
    }
    utc = {"time": pa.timestamp("us", "UTC"), "times": pa.list_(pa.timestamp("us", "UTC"))}
    # Spark says of many arrays that they hold no nulls
    full = pa.list_(pa.field("element", pa.int64(), nullable=False))
    columns["full"] = pa.array([[1], None], full)
    utc["full"] = pa.list_(pa.int64())
    schema = pa.schema([(name, utc.get(name, of.type)) for name, of in columns.items()])
    DeltaTable.create(str(tmp_path / "t"), schema)
    rows = pa.table(columns)
    write(str(tmp_path / "t"), rows)
    assert DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist() == rows.to_pylist()


def test_files_that_somebody_compacted_stay_for_readers_of_an_older_version(tmp_path, broker):
    job = delta_job(tmp_path, broker.bootstrap_servers)
    job.run(0, 1)
    table = DeltaTable(job.database)
    table.optimize.compact()
    assert job.left() == []
    job.run(2)
    older = DeltaTable(job.database, version=table.version() - 1)
    assert Counter(map(tuple, map(dict.values, older.to_pyarrow_table().to_pylist()))) == (
        job.expected(0, 1)
    )
    assert job.there() == job.expected(0, 1, 2)


def test_vacuum_and_checkpoints_take_neither_what_is_staged_nor_the_marker(tmp_path, broker):
    job = delta_job(tmp_path, broker.bootstrap_servers)
    job.run(0)
    job.prepare(1)
    table = DeltaTable(job.database)
    table.create_checkpoint()
    table.cleanup_metadata()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    job.commit(1)
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)


def test_a_marker_is_read_while_another_driver_commits(tmp_path):
    path = str(tmp_path / "t")
    DeltaTable.create(path, SCHEMA)
    write(path, GOOD)

    class Late(DeltaTarget):
        """Another driver commits once this one has looked at the table."""

        between: tuple[bytes, bytes] | None = None

        def _table(self):
            table = super()._table()
            if self.between is not None:
                before, after = self.between
                self.between = None
                DeltaTarget({"path": path}).apply(WRITER, {}, before, after)
            return table

    late = Late({"path": path})
    late.between = (b"after", b"next")
    assert late.marker(WRITER) == b"next"
    late.between = (b"next", b"theirs")
    with pytest.raises(MarkerChanged):
        late.apply(WRITER, {}, b"next", b"mine")
    assert late.marker(WRITER) == b"theirs"


def test_a_marker_whose_file_was_removed_by_hand_is_told(tmp_path):
    path = tmp_path / "t"
    DeltaTable.create(str(path), SCHEMA)
    write(str(path), GOOD)
    for file in path.glob(f"_eo_kafka_{WRITER}-*"):
        file.unlink()
    with pytest.raises(FileNotFoundError):
        DeltaTarget({"path": str(path)}).marker(WRITER)


def test_another_writer_at_the_same_time_takes_nothing_away(tmp_path, broker):
    job = delta_job(tmp_path, broker.bootstrap_servers)
    ended, others = threading.Event(), 0

    def write_others() -> None:
        nonlocal others
        while not ended.wait(0.01):
            write_deltalake(job.database, GOOD, mode="append")
            others += 1

    writing = threading.Thread(target=write_others)
    writing.start()
    try:
        job.run(0, 1, 2, 3)
    finally:
        ended.set()
        writing.join(60)
    assert others
    mine = Counter(dict.fromkeys(delta_rows_of(GOOD), others))
    assert job.there() == job.expected(0, 1, 2, 3) + mine


def delta_rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]
