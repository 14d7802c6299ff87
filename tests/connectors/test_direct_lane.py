"""The direct lane's ranges as rows, and which transforms are taken."""

from __future__ import annotations

import pickle
import threading
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import BinaryType, StringType, StructType

from eo_kafka.connectors import plain_errors
from eo_kafka.connectors.direct import start
from eo_kafka.connectors.direct.format import format_for
from eo_kafka.connectors.direct.lane import Lane, LaneRead, range_rows, ranges_of
from eo_kafka.connectors.direct.sinks import LaneStreamWriter
from eo_kafka.connectors.direct.start import columns_to_write
from eo_kafka.connectors.kafka_sink import KafkaStreamWriter
from eo_kafka.connectors.maps.writers import (
    ImapStreamWriter,
    ImapTwoPhaseWriter,
    TopicMapStreamWriter,
)
from eo_kafka.connectors.tables.writers import TableStreamWriter
from eo_kafka.connectors.targets.writers import TargetStreamWriter
from eo_kafka.core.errors import OptionsError, SinkError
from eo_kafka.core.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from eo_kafka.formats import bad_records, reading
from eo_kafka.formats.options import FormatOptions
from eo_kafka.formats.reading import Reading
from eo_kafka.formats.writing import Writing
from eo_kafka.sources import reader
from eo_kafka.sources.settings.options import SourceOptions

OPTIONS = SourceOptions.parse(
    {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}, streaming=True
)
RANGES = [
    OffsetRange(TopicPartition("t", 0), 5, 2**62),
    OffsetRange(TopicPartition("no-id", 3), EARLIEST, LATEST),
]
VALUE = StructType().add("value", BinaryType())


def lane(transform=None) -> Lane:
    raw = OPTIONS.schema()
    return Lane(OPTIONS, Reading(FormatOptions((), None), raw, raw), transform, VALUE)


@pytest.fixture
def read_rows(monkeypatch):
    """Makes a task read so many batches of two records; its rows."""

    def run(batches: int, transform=None) -> list[bytes]:
        def read(options, ranges, ids):
            assert (ranges, ids) == (RANGES, {"t": "id"})
            for number in range(batches):
                yield pa.record_batch({"value": [b"%d" % number, b"x"]})

        monkeypatch.setattr(reader, "read_ranges", read)
        task = LaneRead(lane(transform))
        rows = task.rows(iter([range_rows(RANGES, {"t": "id"})]))
        found = [value for batch in rows for value in batch["value"].to_pylist()]
        assert task.records == 2 * batches
        return found

    return run


def test_ranges_come_back_from_their_rows() -> None:
    rows = range_rows(RANGES, {"t": "id", "other": "id2"})
    assert ranges_of(iter([rows])) == (RANGES, {"t": "id"})
    assert ranges_of(iter([])) == ([], {})


def test_a_copy_is_what_was_read(read_rows) -> None:
    assert read_rows(2) == [b"0", b"x", b"1", b"x"]
    assert read_rows(0) == []


def test_a_transform_may_hand_back_what_it_was_given(read_rows) -> None:
    """As with mapInArrow."""
    assert read_rows(2, lambda batches: batches) == [b"0", b"x", b"1", b"x"]


def first_only(batches):
    yield next(batches)


def closes(batches):
    yield next(batches)
    batches.close()


def test_a_transform_may_end_with_the_last_batch_and_not_before(read_rows) -> None:
    assert read_rows(1, first_only) == [b"0", b"x"]
    for transform in (first_only, closes):
        with pytest.raises(SinkError, match="left others unread"):
            read_rows(2, transform)


def test_a_step_that_ends_the_iterator_is_no_filter(read_rows) -> None:
    """`next` of nothing raises StopIteration, which `map` takes for its end: nothing is said."""

    def drops(batches):
        for _ in batches:
            pass
        return iter(())

    assert read_rows(2, drops) == []
    assert read_rows(0, lambda _: iter(())) == []
    for batches in (1, 2):
        with pytest.raises(SinkError, match=r"StopIteration|left others unread"):
            read_rows(batches, partial(map, lambda _: next(iter(()))))


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (pa.table({"value": [b"1"]}), "The transform gave a Table and not a pyarrow.RecordBatch"),
        (pa.record_batch({"key": [b"1"]}), r"gave no column \['value'\]; it gave \['key'\]"),
        (pa.record_batch({"value": [[1]]}), "'value' is of type list.* written as binary"),
    ],
)
def test_what_cannot_be_written_is_refused(read_rows, made, sentence) -> None:
    def transform(batches):
        for _ in batches:
            yield made

    with pytest.raises(SinkError, match=sentence):
        read_rows(1, transform)


