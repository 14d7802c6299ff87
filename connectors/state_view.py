"""`eo_kafka.StateView`: keeps a topic in step with a running query's keyed state.

Spark's own state reader reads the state from the checkpoint: the changes since the batch that the
view shows if the state store can tell them, else the whole state.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.errors import CheckpointError, EoKafkaError, OptionsError
from ..state.snapshots.checkpoint import open_checkpoint
from ..state.snapshots.offset_log import batches_in
from ..state.view import Marker
from ..state.view_writer import ViewWriter
from .spark_reports import ended_batch

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

_POLL_S = 0.2
_RETRY_S = 5.0  # after a failure, which may be of all the state
_REFUSALS_MAX = 3  # in a row: then the store is one that never tells what changed
_WHOLE = "flattenCollectionTypes"  # false: a list or a map of a key is one value
# Spark's own JSON cuts times to the millisecond, so that two keys would be one, and shows them in
# the session's time zone, in which the next driver would look for a key in vain.
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_AS_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": f"{_TIME}XXX",
    "timestampNTZFormat": _TIME,
}


class StateView:
    """Keeps a compacted topic in step with an operator's keyed state.

    The topic is `__eo_kafka.<job>.view.<name>`. Keys and values are JSON objects with the fields of
    the state's key and value; a key whose state is gone has a tombstone. Readers with
    `read_committed` see whole batches (unless more than 32 MiB, or 10,000 keys, changed), one or
    two batches behind the query. Runs on the driver beside the query, which it never disturbs.

    Args:
        spark: The session.
        checkpoint: The query's `checkpointLocation`, where both Spark and this process can read it.
        job: The job's name; it stands in the topic's name.
        name: The view's name.
        options: The sink's options: `kafka.*` and `transactionalIdPrefix`. Others are ignored.
        state: Options of Spark's `statestore` reader that choose the state, such as `operatorId`
            and `stateVarName`. The state of a join cannot be shown.

    Raises:
        OptionsError: An option or a name is wrong, or `state` names a side of a join.
        EnvironmentRefused, OutcomeUnknown: As the methods.

    Examples:
        >>> view = eo_kafka.StateView(spark, "/data/totals", "totals", "by_key", kafka)
        >>> view.refresh() is not None
        True
        >>> view.topic
        '__eo_kafka.totals.view.by_key'
        >>> view.close()
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        job: str,
        name: str,
        options: Mapping[str, str],
        *,
        state: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._checkpoint = open_checkpoint(checkpoint)
        self._path = checkpoint
        self._state = {_WHOLE: "false", **(state or {})}
        self._which = json.dumps(sorted((k.lower(), str(v)) for k, v in self._state.items()))
        if any(name.lower() == "joinside" for name in self._state):
            sentence = (
                "A join's state has several rows for a key, and a view shows one: no 'joinSide'."
            )
            raise OptionsError([sentence])
        self._query = ""
        self._writer = ViewWriter(job, name, options)
        self._refusals = 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: Exception | None = None

    @property
    def topic(self) -> str:
        """The view's topic."""
        return self._writer.topic

    def refresh(self) -> int | None:
        """Bring the view to the newest committed batch. Call it after a batch, or as often as you
        like.

        Returns:
            The number of that batch; None if there is none yet.

        Raises:
            CheckpointError: The checkpoint cannot be read.
            Fenced: Another StateView has taken this view over.
            EnvironmentRefused, OutcomeUnknown: The topic cannot be used, or brokers did not answer.
            Exception: What Spark's reader of the state raises.
        """
        newest = self._newest()
        if newest is None:
            return None
        marker = Marker(self._query or self._read_query(), newest, self._which)
        shown = self._writer.marker
        if shown == marker:
            return newest
        changes = None
        if shown is not None and replace(shown, batch=newest) == marker and shown.batch < newest:
            changes = self._changes(shown.batch + 1, newest)
        self._writer.write(self._all(newest) if changes is None else changes, marker)
        return newest

    def follow(self, query: StreamingQuery) -> StateView:
        """Refresh after each batch of a query, in a thread, until the query ends or `close` is
        called.

        A refresh that fails is tried again every few seconds, and after the next batch; `error`
        holds the failure until one succeeds. When the query has ended it is not tried again.

        Args:
            query: The running query.

        Returns:
            This view.
        """
        self._thread = threading.Thread(target=self._follow, args=(query,), daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop following. The topic stays."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, query: StreamingQuery) -> None:
        seen, pause = None, _POLL_S
        while not self._ended.wait(pause):
            try:
                active = query.isActive  # before the look: the last batch is not missed
                batch = ended_batch(query.lastProgress)
            except Exception as error:  # Spark has ended: what py4j raises then is open
                self._fail(error, "does not follow its query any more, which cannot be asked")
                return
            if batch != seen or not active:
                try:
                    self.refresh()
                except Exception as error:  # what Spark raises of a checkpoint in use is open
                    self._fail(error, "was not refreshed")
                    if isinstance(error, EoKafkaError) and error.fenced:
                        return
                    pause = _RETRY_S
                else:
                    seen, self.error, pause = batch, None, _POLL_S
            if not active:
                return

    def _fail(self, error: Exception, what: str) -> None:
        self.error = error
        log.warning("View '%s' %s: %s", self.topic, what, error)

    def _newest(self) -> int | None:
        return max(batches_in("commits", self._checkpoint.paths()), default=None)

    def _read_query(self) -> str:
        try:
            with self._checkpoint.open("metadata") as stream:
                self._query = str(json.loads(stream.read())["id"])
        except (OSError, LookupError, ValueError) as error:
            raise CheckpointError(
                f"The checkpoint '{self._checkpoint.url}' has no query id: {error}."
            ) from error
        return self._query

    def _reader(self) -> Any:
        reader = self._spark.read.format("statestore").option("path", self._path)
        return reader.options(**self._state)

    def _changes(self, first: int, last: int) -> list[tuple[bytes, bytes | None]] | None:
        """What the batches changed, the last change of each key; None where the store cannot tell
        (RocksDB without changelog, a repartition in between, files that were removed since)."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        if self._refusals >= _REFUSALS_MAX:
            return None
        reader = self._reader().option("readChangeFeed", "true")
        reader = reader.option("changeStartBatchId", first).option("changeEndBatchId", last)
        gone = f.col("change_type") == "delete"
        try:
            feed = reader.load()
            if "value" not in feed.columns:  # of a list or a map only elements are told
                return None
            # A partition's changes come in their order.
            at = f.struct("batch_id", f.monotonically_increasing_id()).alias("at")
            value = f.when(~gone, _json("value")).alias("value")
            rows = feed.select(_json("key").alias("key"), f.struct(value).alias("new"), at)
            newest = rows.groupBy("key").agg(f.max_by("new", "at").alias("new"))
            changes = list(_records(newest.collect()))
            self._refusals = 0
            return changes
        except (PySparkException, Py4JError) as error:
            self._refusals += 1
            log.info("No changes of batches %d to %d to be had: %s", first, last, error)
            return None

    def _all(self, batch: int) -> Iterator[tuple[bytes, bytes | None]]:
        """Where the state of a batch differs from what the view shows."""
        before = dict(self._writer.read().values)
        state = self._reader().option("batchId", batch).load()
        (column,) = (name for name in state.columns if name == "value" or name.endswith("_value"))
        rows = state.select(_json("key").alias("key"), _struct(_json(column)).alias("new"))
        for key, value in _records(rows.toLocalIterator()):
            if before.pop(key, None) != value:
                yield key, value
        for key in before:
            yield key, None


def _json(column: str) -> Any:
    from pyspark.sql import functions as f

    return f.to_json(column, _AS_JSON)


def _struct(column: Any) -> Any:
    from pyspark.sql import functions as f

    return f.struct(column.alias("value"))


def _records(rows: Iterable[Row]) -> Iterator[tuple[bytes, bytes | None]]:
    for row in rows:
        value = row["new"]["value"]
        yield row["key"].encode(), None if value is None else value.encode()
