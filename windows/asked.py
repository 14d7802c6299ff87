"""From what the user asked for to a plan of Spark's, or to all that is wrong with it.

Spark drops rows that are behind the watermark before a processor sees them: those whose column
with the watermark is not after it. So the column that carries the real times is not given to
transformWithState; one that is always null is, with the mark of a column that carries a watermark
(EventTimeWatermark.delayKey). Null is never late, and the watermark itself is the query's. Spark
4.3; integration_tests/state/test_windows.py fails if a newer one sees it differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ..core.errors import EnvironmentRefused, OptionsError
from ..core.options import time_span_ms
from .aggregates import Aggregate, adds, keeps_values, quoted
from .definition import defined
from .fitting import has_instants
from .fixed import FixedWindows
from .folding import Fold
from .panes import ADDED, Rules
from .sessions import Sessions
from .watermarks import CANDIDATE, Watermark, lag

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

_DELAY = "spark.watermarkDelayMs"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATE_CHECK = "spark.sql.streaming.stateStore.stateSchemaCheck"
_PYTHONS_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_OWN = "_eo_"  # how the names of columns begin that are ours


def starts(at: Column, size: int, slide: int) -> Column:
    """The starts of the windows that cover a time, as an array; null of null. All microseconds."""
    from pyspark.sql import functions as f

    def floor(moment: Column) -> Column:
        return moment - f.pmod(moment, f.lit(slide))

    return f.sequence(floor(at - size) + slide, floor(at), f.lit(slide))


def _that_python_has(field: StructField) -> Column:
    """The column; a time that Python has no value for stops the query with a sentence, and not in
    the midst of Spark's worker. Of times within other values Spark alone tells."""
    from pyspark.sql import functions as f

    column = f.col(quoted(field.name))
    kind = field.dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz", "date"):
        return column
    inside, means = f.year(column).between(1, 9999), f"year({field.name}) BETWEEN 1 AND 9999"
    if kind == "timestamp":  # Python goes by way of UTC
        first, last = _PYTHONS_MICROS
        inside = f.unix_micros(column).between(first, last)
        means = f"unix_micros({field.name}) BETWEEN {first} AND {last}"
    told = f.concat(
        f.lit(f"Column '{field.name}' of the rows is "),
        column.cast("string"),
        f.lit(
            ", and Python, in which the windows run, has the years 1 to 9999 only. Nothing of "
            "this batch is visible. Before the windows, leave such rows out or make null of the "
            f"time: CASE WHEN {means} THEN {field.name} END."
        ),
    )
    return f.when(~inside, f.raise_error(told)).otherwise(column).alias(field.name)


