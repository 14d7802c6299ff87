"""Names and types of a table's columns: whatever they are, a batch that is decided can be applied,
and nothing of a row is cut in silence."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from eo_kafka.errors import OptionsError, SinkError
from table_rows import TEXT

NO_TIME_ZONE = ("timestamp_ntz", pa.timestamp("us"))
TIME_ZONE = ("timestamp", pa.timestamp("us", "UTC"))
EVENING = datetime(2024, 1, 1, 23, 59, 59, 600_000)


@pytest.mark.parametrize("keys", ["", "a", "w,p"])
def test_a_column_may_have_any_name(rows_of, keys) -> None:
    names = ["a", "p", "s", "w", "n", "t", "newest", "written", "per%", "%s", "%(a)s", 'qu"', "x.y"]
    made = ", ".join('"{}" text'.format(name.replace('"', '""')) for name in names)
    key = f", PRIMARY KEY ({keys})" if keys else ""
    columns = dict.fromkeys((name for name in names if name != 'qu"'), TEXT)
    more = {"keys": keys, "operationColumn": "operation"} if keys else {}
    columns |= {"operation": TEXT} if keys else {}
    job = rows_of(made + key, columns, stagingSchema="%{schema}", **more)
    width = len(columns) - bool(keys)
    operation = ["upsert"] if keys else []
    job.write(
        [[f"{column}" for column in range(width)] + operation],
        [[f"{column + 100}" for column in range(width)] + operation],
    )
    assert job.there() == [
        tuple(f"{column}" for column in range(width)),
        tuple(f"{column + 100}" for column in range(width)),
    ]


def test_what_is_one_key_to_the_table_is_one_key_before_the_decision(rows_of) -> None:
    made = "id text COLLATE {schema}.no_case PRIMARY KEY, word text"
    columns = {"id": TEXT, "word": TEXT}
    job = rows_of(made, columns, keys="id")
    with pytest.raises(SinkError, match="rows of one key .* in several tasks"):
        job.write([["A", "1"]], [["a", "2"]])
    job.write([["A", "1"], ["a", "2"], ["b", "3"]])
    assert job.there() == [("a", "2"), ("b", "3")]


@pytest.mark.parametrize(
    ("made", "kind", "fits", "would_be_cut"),
    [
        ("varchar(3)", TEXT, "ab ", "ab  "),
        ("timestamp(3)", NO_TIME_ZONE, EVENING, EVENING.replace(microsecond=1)),
        (
            "timestamptz(1)",
            TIME_ZONE,
            EVENING.replace(tzinfo=UTC),
            EVENING.replace(microsecond=999_999, tzinfo=UTC),
        ),
    ],
)
def test_a_value_that_the_column_would_cut_is_refused_before_the_decision(
    rows_of, made, kind, fits, would_be_cut
) -> None:
    job = rows_of(f"column_of_a_length {made}", {"column_of_a_length": kind})
    with pytest.raises(SinkError, match=r"would cut or round a value.*Nothing of the batch is vis"):
        job.write([[fits], [would_be_cut]])
    assert job.there() == []
    job.write([[fits], [None]])
    assert job.there() == sorted([(fits,), (None,)], key=repr)


def test_a_column_of_names_is_refused_at_the_start(rows_of) -> None:
    job = rows_of("word name", {"word": TEXT})  # of 63 bytes: it cuts
    with pytest.raises(OptionsError, match="Column 'word' is string, and the table's is name"):
        job.write([["a" * 100]])


def test_text_that_looks_like_copys_own_words_arrives(rows_of) -> None:
    words = ["\\.", "\n\\.\n", "x\r\n\\.\r\ny", "\\N", "", "NULL", '"', "a,b\\", "\r", None]
    job = rows_of("word text", {"word": TEXT})
    job.write([[word] for word in words])
    assert job.there() == sorted([(word,) for word in words], key=repr)
