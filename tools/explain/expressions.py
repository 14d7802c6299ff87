"""Sorts Spark's expressions by what they give when a batch runs again. Driver, through py4j."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

# As tried: integration_tests/tools/test_explain.py `test_what_spark_keeps_with_a_batch`
BATCH_TIME = {"CurrentTimestamp", "LocalTimestamp", "CurrentDate", "CurrentBatchTimestamp"}
CLOCK = {"Now", "CurrentTime"}
SEEDED = {"Rand", "Randn", "Uuid", "Shuffle", "RandStr", "Uniform"}
PLACEMENT = {"SparkPartitionID", "MonotonicallyIncreasingID"}
# Spark takes them to be deterministic
ORDER = {
    *("First", "Last", "CollectList", "CollectSet", "AnyValue", "ListAgg", "Mode"),
    *("ApproximatePercentile", "MaxBy", "MinBy"),  # of the last two: where several are equal
}
# Spark marks them, and they give the same for the same row
SAME = {"InputFileName", "InputFileBlockStart", "InputFileBlockLength", "RaiseError", "AssertTrue"}
FUNCTIONS = {
    *("PythonUDF", "PythonUDAF", "PythonUDTF", "ScalaUDF", "ScalaAggregator", "ScalaUDAF"),
    *("HiveSimpleUDF", "HiveGenericUDF", "HiveGenericUDTF", "HiveUDAFFunction"),
    *("ApplyFunctionExpression", "V2Aggregator"),
}
_AGGREGATES = "org.apache.spark.sql.catalyst.expressions.aggregate."


def items(sequence: Any) -> Iterator[Any]:
    """Of a Scala Seq."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def short_name(java: Any) -> str:
    """Of its class, without the package and Scala's `$`."""
    name: str = java.getClass().getName()
    return name.rpartition(".")[2].rstrip("$").rpartition("$")[2]


def kind_of(expression: Any, name: str) -> str | None:
    """The kind of step that this expression is by itself; None: it follows from its inputs."""
    if name in FUNCTIONS:
        return "function" if _is_marked_deterministic(expression) else "nondeterministic"
    for names, kind in (
        (BATCH_TIME, "batch time"),
        (CLOCK, "clock"),
        (SEEDED, "seeded"),
        (PLACEMENT, "placement"),
        (ORDER, "order"),
    ):
        if name in names:
            return kind
    if name in SAME or not _is_source_of_chance(expression):
        return None
    return (
        "order" if expression.getClass().getName().startswith(_AGGREGATES) else "nondeterministic"
    )


def says(expression: Any, name: str) -> str:
    """What the user knows it by."""
    if name in FUNCTIONS:
        return function_name(expression)
    return f"{expression.prettyName()}()"


def function_name(expression: Any) -> str:
    """The name that a function has in Spark's plan."""
    try:
        found = expression.name()
    except Exception:  # py4j: a class without it
        found = expression.prettyName()
    if hasattr(found, "isDefined"):  # of Scala's functions: perhaps none
        found = found.get() if found.isDefined() else "a function without a name"
    return str(found)


def _is_source_of_chance(expression: Any) -> bool:
    return not expression.deterministic() and all(
        child.deterministic() for child in items(expression.children())
    )


def _is_marked_deterministic(expression: Any) -> bool:
    return bool(expression.deterministic()) or not all(
        child.deterministic() for child in items(expression.children())
    )