def test_a_lane_travels_with_its_function() -> None:
    """As Spark pickles it: by value, since no module holds the class."""
    tag = b"tagged"

    def tagged(batches):
        for batch in batches:
            yield pa.record_batch({"value": [tag] * batch.num_rows})

    sent = pickle.loads(cloudpickle.dumps(format_for(lane(tagged))))
    (made,) = sent.lane.transform(iter([pa.record_batch({"value": [b"1", b"2"]})]))
    assert made["value"].to_pylist() == [tag, tag]


class Session:
    """Stands in for Spark's: what it is told of, it keeps for ever."""

    def __init__(self) -> None:
        self.formats: list[type] = []

    @property
    def dataSource(self) -> Session:
        return self

    def register(self, made: type) -> None:
        self.formats.append(made)


def test_what_a_session_has_it_is_not_told_again() -> None:
    """An application may start a lane each minute, for years."""
    model = {"large": 1}
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    session = Session()

    def names(*transforms: object, spark: Session = session) -> list[str]:
        made = (start._format(spark, given, one, VALUE, 4, True) for one in transforms)  # type: ignore[arg-type]
        return [one.name() for one in made]

    def by(factor: int):
        return lambda batches: (one for one in batches if factor and model)

    first, again, other, none = names(by(1), by(1), by(2), None)
    assert first == again
    assert len({first, other, none}) == len(session.formats) == 3
    model["large"] = 2  # a writer that was made before must not get it
    assert names(by(1), by(1)) == [session.formats[-1].name()] * 2 != [first] * 2
    assert names(by(1), spark=Session()) == [session.formats[-1].name()]
    assert len(session.formats) == 4


def test_what_cannot_be_pickled_is_left_to_spark() -> None:
    lock = threading.Lock()
    one, two = (format_for(lane(lambda batches: batches if lock else ())) for _ in "12")
    assert one.name() != two.name()


KAFKA = {"kafka.bootstrap.servers": "127.0.0.1:1", "jobName": "j"}
TABLE = {"url": "postgresql://w:s3cr3t@127.0.0.1:1/d", "table": "t"}
IMAP = {"backend": "hazelcast", "map": "m", "hazelcast.members": "127.0.0.1:1"}
RAW = StructType().add("key", BinaryType()).add("value", BinaryType())


def source_of(given: dict[str, str], schema: StructType = RAW):
    """What Spark makes of a lane's format; options come in lower case."""
    raw = OPTIONS.schema()
    made = Lane(OPTIONS, Reading(FormatOptions((), None), raw, raw), None, schema)
    return format_for(made)({name.lower(): value for name, value in given.items()})


@pytest.mark.parametrize(
    ("given", "inner"),
    [
        ({**KAFKA, "topic": "t"}, KafkaStreamWriter),
        ({**KAFKA, **TABLE}, TableStreamWriter),
        ({**KAFKA, **IMAP, "commit": "two-phase"}, ImapTwoPhaseWriter),
        (IMAP, ImapStreamWriter),
        ({**KAFKA, "backend": "kafka", "map": "m"}, TopicMapStreamWriter),
        (
            {**KAFKA, "target": "file_target:FileTarget", "target.path": "/nowhere"},
            TargetStreamWriter,
        ),
    ],
)
def test_the_options_say_which_writer_the_lane_fills(given, inner) -> None:
    made = source_of(given).streamWriter(StructType(), overwrite=False)
    assert type(made) is LaneStreamWriter
    assert type(made._sink) is inner


BAD = StructType([*RAW.fields]).add(
    "_bad_record", bad_records.spark_type(), metadata={"comment": bad_records.comment("dead")}
)
PERMISSIVE = StructType([*RAW.fields]).add("_bad_record", bad_records.spark_type())


