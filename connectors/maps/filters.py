"""Chooses which of Spark's filters restrict what a batch of a map reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from ...core.maps import JSON, TEXT
from ...sources.maps.pushed import IN, Comparison, Pushed

if TYPE_CHECKING:
    from ...sources.maps.declared import MapShape

# By the name of Spark's class, which 4.0 does not have
_OPERATORS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "In": IN,
}
_INTEGERS = (t.ByteType, t.ShortType, t.IntegerType, t.LongType)
# Names of fields that mean nothing else to members
_FIELD = re.compile(r"(?!this$|__)[A-Za-z_][A-Za-z0-9_]*")
# Texts that no number, boolean, character, date, list or UUID has
_ONLY_TEXT = re.compile(
    r"(?!(?:true|false|null|nan|infinity|inf|snan)$)(?![0-9a-f]{8}-[0-9a-f]{4}-)[a-z].+",
    re.IGNORECASE | re.DOTALL,
)


class Pushing:
    """Mixed into a batch reader if option `pushFilters` asks for it. Without it a reader must not
    have the method: Spark refuses one that does, unless its own setting allows it."""

    _options: Any
    _schema: t.StructType
    _pushed: Pushed

    def pushFilters(self, filters: list[Any]) -> list[Any]:
        """Those that are left to Spark: all that are not exact. Driver, once a plan."""
        self._pushed = pushed(filters, self._options, self._schema)
        return [one for one in filters if not is_exact(one)]


def pushed(filters: Iterable[Any], options: MapShape, schema: t.StructType) -> Pushed:
    """What the filters, all of which must hold, restrict a batch to. No I/O."""
    partitions, keys = None, None
    comparisons = []
    for one in filters:
        operator = _OPERATORS.get(type(one).__name__)
        if operator is None:
            continue
        values = tuple(one.value) if operator == IN else (one.value,)
        is_among = operator in ("=", IN)
        if one.attribute == ("partition",) and is_among and _are(int, values):
            partitions = _both(partitions, values)
        elif one.attribute == ("key",) and is_among and options.key_format == TEXT:
            keys = _both(keys, values) if _are_only_text(values) else keys
        elif one.attribute[0] == "value" and options.value_format == JSON:
            comparisons += _comparison(one.attribute, operator, values, schema)
    return Pushed(partitions, keys, tuple(comparisons))


def is_exact(one: Any) -> bool:
    """Whether nothing of the filter is left to Spark, if it is pushed."""
    operator = _OPERATORS.get(type(one).__name__)
    values = one.value if operator == IN else (getattr(one, "value", None),)
    is_partition = getattr(one, "attribute", None) == ("partition",)
    return is_partition and operator in ("=", IN) and _are(int, tuple(values))


def _comparison(
    path: tuple[str, ...], operator: str, values: tuple[Any, ...], schema: t.StructType
) -> list[Comparison]:
    """None where members might leave out what Spark would not."""
    kind: t.DataType = schema["value"].dataType
    for name in path[1:]:
        if not isinstance(kind, t.StructType) or not _FIELD.fullmatch(name):
            return []
        kind = kind[name].dataType
    # Not text: a column of it may hold JSON's numbers, with which members cannot compare a text
    if len(path) < 2 or type(kind) not in _INTEGERS or not _are(int, values):
        return []
    return [Comparison(".".join(path[1:]), operator, values)]


def _are(kind: type, values: tuple[Any, ...]) -> bool:
    return all(type(value) is kind for value in values)


def _are_only_text(values: tuple[Any, ...]) -> bool:
    return all(type(value) is str and _ONLY_TEXT.fullmatch(value) for value in values)


def _both(known: frozenset[Any] | None, values: tuple[Any, ...]) -> frozenset[Any]:
    return frozenset(values) if known is None else known & frozenset(values)
