"""Finds the query that runs a `foreachBatch` function; Spark does not pass it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEMPORARY = re.compile("/temporary-[0-9a-f]{8}-[0-9a-f-]{27}$")


@dataclass(frozen=True)
class RunningQuery:
    """`run` is another one with each start; `checkpoint` as Spark resolved it."""

    run: str
    checkpoint: str

    @property
    def is_temporary(self) -> bool:
        """Whether Spark made a checkpoint for this run alone, as no option said where."""
        return bool(_TEMPORARY.search(self.checkpoint))


def running_query(session: SparkSession) -> RunningQuery | None:
    """The query whose function runs; None outside of one, and under Spark Connect, which does not
    say. Runs on the driver. PySpark has no public way to ask: a query's function gets a session of
    its own, whose list of queries is empty, but all sessions share one of those that run."""
    java = getattr(session, "_jsparkSession", None)
    if java is None:
        return None
    query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    for query in java.sharedState().activeStreamingQueries().values() if query_id else ():
        if query.id().toString() == query_id:
            return RunningQuery(query.runId().toString(), query.resolvedCheckpointRoot())
    return None