class Asked:
    """What the user asked for, and what is wrong with it."""

    def __init__(
        self,
        events: DataFrame,
        time: str,
        by: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        watermark: str | Watermark,
        allowed_lateness: str,
        early: bool,
    ) -> None:
        self.problems: list[str] = []
        self._events = events
        self._time = time
        self._by = [by] if isinstance(by, str) else list(by)
        self._aggregates = dict(aggregates)
        self._early = early
        self._lateness = self.span("allowed_lateness", allowed_lateness, least=0)
        self._policy: Watermark | None = None
        if not isinstance(watermark, str):
            self._policy = watermark
        elif self.span("watermark", watermark, least=0) >= 0:
            self._policy = lag(watermark)

    def span(self, name: str, value: str, least: int = 1) -> int:
        """A time in microseconds; -1 if it is none."""
        try:
            milliseconds = time_span_ms(value)
        except ValueError as wrong:
            self.problems.append(f"{name}='{value}': {wrong}.")
            return -1
        if milliseconds < least:
            self.problems.append(f"{name}='{value}': must be longer than 0.")
        return milliseconds * 1000

    def fixed(self, size: int, slide: int) -> DataFrame:
        """Tumbling or sliding windows."""
        from pyspark.sql import functions as f

        self._check()
        start = f.explode_outer(starts(f.unix_micros(f.col(quoted(self._time))), size, slide))
        return self._windows(
            start.alias(f"{_OWN}start"),
            lambda *told: FixedWindows(told[0], size, *told[1:]),
            {"kind": "fixed", "size": size, "slide": slide},
        )

    def sessions(self, gap: int) -> DataFrame:
        """Session windows."""
        from pyspark.sql import functions as f

        self._check()
        nothing = f.lit(0).alias(f"{_OWN}all")  # Spark wants a key, and `by` may be empty
        return self._windows(
            nothing,
            lambda *told: Sessions(told[0], gap, *told[1:]),
            {"kind": "session", "gap": gap},
        )

    def _windows(
        self, last_key: Column, processor: Callable[..., Any], shape: Mapping[str, Any]
    ) -> DataFrame:
        """`last_key` is Spark's key besides the user's, `shape` the windows' kind and lengths."""
        from pyspark.sql import functions as f

        events, policy = self._events, self._policy
        assert policy is not None
        # Spark finds no column whose name must be quoted; others keep theirs, as checkpoints do.
        odd = {name: f"{_OWN}key{n}" for n, name in enumerate(self._by) if set(name) & set(".`")}
        keys = [f.col(quoted(name)).alias(odd.get(name, name)) for name in self._by]
        keyed = policy.applied(events, self._time).select(
            *keys,
            last_key,
            f.unix_micros(f.col(quoted(self._time))).alias(f"{_OWN}at"),
            f.struct(*map(_that_python_has, events.schema)).alias(f"{_OWN}row"),
            f.lit(None).cast("timestamp").alias(f"{_OWN}late", metadata={_DELAY: 0}),
        )
        rules, schema, state = self._typed(shape)
        grouped: Any = keyed.groupBy(*keyed.columns[: len(keys) + 1])
        found: DataFrame = grouped.transformWithState(
            processor(rules, state, policy.repeatable), schema, "Append", "EventTime"
        )
        moments = {name: f.timestamp_micros(f.col(name)) for name in ("window_start", "window_end")}
        return found.withColumns(moments)

    def _typed(self, shape: Mapping[str, Any]) -> tuple[Rules, Any, str]:
        """The rules, the schema of what comes out, and the columns of what is kept, as text."""
        from pyspark.sql import functions as f
        from pyspark.sql.types import LongType, StringType, StructType

        events = self._events

        def type_of(expression: Column) -> Any:
            return events.select(expression).schema[0].dataType

        def of(expression: str) -> str:
            return str(type_of(f.expr(expression)).simpleString())

        typed = [one.types(of) for one in self._aggregates.values()]
        schema = StructType([events.schema[name] for name in self._by])
        schema = schema.add("window_start", LongType()).add("window_end", LongType())
        for name, (_, kind, _) in zip(self._aggregates, typed, strict=True):
            schema = schema.add(name, type_of(f.lit(None).cast(kind)))
        schema = schema.add("kind", StringType()).add("revision", LongType())
        schema = schema.add("late_row", events.schema)
        folds = [name for name, one in self._aggregates.items() if isinstance(one, Fold)]
        if wrong := [name for name in folds if has_instants(schema[name].dataType)]:
            raise OptionsError(
                [
                    f"aggregates['{name}']: a fold cannot be or hold a TIMESTAMP, which Spark "
                    "gives back from its state without its zone. Keep BIGINT microseconds, or text."
                    for name in wrong
                ]
            )
        kept = [kind for _, _, kinds in typed for kind in kinds]
        rules = Rules(
            by=self._by,
            names=list(self._aggregates),
            aggregates=[
                one.checked(name, schema[name].dataType) if isinstance(one, Fold) else one
                for name, (one, _, _) in zip(self._aggregates, typed, strict=True)
            ],
            widths=[len(kinds) for _, _, kinds in typed],
            lateness=self._lateness,
            early=self._early,
            ordered=any(isinstance(one, Fold) for one, _, _ in typed),
            definition=defined(
                shape,
                self._time,
                self._by,
                self._aggregates,
                [schema[name].dataType for name in self._aggregates],
                self._lateness,
            ),
            takes_least=self._policy is not None and self._policy.takes_least,
        )
        return rules, schema, "".join(f", kept{n} {kind}" for n, kind in enumerate(kept))

    def _check(self) -> None:
        """Raise what is wrong."""
        _refuse_without_support()
        problems = [*self.problems, *self._wrong_columns()]
        if self._policy is not None:
            problems += self._policy.problems(self._events)
        provider = self._events.sparkSession.conf.get(_PROVIDER, "") or ""
        if "RocksDB" not in provider:
            problems.append(
                "The session keeps state in another store than RocksDB, which windows need: "
                f'spark.conf.set("{_PROVIDER}", "{_ROCKSDB}").'
            )
        checks = self._events.sparkSession.conf.get(_STATE_CHECK, None) or "true"
        if checks.lower() != "true":
            problems.append(
                f"The session's {_STATE_CHECK} is {checks}, and windows of other lengths than the "
                f'checkpoint\'s would be wrong: spark.conf.set("{_STATE_CHECK}", "true").'
            )
        if problems:
            raise OptionsError(problems)

    def _wrong_columns(self) -> Iterable[str]:
        events = self._events
        kinds = {field.name: field.dataType.simpleString() for field in events.schema}
        if not events.isStreaming:
            yield "events: must be a streaming DataFrame."
        if self._time not in kinds:
            yield f"time='{self._time}': the rows have no such column."
        elif kinds[self._time] != "timestamp":
            yield f"time='{self._time}': must be of type TIMESTAMP, and is {kinds[self._time]}."
        if any(_DELAY in field.metadata for field in events.schema):
            yield "events: has a watermark already. Leave withWatermark out, and give watermark=."
        if not self._aggregates:
            yield "aggregates: name at least one, such as {'rows': eo_kafka.windows.count()}."
        columns = [(f"aggregates['{name}']", one.column) for name, one in self._aggregates.items()]
        for where, column in [("by", column) for column in self._by] + columns:
            if column is not None and column not in kinds:
                yield f"{where}: the rows have no column '{column}'."
        yield from self._wrong_types()
        names = [*self._by, *self._aggregates]
        for name in sorted({one for one in names if one in ADDED or names.count(one) > 1}):
            yield f"Column '{name}' would be twice in the output: rename it."
        if taken := [one for one in kinds if one.startswith((_OWN, CANDIDATE))]:
            yield f"Column '{taken[0]}': names that begin with '{_OWN}' are taken: rename it."

    def _wrong_types(self) -> Iterable[str]:
        """Columns whose values would not come out as they are."""
        types = {field.name: field.dataType for field in self._events.schema}
        for column in self._by:
            if column in types and has_instants(types[column]):
                yield (
                    f"by: column '{column}' is or holds a TIMESTAMP, which Spark gives to timers "
                    "without its zone: results would be shifted. Group by a column made with "
                    "unix_micros(...) or date_format(...) in its place."
                )
        for name, one in self._aggregates.items():
            kind = types.get(one.column or "")
            if kind is None:
                continue
            if "interval " in kind.simpleString():  # 'Unexpected type', which names no column
                yield (
                    f"aggregates['{name}']: column '{one.column}' is or holds an INTERVAL, which "
                    "Spark does not keep in such a state. Take a number in its place, such as its "
                    "seconds."
                )
            if adds(one) and kind.simpleString().startswith("string"):
                yield (
                    f"aggregates['{name}']: column '{one.column}' is text, and cannot be added up. "
                    "CAST it to DOUBLE or DECIMAL before the windows."
                )
            if keeps_values(one) and kind.simpleString() != "timestamp" and has_instants(kind):
                yield (
                    f"aggregates['{name}']: column '{one.column}' holds a TIMESTAMP, which Spark "
                    "gives back from its state without its zone: results would be shifted. Take "
                    "the TIMESTAMP itself, or one with unix_micros(...) in its place."
                )


def _refuse_without_support() -> None:
    import pyspark
    from pyspark.sql import GroupedData

    if not hasattr(GroupedData, "transformWithState"):
        raise EnvironmentRefused(
            f"eo_kafka.windows needs PySpark 4.1 or newer, and this is {pyspark.__version__}. "
            "Upgrade, or use Spark's own window functions, which drop late rows."
        )
    missing = [name for name in ("pandas", "google.protobuf") if not _is_there(name)]
    if missing:
        raise EnvironmentRefused(
            f"Spark needs {' and '.join(missing)} for transformWithState, on the driver and the "
            "executors. Install them: pip install 'eo-kafka[state]'."
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package it is in
        return False
