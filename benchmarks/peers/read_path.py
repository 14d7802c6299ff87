"""Reading without Spark: our read path beside a loop in C over the same librdkafka.

Both hand out (or copy out) all seven columns; both read one partition in each of as many threads
of execution: ours in processes, as Spark's Python workers are, the loop in threads. Both clocks
start when the first records are there and count those behind them, so neither pays for connecting.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.pool import Pool
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.bare_programs import ran
from benchmarks.queries import WrongResult
from benchmarks.workload import KEY_BYTES, Workload

if TYPE_CHECKING:
    import pyarrow as pa

    from eo_kafka.sources.settings.options import SourceOptions

_TIMEOUT_S = 300


@dataclass(frozen=True)
class Part:
    """One partition, read: `timed` of its rows in `seconds`; and what tells that all were read."""

    timed: int
    seconds: float
    rows: int
    key_sum: int
    value_bytes: int


def read_bare(program: Path, servers: str, workload: Workload) -> float:
    """Records/s of the loop in C, a thread a partition. Raises WrongResult."""
    given = [f"{name}={value}" for name, value in settings(servers, workload).items()]
    said = ran([str(program), workload.topic, str(workload.partitions), *given], _TIMEOUT_S)
    lines = [line.split() for line in said.splitlines()]
    parts = [Part(int(line[0]), float(line[1]), *map(int, line[2:])) for line in lines]
    return _rate("the bare loop", workload, parts)


@contextmanager
def readers(partitions: int) -> Iterator[Pool]:
    """As many processes that live through all rounds, as Spark's workers live through batches."""
    with multiprocessing.get_context("spawn").Pool(partitions) as pool:
        yield pool


def read_ours(pool: Pool, servers: str, workload: Workload) -> float:
    """Records/s of our read path, up to the record batches that Spark gets. Raises WrongResult."""
    tasks = [(servers, workload, number) for number in range(workload.partitions)]
    parts = pool.starmap_async(_read_partition, tasks, chunksize=1).get(_TIMEOUT_S)
    return _rate("eo-kafka", workload, parts)


def _read_partition(servers: str, workload: Workload, partition: int) -> Part:
    from eo_kafka.core.offsets import LATEST, OffsetRange, TopicPartition
    from eo_kafka.sources.reader import read_range

    at = TopicPartition(workload.topic, partition)
    batches = read_range(_options(servers, workload), OffsetRange(at, 0, LATEST))
    read = [_seen(next(batches))]
    began = time.perf_counter()
    read += map(_seen, batches)
    took = time.perf_counter() - began
    rows, key_sums, value_bytes = (sum(column) for column in zip(*read, strict=True))
    return Part(rows - read[0][0], took, rows, key_sums, value_bytes)


def _seen(batch: pa.RecordBatch) -> tuple[int, int, int]:
    """Rows, sum of keys and bytes of values, as the loop in C adds them up on the way."""
    import numpy as np

    keys, values = batch.column("key"), batch.column("value")
    numbers = np.frombuffer(keys.buffers()[2], ">u8", count=batch.num_rows)
    ends = np.frombuffer(values.buffers()[1], np.int32, count=batch.num_rows + 1)
    return batch.num_rows, int(numbers.sum()), int(ends[-1] - ends[0])


def _rate(name: str, workload: Workload, parts: list[Part]) -> float:
    """The rates of the partitions together. Raises WrongResult unless all was read, once."""
    count, size = workload.records, workload.size - KEY_BYTES
    found = tuple(
        sum(getattr(part, what) for part in parts) for what in ("rows", "key_sum", "value_bytes")
    )
    # keys are the numbers from 0 on
    if found != (wanted := (count, count * (count - 1) // 2, count * size)):
        raise WrongResult(
            f"{name} read {found} of {workload.topic} (records, sum of their keys, bytes of their "
            f"values), where there are {wanted}."
        )
    return sum(part.timed / part.seconds for part in parts)


def _options(servers: str, workload: Workload) -> SourceOptions:
    from eo_kafka.sources.settings.options import SourceOptions

    given = {"kafka.bootstrap.servers": servers, "subscribe": workload.topic}
    return SourceOptions.parse(given, streaming=True)


def settings(servers: str, workload: Workload) -> Mapping[str, str]:
    """Our consumers' settings, for the bare programs: none is tuned for either."""
    from eo_kafka.sources.reader import consumer_settings

    return consumer_settings(_options(servers, workload))
