"""Rows as files, and back: Parquet; JSON, an object a line; CSV, with a line of names. Executor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...core.errors import SinkError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PARQUET, JSON, CSV = "parquet", "json", "csv"
_JSON_ROWS = 10_000  # decoded at once
_NO_YEAR, _NO_TEXT = "a year that is not 1 to 9999", "text that is not UTF-8"
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999, counted from 1970


def written(ending: str, rows: pa.Table) -> pa.Buffer:
    """A whole file. Raises SinkError for what could be written, and not be read again."""
    import pyarrow as pa

    to = pa.BufferOutputStream()
    if ending == PARQUET:
        from pyarrow import parquet

        from ...formats.shared.arrow_types import nullable

        # Without Arrow's own schema: times are in UTC, whatever the session's zone is
        parquet.write_table(rows.cast(nullable(rows.schema)), to, store_schema=False)
    elif ending == CSV:
        from pyarrow import csv

        csv.write_csv(_for_csv(rows), to)
    else:
        import pyarrow.compute as pc

        from ...formats.json.texts import encoder

        encode = encoder(pa.struct(list(rows.schema)))
        for batch in rows.to_batches(_JSON_ROWS):
            try:
                texts = encode(batch.to_struct_array())
            except (OverflowError, ValueError) as error:  # Arrow's own are of these
                raise _refused_by_json(batch) or error from None
            to.write(pc.binary_join_element_wise(texts, b"\n", b"").buffers()[2])
    return to.getvalue()


def read(file: str, source: pa.NativeFile, wanted: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with the columns that are `wanted`; one that it lacks is null there.
    Raises SourceError, ArrowException for a file that somebody changed."""
    import pyarrow as pa

    from ...formats.shared.arrow_types import arrow_schema

    ending, schema = file.rpartition(".")[2], arrow_schema(wanted)
    if ending == PARQUET:
        from pyarrow import parquet

        opened = parquet.ParquetFile(source)
        there = set(opened.schema_arrow.names)
        names = [name for name in schema.names if name in there]
        found: Iterator[pa.RecordBatch] = opened.iter_batches(columns=names)
    elif ending == CSV:
        found = _csv(source, schema)
    else:
        found = _json(source, wanted)
    for batch in found:
        columns = [
            batch.column(field.name).cast(field.type)
            if field.name in batch.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in schema
        ]
        yield pa.record_batch(columns, schema=schema)


def _json(source: pa.NativeFile, wanted: StructType) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    from ...formats.json.column import JsonColumn

    decoded = JsonColumn(wanted)
    lines = source.read().split(b"\n")[:-1]
    for first in range(0, len(lines), _JSON_ROWS):
        column = decoded(pa.array(lines[first : first + _JSON_ROWS], pa.binary()))
        yield pa.RecordBatch.from_struct_array(column)


def _csv(source: pa.NativeFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Nothing is a null, and nothing in quotes an empty text."""
    from pyarrow import csv

    table = csv.read_csv(
        source,
        # One block: a row does not fit into two
        csv.ReadOptions(use_threads=False, block_size=source.size() + 1),
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            include_columns=schema.names,
            include_missing_columns=True,
        ),
    )
    yield from table.to_batches()


def _for_csv(rows: pa.Table) -> pa.Table:
    """Times in UTC; what is no number by the words that Spark's reader knows. Raises SinkError."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for index, field in enumerate(rows.schema):
        column = rows.column(index)
        if pa.types.is_timestamp(field.type) and field.type.tz is not None:
            column = column.cast(pa.timestamp("us", "UTC"))
        elif pa.types.is_floating(field.type) and not pc.all(pc.is_finite(column)).as_py():
            words = column.cast(pa.string())
            for arrows, sparks in (("nan", "NaN"), ("inf", "Infinity"), ("-inf", "-Infinity")):
                words = pc.if_else(pc.equal(words, arrows), sparks, words)
            column = words
        _check_readable(field.name, column)
        rows = rows.set_column(index, field.name, column)
    return rows


def _check_readable(name: str, column: pa.ChunkedArray) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_temporal(column.type):
        # Not by pc.year: it counts in 16 bits, round and round
        days = pc.min_max(column.cast(pa.date32()).cast(pa.int32()))
        first, last = days["min"].as_py(), days["max"].as_py()
        if first is not None and not _FIRST_DAY <= first <= last <= _LAST_DAY:
            raise _refused(name, _NO_YEAR)
    else:
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise _refused(name, f"{_NO_TEXT} ({error})") from None


def _refused_by_json(batch: pa.RecordBatch) -> SinkError | None:
    """For the first column that JSON does not take by itself."""
    import pyarrow as pa

    from ...formats.json.texts import encoder

    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            encoder(field.type)(column)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            return _refused(field.name, f"{_NO_TEXT} ({error})")
        except (OverflowError, ValueError):
            return _refused(field.name, _NO_YEAR)
    return None


def _refused(name: str, what: str) -> SinkError:
    return SinkError(
        f"Column '{name}' has {what}. CSV and JSON files keep no such value: have the query leave "
        "out or convert it (try_validate_utf8, year), or write Parquet (option 'fileFormat')."
    )
