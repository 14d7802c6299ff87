"""Which of Spark's filters restrict a batch of a map, and which are not exact enough."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from eo_kafka.connectors.maps.backends import classes_of
from eo_kafka.connectors.maps.filters import is_exact, pushed
from eo_kafka.connectors.spark_versions import refuse_without_pushed_filters
from eo_kafka.errors import EnvironmentRefused, OptionsError
from eo_kafka.sources.maps.pushed import NOTHING_PUSHED, Comparison, Pushed

of = pytest.importorskip("pyspark.sql.datasource")
if not hasattr(of, "Filter"):
    pytest.skip("PySpark 4.0 tells a reader of no filters", allow_module_level=True)

GIVEN = {"map": "m", "backend": "hazelcast", "hazelcast.members": "a:5701"}
JSON = {"value.format": "json", "value.schema": "id BIGINT"}
INNER = t.StructType().add("n", "integer").add("a b", "integer").add("this", "integer")
VALUE = (
    t.StructType()
    .add("id", "long")
    .add("name", "string")
    .add("price", "double")
    .add("inner", INNER)
    .add("day", "date")
    .add("__key", "long")
)
SCHEMA = t.StructType().add("value", VALUE)


def of_filters(*filters: object, **more: str) -> Pushed:
    given = {**GIVEN, **JSON, **more}
    return pushed(filters, classes_of(given).options(given, False), SCHEMA)


def test_all_filters_hold_together() -> None:
    found = of_filters(
        of.In(("partition",), (1, 2, 3)),
        of.EqualTo(("partition",), 2),
        of.In(("key",), ("ab", "key-1")),
        of.GreaterThan(("value", "id"), 5),
        of.LessThanOrEqual(("value", "inner", "n"), 9),
        of.In(("value", "name"), ("ab", "cd")),  # not
    )
    assert found == Pushed(
        frozenset({2}),
        frozenset({"ab", "key-1"}),
        (
            Comparison("id", ">", (5,)),
            Comparison("inner.n", "<=", (9,)),
        ),
    )


@pytest.mark.parametrize(
    "one",
    [
        of.GreaterThan(("partition",), 2),
        of.Not(of.EqualTo(("partition",), 2)),
        of.EqualTo(("event",), "ADDED"),
        of.IsNull(("value", "id")),
        of.Not(of.GreaterThan(("value", "id"), 2)),  # members find nothing greater than null, too
        of.EqualNullSafe(("value", "id"), None),
        of.In(("value", "id"), (1, None)),
        of.EqualTo(("value", "price"), 1.5),
        of.EqualTo(("value", "name"), "ab"),
        of.GreaterThan(("value", "name"), "ab"),
        of.StringStartsWith(("value", "name"), "ab"),
        of.EqualTo(("value", "inner", "a b"), 1),
        of.EqualTo(("value", "inner", "this"), 1),
        of.EqualTo(("value", "__key"), 1),
        of.GreaterThan(("key",), "key-1"),
        *(
            of.EqualTo(("key",), text)
            # what is no text may have these forms
            for text in (
                "12",
                "-1.5",
                "a",
                "NaN",
                "Infinity",
                "true",
                "[1]",
                "2024-02-29",
                "00000000-0000-0000-0000-000000000007",
                "a0000000-0000-0000-0000-000000000007",
            )
        ),
    ],
    ids=repr,
)
def test_what_is_not_exact_is_spark_s(one) -> None:
    assert of_filters(one) == NOTHING_PUSHED
    assert not is_exact(one)


def test_only_partitions_are_not_looked_at_again() -> None:
    assert is_exact(of.EqualTo(("partition",), 2))
    assert is_exact(of.In(("partition",), (1, 2)))
    assert not is_exact(of.EqualTo(("key",), "key-1"))
    assert not is_exact(of.EqualTo(("value", "id"), 1))


def test_keys_and_values_that_are_not_of_these_formats_are_spark_s() -> None:
    for more in ({"key.format": "bytes"}, {"key.format": "json", "key.schema": "id INT"}):
        assert of_filters(of.EqualTo(("key",), "key-1"), **more) == NOTHING_PUSHED
    assert (
        of_filters(of.EqualTo(("value", "id"), 1), **{"value.format": "compact"}) == NOTHING_PUSHED
    )


def test_before_spark_4_1_the_option_is_refused(monkeypatch) -> None:
    monkeypatch.delattr(of, "Filter")
    with pytest.raises(EnvironmentRefused, match="'pushFilters' needs PySpark 4.1 or newer"):
        refuse_without_pushed_filters()


def test_streams_have_no_filters() -> None:
    with pytest.raises(OptionsError, match="'pushFilters' is for batches"):
        classes_of(GIVEN).options({**GIVEN, "pushFilters": "true"}, True)
