"""Rows with bad records, given to a sink that sends no dead letters: refused at the start."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StructType

from eo_kafka.connectors.files.format import FilesDataSource
from eo_kafka.connectors.foreach_batch import BATCH
from eo_kafka.connectors.maps.format import MapDataSource
from eo_kafka.connectors.tables.format import PostgresDataSource
from eo_kafka.connectors.targets.format import TargetDataSource
from eo_kafka.core.errors import OptionsError
from eo_kafka.formats import bad_records

KAFKA = {"kafka.bootstrap.servers": "127.0.0.1:1", "jobName": "j"}
TABLE = {**KAFKA, "url": "postgresql://w:x@127.0.0.1:1/d", "table": "t"}
IMAP = {"backend": "hazelcast", "map": "m", "hazelcast.members": "127.0.0.1:1"}
FILES = {**KAFKA, "path": "/nowhere"}
TARGET = {**KAFKA, "target": "file_target:FileTarget", "target.path": "/nowhere"}
MAPS = [
    (MapDataSource, {**KAFKA, "backend": "kafka", "map": "m"}),
    (MapDataSource, IMAP),
    (MapDataSource, {**KAFKA, **IMAP, "commit": "two-phase"}),
]
OTHERS = [(FilesDataSource, FILES), (PostgresDataSource, TABLE), (TargetDataSource, TARGET)]

RAW = StructType().add("key", BinaryType()).add("value", BinaryType())
COMMENT = {"comment": bad_records.comment("dead")}


def with_bad_records(name: str = "_bad_record", metadata: dict[str, str] | None = None):
    schema = StructType([*RAW.fields])
    return schema.add(name, bad_records.spark_type(), metadata=metadata)


def starts(source, given, schema) -> None:
    """As a stream, and as a batch of `eo_kafka.foreach_batch`."""
    options = {name.lower(): value for name, value in given.items()}
    source(options).streamWriter(schema, overwrite=False)
    source({**options, BATCH.lower(): "0"}).writer(schema, overwrite=False)


def problem(source, given, schema, batch: bool) -> str:
    options = {name.lower(): value for name, value in given.items()}
    with pytest.raises(OptionsError) as stop:
        if batch:
            source({**options, BATCH.lower(): "0"}).writer(schema, overwrite=False)
        else:
            source(options).streamWriter(schema, overwrite=False)
    return str(stop.value)


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize(("source", "given"), [*MAPS, *OTHERS])
def test_dead_letters_that_nobody_would_send(source, given, batch) -> None:
    told = problem(source, given, with_bad_records(metadata=COMMENT), batch)
    assert "in topic 'dead'" in told and f"format '{source.name()}'" in told
    assert "_bad_record IS NULL" in told and "eo_kafka.foreach_batch" in told


@pytest.mark.parametrize(("source", "given"), MAPS)
def test_bad_records_would_remove_keys_from_a_map(source, given) -> None:
    told = problem(source, given, with_bad_records(), batch=False)
    assert "removes its key from a map" in told and "_bad_record IS NULL" in told


@pytest.mark.parametrize(("source", "given"), MAPS)
def test_a_saved_map_is_no_exception(source, given) -> None:
    if "commit" not in given:
        given = {name: value for name, value in given.items() if name != "jobName"}
        with pytest.raises(OptionsError, match="in topic 'dead'"):
            source({name.lower(): value for name, value in given.items()}).writer(
                with_bad_records(metadata=COMMENT), overwrite=False
            )


@pytest.mark.parametrize(("source", "given"), [*MAPS, *OTHERS])
def test_whoever_leaves_the_column_out_or_renames_it_has_seen_it(source, given) -> None:
    starts(source, given, RAW)
    starts(source, given, with_bad_records("bad", COMMENT))  # Spark keeps the comment of an alias


@pytest.mark.parametrize(("source", "given"), OTHERS)
def test_where_each_column_is_kept_permissive_keeps_bad_records(source, given) -> None:
    starts(source, given, with_bad_records())
