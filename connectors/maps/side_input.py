"""`eo_kafka.SideInput`: joins a query's batches with entries of a map, pinned to each batch.

A batch that runs again must be joined with the same entries, or it writes other rows than before.
A map does not show its past. So the entries are kept as a *version*, in Parquet, and each batch is
pinned to a version before it reads it. Below the folder:

    versions/<batch>-<id>     the entries, as they were when that batch began
    pins/<batch>              which version the batch uses: JSON
"""

from __future__ import annotations

import hashlib
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ...core.crash_points import crash_point
from ...core.errors import CheckpointError, OptionsError, cut
from ...core.options import time_span_ms
from .backends import classes_of
from .hadoop_files import HadoopFiles
from .twice import key_twice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PINS_KEPT = 100  # as many batches as Spark keeps by default (minBatchesToRetain)
_FORGOTTEN_AT_A_TIME = 20
_READ_AS = ("backend", "map", "hazelcast.cluster", "predicate", "mode")


@dataclass(frozen=True)
class Pin:
    """Which version a batch of which query uses, when that was taken, and of what: the entries'
    schema, and a digest of the options that say what is read. None: of an older eo-kafka."""

    query: str | None
    version: str
    taken_ms: int
    schema: str | None = None
    read_as: str | None = None

    @classmethod
    def decode(cls, text: str) -> Pin:
        """Raises CheckpointError."""
        try:
            found = cls(**json.loads(text))
            if not isinstance(found.version, str) or type(found.taken_ms) is not int:
                raise TypeError
        except (TypeError, ValueError):
            raise CheckpointError(f"A side input's pin cannot be read: {cut(text)}.") from None
        return found


