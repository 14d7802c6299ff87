"""`eo_kafka.explain`: what a query guarantees, by its weakest link."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...clients.kafka.option_checks import LONGEST_TIMEOUT_MS, timeout_ms
from ...connectors.monitoring.query_progress import SourceProgress, progress
from ...core.errors import OptionsError
from ...sinks.options import DEFAULT_TRANSACTION_TIMEOUT_MS, TRANSACTION_TIMEOUT
from . import cluster as kafka_cluster
from . import facts
from .pipeline import End, Pipeline
from .query import Given, read
from .rate import Rate, too_slow
from .recorded import record as record_plan
from .verdict import Explanation, judge

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_BELIEVES = (
    "Sink 'kafka' passes over these options, which are eo-kafka's or ask for transactions: "
    "{names}. "
    'Write with format("eo-kafka").'
)
_OURS_ONLY = (
    *("guarantee", "commit", "jobname", "ledgertopic", "snapshots", "transactiontimeout"),
    *("transactionalidprefix", "kafka.transactional.id"),
)


def explain(
    query: StreamingQuery | DataStreamWriter | DataFrame,
    *,
    trust: Collection[str] = (),
    cluster: bool = False,
    record: bool = False,
) -> Explanation:
    """Tell what a query guarantees, by its weakest link, and what would raise it.

    Reads Spark's plan and the options. Runs on the driver, as often as you like; starts no query
    and no job. From a client of Spark Connect the plan is out of reach: its steps are then said to
    be not known.

    Args:
        query: A running query, a `DataStreamWriter` that is not started, or a DataFrame.
        trust: Names of Python functions that you answer for: they give the same output for the
            same input. A function around `eo_kafka.foreach_batch`, besides, writes each row by that
            one call and nowhere else. `table of the program`: each start builds the same table.
        cluster: Also ask the sink's Kafka for what `eo-kafka doctor` checks, and for the consumer
            groups of the output. A broker that is away is told among `warnings`.
        record: Also record the plan in topic `__eo_kafka.<job>.plan`, which is created if need be,
            for `eo-kafka explain --job`. The topic holds no secrets.

    Returns:
        `guarantee` is `exactly-once`, `at-least-once`, `not-known` or `none`. `str()` of the result
        is for people; `lines`, `why`, `remedies`, `needs` and `warnings` are its parts.

    Raises:
        OptionsError: `query` is none of the three, or `record` is asked for without a job's name.
        EnvironmentRefused: A running query of Spark Connect; or the plan could not be recorded.

    Examples:
        >>> writer = orders.writeStream.format("eo-kafka").options(**kafka).option("topic", "out")
        >>> found = eo_kafka.explain(writer.option("checkpointLocation", "/data/out"))
        >>> found.guarantee
        'exactly-once'
    """
    given = read(query)
    found = explained(given, trust, cluster)
    if given.pipeline.sink is not None and hasattr(query, "lastProgress"):
        found = replace(found, warnings=(*found.warnings, *_slow(query, given)))
    if record:
        if given.pipeline.sink is None:
            raise OptionsError(["A DataFrame has no job under which its plan could be recorded."])
        record_plan(given.pipeline, given.options)
    return found


def explained(given: Given, trust: Collection[str], cluster: bool) -> Explanation:
    """The explanation of what was read. `cluster`: ask Kafka, too."""
    found, sink = judge(given.pipeline, trust), given.pipeline.sink
    warnings = [*_believes(given.pipeline)]
    if cluster and sink is not None:
        warnings += kafka_cluster.warnings(sink, given.options)
    return replace(found, warnings=tuple(warnings))


def _believes(pipeline: Pipeline) -> Iterator[str]:
    """A `kafka` sink in an application that believes itself exact."""
    sink = pipeline.sink
    if sink is not None and sink.format == "kafka":
        names = [name for name in sink.options if name in _OURS_ONLY]
        if names:
            yield _BELIEVES.format(names=", ".join(names))


def _slow(query: Any, given: Given) -> Iterator[str]:
    """Whether a batch may outlast its transaction at the present rate."""
    sink, figures = given.pipeline.sink, progress(query)
    if sink is None or figures is None or facts.sink_way(sink) != facts.SKIPS:
        return
    if sink.format not in facts.OURS or (sink.format in facts.BESIDE and not sink.says("topic")):
        return
    behind = [_waiting(one) for one in figures.sources]
    rate = Rate(
        batch=figures.batchId,
        took_ms=figures.durationMs.get("triggerExecution", 0),
        rows=sum(one.numInputRows for one in figures.sources),
        behind=sum(behind),
        is_limited=any("maxoffsetspertrigger" in one.options for one in given.pipeline.sources),
    )
    yield from too_slow(rate, _timeout_ms(sink))


def _waiting(source: SourceProgress) -> int:
    """Records that wait in a source, as far as it says so."""
    if source.avgOffsetsBehindLatest is None:
        return 0
    partitions = sum(len(of) for of in json.loads(source.latestOffset or "{}").values())
    return round(source.avgOffsetsBehindLatest * partitions)


def _timeout_ms(sink: End) -> int:
    """How long its transactions may be open."""
    text = sink.options.get(TRANSACTION_TIMEOUT.key)
    if text is not None:
        return timeout_ms(text) or LONGEST_TIMEOUT_MS
    return int(sink.options.get("kafka.transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS))
