"""Raises, when a function of `foreachBatch` returns, what it swallowed of `eo_kafka.foreach_batch`.

Spark would commit the batch, and its rows would be lost. PySpark has no public way to look then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.utils import ForeachBatchFunction

from .running_query import running_query

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

# By the run of a query, the batch, and what was written to: what the last write of it raised.
_failed: dict[tuple[str, int, str], Exception] = {}


def failed(run: str, batch: int, sink: str, error: Exception) -> None:
    """A write has raised. Runs on the driver."""
    _failed[run, batch, sink] = error


def written(run: str, batch: int, sink: str) -> None:
    """A write has succeeded, perhaps after the function had caught the error of one before."""
    _failed.pop((run, batch, sink), None)


_call = ForeachBatchFunction.call


def _call_and_look(self: ForeachBatchFunction, jdf: JavaObject, batch_id: int) -> None:
    """What Spark calls for a batch, once."""
    try:
        _call(self, jdf, batch_id)
    finally:
        query = running_query(self.session) if _failed else None
        mine = [at for at in [*_failed] if query and at[0] == query.run]
        swallowed = {at: _failed.pop(at) for at in mine}
    for (_, lost, _), error in swallowed.items():
        # The error itself comes last: by that `eo-kafka run` goes.
        raise error from RuntimeError(
            f"The function of foreachBatch swallowed the error of a write of batch {lost} and "
            "returned. That would lose the batch's rows. Let the error out of the function, or "
            "write the batch again in it."
        )


ForeachBatchFunction.call = _call_and_look  # type: ignore[method-assign]
