"""`format("eo-files")` without Kafka: options, manifests, columns, and what the commands say."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from eo_kafka.core.errors import LedgerError, OptionsError, SinkError
from eo_kafka.sinks.files.options import read_options, read_target
from eo_kafka.targets.files.columns import column_problems
from eo_kafka.targets.files.formats import read, written
from eo_kafka.targets.files.manifest import (
    DataFile,
    Manifest,
    chunk_file,
    clashes,
    merged,
    misplaced,
    misread,
    names_of,
    staged_name,
    successor,
)
from eo_kafka.tools.explain import facts
from eo_kafka.tools.explain.pipeline import End
from eo_kafka.tools.job_command import _OWN
from eo_kafka.tools.transactions.staged_tables import target_of

GIVEN = {"path": "/nowhere/t", "jobName": "j", "kafka.bootstrap.servers": "localhost:1"}
ROWS = StructType().add("id", LongType(), nullable=False).add("word", StringType())


def test_options_are_told_all_at_once() -> None:
    rows = StructType().add("Batch", LongType()).add("x", LongType()).add("X", LongType())
    with pytest.raises(OptionsError) as told:
        read_options({**GIVEN, "path": "here", "fileFormat": "orc", "commit": "idempotent"}, rows)
    for said in ("whole path", "must be one of", "'commit' is", "Column 'Batch'", "are one to"):
        assert said in str(told.value)
    with pytest.raises(OptionsError, match="did you mean 'fileFormat'"):
        read_options({**GIVEN, "fileFormt": "csv"}, ROWS)
    with pytest.raises(OptionsError, match="'guarantee' is 'none'"):
        read_options({**GIVEN, "guarantee": "none"}, ROWS)


@pytest.mark.parametrize("path", ["s3://", "s3://key:secret@bucket/x", "s3://b/x?key=secret"])
def test_a_url_that_may_hold_a_secret_is_refused_and_not_shown(path: str) -> None:
    with pytest.raises(OptionsError, match="must be s3://bucket/prefix") as told:
        read_options({**GIVEN, "path": path}, ROWS)
    assert "secret" not in str(told.value)


def test_a_path_that_no_ledger_could_hold_is_refused() -> None:
    assert read_options({**GIVEN, "path": "/n/" + "x" * 900}, ROWS)
    with pytest.raises(OptionsError, match="name has 1113 bytes, more than 1000"):
        read_options({**GIVEN, "path": "/n/" + "ü" * 550}, ROWS)


def test_a_url_of_another_machine_is_no_directory_here() -> None:
    assert read_target({"path": "file:/n"}).place == read_target({"path": "file:///n"}).place
    with pytest.raises(OptionsError, match="'path' must be file:///path"):
        read_target({"path": "file://n/t"})


def test_a_column_of_the_topic_is_none_of_the_files() -> None:
    rows = StructType().add("id", LongType()).add("key", StringType()).add("value", StringType())
    _, target = read_options({**GIVEN, "topic": "t"}, rows)
    assert names_of(target.settings["schema"]) == ["id"]
    _, target = read_options(GIVEN, rows)
    assert names_of(target.settings["schema"]) == ["id", "key", "value"]


def test_files_are_named_by_chunk_and_rows() -> None:
    file = chunk_file("eo-a-b-1-0-17", 2, 50, "parquet")
    assert staged_name(file) == ("eo-a-b-1-0-17", 2)
    assert DataFile(file, 9).rows == 50
    assert staged_name("notes.txt") is None


def test_a_manifest_is_what_it_was() -> None:
    first = successor(None, "eo-a", b"\xff1", ROWS.json(), [DataFile("eo-a-0-5.csv", 9)])
    assert Manifest.decoded(first.encoded(), "here") == first
    second = successor(first, "eo-b", b"2", "", [])
    assert (second.marker("eo-a"), second.marker("eo-b"), second.files) == (b"\xff1", b"2", ())
    assert second.sequence == first.sequence + 1
    for raw in (b"", b"[]", b"{}", first.encoded().replace(b'"format": 1', b'"format": 2')):
        with pytest.raises(LedgerError, match="Manifest here is not what this version"):
            Manifest.decoded(raw, "here")


def test_columns_are_added_and_never_changed() -> None:
    known, more = ROWS.json(), StructType().add("id", LongType()).add("new", StringType()).json()
    assert clashes(known, more) == []
    assert names_of(merged(known, more)) == ["id", "word", "new"]
    assert merged("", more) == merged(more, "") == more
    other = StructType().add("ID", LongType()).add("word", IntegerType()).json()
    assert len(clashes(known, other)) == 2


def test_a_column_that_no_row_has_is_not_read_as_null() -> None:
    """A misspelt one would be null in silence. One that was added is null in older files."""
    asked = StructType().add("id", LongType()).add("wrod", StringType()).add("x", LongType())
    assert misread(ROWS.json(), asked.json()) == [
        "Column 'wrod' is in no file: their columns are 'id', 'word'.",
        "Column 'x' is in no file: their columns are 'id', 'word'.",
    ]
    assert misread("", asked.json()) == []  # no row yet


def test_types_that_a_format_does_not_keep() -> None:
    odd = {
        "span": "interval day to second",
        "any": "variant",
        "bytes": "binary",
        "map": {"type": "map", "keyType": "long", "valueType": "string"},
        "list": {"type": "array", "elementType": {"type": "udt", "sqlType": "string"}},
        "twice": {"type": "struct", "fields": [{"name": n, "type": "string"} for n in "aA"]},
    }
    schema = json.dumps({"fields": [{"name": name, "type": of} for name, of in odd.items()]})
    wrong = {"parquet": ("span", "any", "list", "twice")}
    wrong["json"] = ("span", "any", "map", "list", "twice")
    for file_format, names in {**wrong, "csv": tuple(odd)}.items():
        found = column_problems(file_format, schema)
        assert [one.split("'")[1] for one in found] == list(names)


@pytest.mark.parametrize("file_format", ["parquet", "json", "csv"])
@pytest.mark.parametrize(
    "values",
    [[None, "", "a"], ["a", None], [None], ["\n\n", '"', "\\", ",", " x "], ["x" * 3_000_000]],
    ids=["nothing", "null last", "null", "odd", "long"],
)
def test_odd_texts_come_back(file_format: str, values: list[str | None]) -> None:
    rows = pa.table({"word": pa.array(values, pa.string())})
    source = pa.BufferReader(written(file_format, rows))
    found = read(f"f.{file_format}", source, StructType().add("word", StringType()))
    assert pa.Table.from_batches(found) == rows


LATE, ODD = pa.array([2_932_897], pa.date32()), pa.array([b"\xff"]).cast(pa.string(), safe=False)
JUST_ONE = pa.array([0, 1], pa.int32())  # offsets


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (pa.array([2_932_897, None], pa.date32()), "a year that is not 1 to 9999"),
        (pa.array([0, -62_135_596_800_000_001], pa.timestamp("us", "Asia/Tokyo")), "a year that"),
        (pa.array([253_402_300_800_000_000], pa.timestamp("us")), "a year that is not"),
        (pa.concat_arrays([pa.array(["a"]), ODD]), "text that is not UTF-8"),
        (ODD.cast(pa.large_string()), "text that is not UTF-8"),
    ],
    ids=["date", "instant", "local", "text", "large text"],
)
@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_what_could_not_be_read_again_is_refused_for_good(
    file_format: str, values: pa.Array, said: str
) -> None:
    rows = pa.table({"fine": pa.nulls(len(values), pa.int64()), "odd": values})
    with pytest.raises(SinkError, match=f"^Column 'odd' has .*{said}") as told:
        written(file_format, rows)
    assert not told.value.retriable


@pytest.mark.parametrize(
    "values",
    [
        pa.StructArray.from_arrays([LATE], ["x"]),
        pa.ListArray.from_arrays(JUST_ONE, ODD),
        pa.MapArray.from_arrays(JUST_ONE, ODD, pa.array([1])),
        pa.MapArray.from_arrays(JUST_ONE, pa.array(["k"]), LATE),
    ],
    ids=["struct", "array", "key", "map"],
)
def test_json_refuses_it_within_a_column_too(values: pa.Array) -> None:
    with pytest.raises(SinkError, match="^Column 'odd' has "):
        written("json", pa.table({"fine": [1], "odd": values}))


def test_a_struct_that_is_null_may_have_fields_that_never_are() -> None:
    inner = pa.struct([pa.field("j", pa.int64(), nullable=False)])
    deep = pa.StructArray.from_arrays(
        [pa.array([1, None])], fields=list(inner), mask=pa.array([False, True])
    )
    source = pa.BufferReader(written("parquet", pa.table({"deep": deep})))
    wanted = StructType().add("deep", StructType().add("j", LongType()))
    found = pa.Table.from_batches(read("f.parquet", source, wanted))
    assert found.to_pylist() == [{"deep": {"j": 1}}, {"deep": None}]


def test_columns_of_csv_keep_their_places() -> None:
    known = ROWS.json()
    more = StructType.fromJson(json.loads(known)).add("new", StringType())
    turned = StructType([*reversed(ROWS.fields)])
    assert misplaced(known, known) == misplaced(known, more.json()) == misplaced("", known) == []
    for other in (turned, StructType([more["new"], *ROWS]), StructType([ROWS["word"]])):
        assert "select those first, in their order" in misplaced(known, other.json())[0]


def test_the_commands_know_files(tmp_path) -> None:
    config = tmp_path / "config"
    config.write_text("path=/nowhere/t\n")
    assert _OWN["path"].read_target({"path": "/nowhere/t"}) == read_target({"path": "/nowhere/t"})
    assert read_target({"path": "/nowhere/t"}).place == "directory /nowhere/t"
    with pytest.raises(OptionsError, match="_eo_files/staged"):
        target_of(config)
    fact = facts.sink_fact(End.of("eo-files", {"path": "/nowhere/t"}))
    assert fact.allows is facts.EXACT
    assert "honour the manifest" in fact.needs


@pytest.mark.parametrize("kind", [pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")])
def test_csv_has_the_years_from_1_to_9999_and_makes_no_other_of_one_that_is_none(
    kind: pa.DataType,
) -> None:
    """Arrow counts years in 16 bits, round and round: 67536 looked like 2000."""
    first, end, far = -719_162, 2_932_897, 23_947_489  # days

    def csv(days: int, microseconds: int = 0) -> bytes:
        times = pa.array([days * 86_400_000_000 + microseconds]).cast(pa.timestamp("us"))
        return bytes(written("csv", pa.table([times.cast(kind)], names=["at"])))

    for days, more in ((first, 0), (end, -1)):
        assert b"value out of range" not in csv(days, more)
    for days, more in ((first, -1), (end, 0), (far, 0)):
        with pytest.raises(SinkError, match="a year that is not 1 to 9999"):
            csv(days, more)