class SideInput:
    """Entries of a map, joined with the batches of one query; a replay gets the same entries.

    Before a batch reads them, the map's entries are written into `folder` as Parquet and the batch
    is pinned to them. The map must be small enough to be sent to every task. Used on the driver,
    inside `foreachBatch`.

    Args:
        options: The options for reading the map with `format("eo-map")`.
        folder: A folder of this query's own, a path or URL where Spark can write, best below its
            checkpoint. If it is lost, a replay may be joined with other entries.
        refresh: How old entries may be, such as `10 minutes`. By default each batch takes new ones.

    Raises:
        OptionsError: An option, `folder` or `refresh` is wrong.

    Examples:
        >>> customers = eo_kafka.SideInput(
        ...     {"backend": "kafka", "map": "customers", **kafka}, "/data/enriched/customers"
        ... )
        >>> write = eo_kafka.foreach_batch({**kafka, "topic": "enriched", "jobName": "enriched"})
        >>> def enrich(rows, batch):
        ...     joined = customers.join(rows, batch)  # adds column `entry`
        ...     write(joined.selectExpr("key", "concat(value, ' ', entry) as value"), batch)
        >>> query = (
        ...     orders.writeStream.foreachBatch(enrich)
        ...     .option("checkpointLocation", "/data/enriched")
        ...     .trigger(availableNow=True)
        ...     .start()
        ... )
        >>> query.awaitTermination()
    """

    def __init__(self, options: Mapping[str, str], folder: str, refresh: str | None = None) -> None:
        problems: list[str] = []
        try:
            classes_of(options).options(options, False)
        except OptionsError as error:
            problems += error.problems
        try:
            self._refresh_ms = 0 if refresh is None else time_span_ms(refresh)
        except ValueError as error:
            problems.append(f"Argument 'refresh' {error}; it is '{refresh}'.")
        if not folder.strip():
            problems.append("Argument 'folder' must name a folder of the query's own.")
        if problems:
            raise OptionsError(problems)
        self._options = dict(options)
        self._read_as = _digest(options)
        self._folder = folder.rstrip("/")

    def join(
        self, rows: DataFrame, batch: int, on: str = "key", how: str = "left", name: str = "entry"
    ) -> DataFrame:
        """Add the map's values to a batch, by a hash join. Runs on the driver, once a batch.

        Args:
            rows: The batch.
            batch: Its number.
            on: The column of `rows` that holds the map's key.
            how: `left` keeps rows without an entry, with null; `inner` drops them.
            name: The name of the new column, which holds the entry's value.

        Returns:
            The rows with the new column.

        Raises:
            OptionsError: Column `on` is missing or of another type, or column `name` is there.
            CheckpointError: The folder belongs to another query, or a file in it cannot be read.
            SourceError: The map has a key twice.
            EnvironmentRefused: On Spark Connect.
        """
        from pyspark.sql.functions import broadcast, col

        entries = self.at(rows.sparkSession, batch)
        if on not in rows.columns or name in rows.columns:
            raise OptionsError(
                [f"The rows need a column '{on}', and none called '{name}' ({rows.columns})."]
            )
        given = rows.schema[on].dataType.simpleString()
        keys = entries.schema["key"].dataType.simpleString()
        if given != keys:  # Spark would compare both as some third type: '01' and '1' as one number
            raise OptionsError(
                [
                    f"Column '{on}' of the rows is {given.upper()}, and the map's keys are "
                    f"{keys.upper()}: Spark would convert them, and keys that differ could become "
                    f"one. Cast the column first: rows.withColumn('{on}', "
                    f"rows['{on}'].cast('{keys}')); or read the keys as that type ('key.format')."
                ]
            )
        entries = entries.select(col("key").alias(on), col("value").alias(name))
        return rows.join(broadcast(entries), on, how)

    def at(self, spark: SparkSession, batch: int) -> DataFrame:
        """Read the entries that a batch is pinned to. Runs on the driver, inside `foreachBatch`.

        Args:
            spark: The session of the batch's rows.
            batch: Its number.

        Returns:
            A DataFrame with the columns `key` and `value`.

        Raises:
            CheckpointError: The folder belongs to another query, or a file in it cannot be read.
            SourceError: The map has a key twice.
            EnvironmentRefused: On Spark Connect.
        """
        files = HadoopFiles(spark, self._folder)
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        entries = spark.read.format("eo-map").options(**self._options).load().select("key", "value")
        pin = _read(files, batch)
        if pin is None:
            before = [number for number in _numbers(files.names("pins")) if number < batch]
            last = _read(files, max(before)) if before else None
            if last is not None:
                self._check_owner(last, query)
            now = int(time.time() * 1000)
            if last is None or self._is_old(last, now) or not self._is_of(last, entries):
                version = f"{batch}-{uuid.uuid4().hex}"
                entries.write.parquet(f"{self._folder}/versions/{version}")
                self._check_keys(self._version(spark, entries, version))
                last = Pin(query, version, now, entries.schema.json(), self._read_as)
            crash_point("side-input.before_pin")
            files.write_new(f"pins/{batch}", json.dumps(asdict(last)))
            pin = _read(files, batch)  # of two drivers at once, the first one's
            assert pin is not None
            self._forget(files, before, batch)
        self._check_owner(pin, query)
        if not self._is_of(pin, entries):
            raise CheckpointError(
                f"Batch {batch} is joined with entries that are kept in '{self._folder}', and they "
                "are of another map, or were read with other columns or formats than the side "
                "input's options say now. Nothing was joined. Start the query once more with the "
                "options that it had, until it has written this batch, and change them then."
            )
        return self._version(spark, entries, pin.version)

    def _is_old(self, pin: Pin, now_ms: int) -> bool:
        """Also where the clock was set back: nobody knows then."""
        return not 0 <= now_ms - pin.taken_ms < self._refresh_ms

    def _is_of(self, pin: Pin, entries: DataFrame) -> bool:
        """Whether its version is of what would be read now."""
        now = (entries.schema.json(), self._read_as)
        both = zip((pin.schema, pin.read_as), now, strict=True)
        return all(then is None or then == mine for then, mine in both)

    def _version(self, spark: SparkSession, entries: DataFrame, version: str) -> DataFrame:
        return spark.read.schema(entries.schema).parquet(f"{self._folder}/versions/{version}")

    def _check_keys(self, entries: DataFrame) -> None:
        """Raise SourceError if a key is there twice: a join would repeat rows. In an IMap, too:
        keys of different types may have one text, and a partition that moves may be read twice."""
        twice = entries.groupBy("key").count().where("count > 1 and key is not null").head(1)
        if twice:
            given = self._options
            raise key_twice(given.get("map"), twice[0]["key"], given.get("backend"))

    def _check_owner(self, pin: Pin, query: str | None) -> None:
        if pin.query != query:
            raise CheckpointError(
                f"The side input in '{self._folder}' belongs to query {pin.query}, and this is "
                f"{query}. Each query needs a folder of its own, and a new one with a new "
                "checkpoint."
            )

    def _forget(self, files: HadoopFiles, before: list[int], batch: int) -> None:
        """Pins that Spark cannot ask for any more, and versions that no pin that is kept names."""
        old = [number for number in before if number <= batch - PINS_KEPT]
        if len(old) < _FORGOTTEN_AT_A_TIME:
            return
        for number in old:
            files.delete(f"pins/{number}")
        kept = [_read(files, number) for number in _numbers(files.names("pins"))]
        named = {pin.version for pin in kept if pin is not None}
        for version in files.names("versions"):
            first = version.partition("-")[0]
            # A newer one may be another driver's, which has not pinned it yet
            if version not in named and first.isdigit() and int(first) <= batch - PINS_KEPT:
                files.delete(f"versions/{version}")


def _digest(options: Mapping[str, str]) -> str:
    """Of what is read and how, not from which servers and as whom."""
    given = {name.lower(): str(value) for name, value in options.items()}
    told = {
        name: value
        for name, value in given.items()
        if name in _READ_AS or (name.startswith(("key.", "value.")) and "registry" not in name)
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _read(files: HadoopFiles, batch: int) -> Pin | None:
    text = files.read(f"pins/{batch}")
    return None if text is None else Pin.decode(text)


def _numbers(names: list[str]) -> list[int]:
    return [int(name) for name in names if name.isdigit()]
