"""Finds the query that runs a `foreachBatch` function; Spark does not pass it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEW = re.compile("(.*)/(temporary-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ROOT = "spark.sql.streaming.checkpointLocation"


@dataclass(frozen=True)
class RunningQuery:
    """`run` is another one with each start; `checkpoint` as Spark resolved it. `is_temporary`: it
    is for this start alone."""

    run: str
    checkpoint: str
    is_temporary: bool = False


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
            checkpoint = query.resolvedCheckpointRoot()
            root = None if query.name() else session.conf.get(_ROOT, None)
            is_temporary = _is_of_one_start(checkpoint, root)
            return RunningQuery(query.runId().toString(), checkpoint, is_temporary)
    return None


def _is_of_one_start(checkpoint: str, root: str | None) -> bool:
    """Whether Spark chose it anew, as no option says where: among temporary files, or in the folder
    of its own setting, where a query without a name gets another one at each start."""
    new = _NEW.fullmatch(checkpoint)
    below_root = root and new and new[1].endswith(root.partition(":")[2] or root)
    return bool(new and (new[2] or below_root))
