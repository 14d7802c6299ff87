"""Python sources and sinks that do nothing: what a micro-batch costs before any connector works.

The first source numbers rows from 0 to its option `rows` and honours the same admission control as
a connector. The second hands out the same record batch of a connector's seven columns again and
again, and spares its workers the two delays of Spark's that eo-kafka's are spared: no Python source
can be quicker. The sinks read their rows to the end and drop them. Workers import this module by
name.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FORMAT = "do-nothing"
PREPARED_FORMAT = "do-nothing-prepared"
_ROWS, _BYTES = 20_000, 4 << 20  # of a prepared record batch at most, as in eo-kafka's
_KEY_BYTES = 8


class NothingSource(DataSource):
    """`format("do-nothing")`. Options of the source: `rows`, `maxOffsetsPerTrigger`."""

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return FORMAT

    def schema(self) -> str:
        """A connector's two columns that a sink takes."""
        return "key binary, value binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Called once a query."""
        return NothingReader(int(self.options["rows"]), int(self.options["maxOffsetsPerTrigger"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Called before each batch and before its commit."""
        return NothingWriter()


class PreparedSource(NothingSource):
    """`format("do-nothing-prepared")`. Options besides: `recordBytes` (key and value together),
    `tasks` of a batch."""

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return PREPARED_FORMAT

    def schema(self) -> str:
        """A connector's seven columns."""
        return (
            "key binary, value binary, topic string, partition int, offset long, "
            "timestamp timestamp, timestampType int"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Called once a query."""
        return PreparedReader(
            int(self.options["rows"]),
            int(self.options["maxOffsetsPerTrigger"]),
            int(self.options["recordBytes"]),
            int(self.options["tasks"]),
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Called before each batch and before its commit."""
        return PreparedWriter()


class NothingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Counts."""

    def __init__(self, rows: int, per_trigger: int) -> None:
        self._rows = rows
        self._per_trigger = per_trigger

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Row 0."""
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """`maxOffsetsPerTrigger`."""
        return ReadMaxRows(self._per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing is ever added."""

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> dict[str, Any]:  # noqa: N802
        """As far as the limit lets a batch go."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._rows
        begin = 0 if start is None else start["row"]
        return {"row": self._rows if limit == ReadAllAvailable() else min(begin + rows, self._rows)}

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """One task."""
        return [InputPartition((start["row"], end["row"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows' numbers."""
        import pyarrow as pa

        numbers = [str(row).encode() for row in range(*partition.value)]
        yield pa.record_batch({"key": pa.array(numbers), "value": pa.array(numbers)})

    def commit(self, end: Any) -> None:
        """Nothing to do."""


class PreparedReader(NothingReader):
    """Hands out one record batch as often as it takes."""

    def __init__(self, rows: int, per_trigger: int, record_bytes: int, tasks: int) -> None:
        super().__init__(rows, per_trigger)
        self._record_bytes = record_bytes
        self._tasks = tasks

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """Equal shares of the rows."""
        rows = end["row"] - start["row"]
        shares = [
            rows // self._tasks + (number < rows % self._tasks) for number in range(self._tasks)
        ]
        return [InputPartition(share) for share in shares]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """As many rows as the partition says."""
        _without_delays()
        rows = min(_ROWS, max(_BYTES // self._record_bytes, 1))
        prepared = _prepared(self._record_bytes, rows)
        for begin in range(0, partition.value, rows):
            yield prepared.slice(0, min(rows, partition.value - begin))


def _without_delays() -> None:
    """See loaded_heap.py and worker_socket.py in core/process, for the rest of a worker's life."""
    import eo_kafka.connectors  # noqa: F401


@functools.cache
def _prepared(record_bytes: int, rows: int) -> pa.RecordBatch:
    import datetime

    import pyarrow as pa

    now = datetime.datetime.now(datetime.timezone.utc)
    numbers = range(rows)
    return pa.record_batch(
        {
            "key": pa.array([number.to_bytes(_KEY_BYTES, "big") for number in numbers]),
            "value": pa.array([bytes(record_bytes - _KEY_BYTES)] * rows),
            "topic": pa.array(["input-100"] * rows),
            "partition": pa.array([0] * rows, pa.int32()),
            "offset": pa.array(numbers, pa.int64()),
            "timestamp": pa.array([now] * rows, pa.timestamp("us", tz="UTC")),
            "timestampType": pa.array([0] * rows, pa.int32()),
        }
    )


class NothingWriter(DataSourceStreamArrowWriter):
    """Drops."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read to the end, as every sink must."""
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do."""


class PreparedWriter(NothingWriter):
    """Drops, in a worker without delays."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Read to the end, as every sink must."""
        _without_delays()
        return super().write(iterator)
