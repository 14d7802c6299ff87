"""`eo_kafka.progress(query)`: how far a query is behind, and where its last batch's time went."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ...sinks.protocol import batch_figures
from ...sinks.protocol.batch_figures import SinkProgress
from ..spark_reports import ended_batch, slowest

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

# By context, which has one for its life: asking the JVM takes longer than reading what is there
_directories: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_TO_LOCAL_DIRS = (
    ("SparkEnv", "blockManager"),
    ("storage.BlockManager", "diskBlockManager"),
    ("storage.DiskBlockManager", "localDirs"),
)


@dataclass(frozen=True)
class SourceProgress:
    """Of one source: where its batch ended, and the newest offsets Spark knew of then, as JSON; and
    how far it is behind, in offsets over its partitions, by the names of Spark's own connector.
    None: Spark did not ask the source (as in a batch that runs again after a restart), or it is no
    source of Kafka."""

    numInputRows: int
    endOffset: str | None
    latestOffset: str | None
    minOffsetsBehindLatest: int | None = None
    maxOffsetsBehindLatest: int | None = None
    avgOffsetsBehindLatest: float | None = None


@dataclass(frozen=True)
class Progress:
    """Of one batch of a query. `durationMs` is Spark's own; those of `sinks` tell what its
    `addBatch` was spent on. Of a query that waits for input, `durationMs` is of its newest look for
    some, and has no `addBatch`."""

    id: str
    runId: str
    name: str | None
    batchId: int
    timestamp: str
    durationMs: Mapping[str, int]
    sources: tuple[SourceProgress, ...]
    sinks: tuple[SinkProgress, ...]


def progress(query: StreamingQuery | StreamingQueryProgress) -> Progress | None:
    """Tell how far a query is behind, and where its newest batch's time went.

    Spark's own Kafka connector reports the lag as metrics of its source, which Spark takes from no
    Python source. Runs on the driver, as often as you like: it asks no broker and starts no job.
    `dataclasses.asdict` makes a dict of the result, for a log or a monitor.

    Args:
        query: A running or ended query; or, in a listener's `onQueryProgress`, `event.progress`.

    Returns:
        The batch's `batchId`, `durationMs` and more as Spark has them, and

        - `sources`: for each source `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and
          `avgOffsetsBehindLatest`, in offsets over its partitions, `endOffset` and `latestOffset`
          (JSON). None where Spark did not ask the source: in a batch that runs again after a
          restart.
        - `sinks`: for each exactly-once job that the query writes, `durationMs` by step,
          `openTransactions` and the snapshot's size. Empty where they are not known: from a client
          of Spark Connect, and for a batch of long ago.

        None before the query's first batch has ended.

    Raises:
        AttributeError: `query` is neither.

    Examples:
        >>> found = eo_kafka.progress(query)
        >>> found.sources[0].maxOffsetsBehindLatest
        0
        >>> sorted(found.sinks[0].durationMs)
        ['decide', 'done', 'finish', 'plan', 'tasks']
    """
    found: Any = getattr(query, "lastProgress", query)
    batch = ended_batch(found)
    if batch is None:
        return None
    return Progress(
        id=str(found.id),
        runId=str(found.runId),
        name=found.name,
        batchId=batch,
        timestamp=found.timestamp,
        durationMs=dict(found.durationMs),
        sources=tuple(map(_source, found.sources)),
        sinks=_sinks(str(found.id), batch),
    )


def _source(source: Any) -> SourceProgress:
    end, latest = _told(source.endOffset), _told(source.latestOffset)
    ends, newest = slowest([end]), slowest([latest])
    lags = [newest[at] - ends.get(at, 0) for at in newest]
    behind = (min(lags), max(lags), sum(lags) / len(lags)) if lags else ()
    return SourceProgress(source.numInputRows, end, latest, *behind)


def _told(offset: str | None) -> str | None:
    """PySpark makes a text of the JVM's null."""
    return None if offset in ("None", "null", "") else offset


def _sinks(query_id: str, batch: int) -> tuple[SinkProgress, ...]:
    """Lag is to be had also where these figures are not."""
    try:
        directory = _driver_directory()
        return tuple(batch_figures.of_batch(directory, query_id, batch)) if directory else ()
    except Exception as error:
        log.warning("What the sinks of query %s took is not known here: %s", query_id, error)
        return ()


def _driver_directory() -> str | None:
    """What Spark tells the driver's Python processes in `SPARK_LOCAL_DIRS`. The user's process is
    not told; it can ask the JVM, but for a client of Spark Connect, which has none.

    By its fields: py4j would look at all methods of SparkEnv to call one, and Spark 4.3 lacks a
    class that one of them names, which ends py4j's connection."""
    try:
        from pyspark import SparkContext
    except ImportError:  # pyspark-client, which is for Spark Connect alone
        return None
    context: Any = SparkContext._active_spark_context
    if context is None:
        return None
    if context in _directories:
        return _directories[context]
    found = context._jsc.sc().env()
    for owner, name in _TO_LOCAL_DIRS:
        field = context._jvm.java.lang.Class.forName(f"org.apache.spark.{owner}")
        field = field.getDeclaredField(name)
        field.setAccessible(True)
        found = field.get(found)
    path: str = found[0].getPath()
    _directories[context] = path
    return path