@pytest.mark.parametrize(
    ("given", "schema", "sentences"),
    [
        ({**KAFKA, **TABLE, "keys": "id"}, BAD, ["Mode DEADLETTER", "Option 'keys' names 'id'"]),
        (IMAP, PERMISSIVE, ["removes its key from a map"]),
        ({**KAFKA, "topic": "o"}, PERMISSIVE, ["from a compacted topic", "or DEADLETTER"]),
        ({"backend": "kafka", "map": "m"}, BAD, ["Mode DEADLETTER", "bootstrap.servers"]),
        ({**KAFKA, "tabel": "t", "topic": "o"}, RAW, ["'tabel': did you mean 'table'?"]),
        ({**KAFKA, **TABLE, "value.format": "json"}, RAW, ["'value.format' of the sink is for"]),
        ({**KAFKA, **TABLE, **IMAP}, RAW, ["'backend' and 'table' say two formats"]),
    ],
)
def test_what_a_sink_cannot_do_is_told_with_all_that_is_wrong(
    given, schema, sentences, monkeypatch
) -> None:
    monkeypatch.setattr(plain_errors, "is_sparks", lambda: True)
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    with pytest.raises(OptionsError) as stop:
        source_of(given, schema).streamWriter(StructType(), overwrite=False).commit([], 0)
    told = str(stop.value)
    assert not [one for one in sentences if one not in told], told
    assert "s3cr3t" not in told


def test_what_cannot_be_read_is_not_copied_as_a_null_whatever_the_schema_names() -> None:
    formats = FormatOptions.of_reader({"value.format": "string", "mode": "PERMISSIVE"})
    raw = OPTIONS.schema()
    columns = reading.schema(formats, raw)
    made = Lane(OPTIONS, Reading(formats, raw, columns), None, RAW)
    given = {"kafka.bootstrap.servers": "a:1", "topic": "o", "jobname": "j"}
    with pytest.raises(OptionsError, match="from a compacted topic"):
        format_for(made)(given).streamWriter(StructType(), overwrite=False)
    left_out = replace(made, transform=lambda batches: batches)
    format_for(left_out)(given).streamWriter(StructType(), overwrite=False)


@pytest.mark.parametrize(
    "kind", [StringType(), StructType().add("topic", StringType()), bad_records.spark_type()]
)
def test_dead_letters_have_the_type_by_which_the_sink_knows_them(kind) -> None:
    """Of another type, or without the comment, a bad record would be a null among the good."""
    asked = StructType().add("_bad_record", kind).add("value", StringType())
    written = columns_to_write(asked, BAD, dead_letters=True)
    assert written.names == ["_bad_record", "value"]
    assert (written["_bad_record"], written["value"]) == (BAD["_bad_record"], asked["value"])
    assert bad_records.goes_to(written) == "dead"
    assert Writing.of(FormatOptions((), None), written).routes
    assert columns_to_write(VALUE, BAD, dead_letters=True).names == ["value", "_bad_record"]
    assert columns_to_write(asked, BAD, dead_letters=False) == asked
    assert columns_to_write(None, BAD, dead_letters=True) == BAD


def test_a_batch_into_a_table_needs_its_number() -> None:
    with pytest.raises(OptionsError, match="needs option 'batchId'"):
        source_of({**KAFKA, **TABLE}).writer(StructType(), overwrite=False)


def test_whoever_takes_the_records_for_a_dataframe_is_told(read_rows) -> None:
    for step in ("groupBy", "dropDuplicates", "withColumn", "join"):
        with pytest.raises(SinkError, match=f"asked for '{step}', which is a step of a DataFrame"):
            read_rows(1, lambda batches, step=step: getattr(batches, step)("key"))
    with pytest.raises(AttributeError):
        read_rows(1, lambda batches: batches.nonsense)
    with pytest.raises(SinkError, match="gave a NoneType and not an iterator"):
        read_rows(1, lambda batches: None)
    with pytest.raises(SinkError, match="gave a RecordBatch and not an iterator"):
        read_rows(1, next)
