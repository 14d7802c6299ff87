"""Reads an entry of Spark's offset log: where a batch's sources end, and what it was planned with.

`offsets/N` is text: a line with the version, a line of JSON (watermark, time, settings), and a line
for each source. Source: OffsetSeqLog and OffsetSeqMetadata of Spark 4.3. Driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import CheckpointError
from ...core.options import json_object
from .batch_ends import same_lines
from .checkpoint import Checkpoint
from .unreadable import problem_of_the_moment, was_read

PARTITIONS = "spark.sql.shuffle.partitions"
WATERMARK_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"


@dataclass(frozen=True)
class PlannedBatch:
    """What Spark recorded of a batch before it ran: a line for each source, with its end; the
    watermark in ms since 1970 (0: there is none yet); settings; the time of day in ms since 1970,
    the same whenever the batch runs. Of watermark and time None where they cannot be read."""

    ends: tuple[str, ...] = ()
    watermark_ms: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    time_ms: int | None = None

    @property
    def state_partitions(self) -> int | None:
        """The number of partitions of the state, which the first batch fixed; None: not known."""
        try:
            return int(self.settings[PARTITIONS])
        except (LookupError, TypeError, ValueError):
            return None

    @property
    def takes_least_watermark(self) -> bool:
        """Whether of several watermarks the least counts, as it does by default."""
        return self.settings.get(WATERMARK_POLICY) != "max"


NOT_PLANNED = PlannedBatch()


def is_repartition(before: PlannedBatch, now: PlannedBatch) -> bool:
    """Whether a batch after `before` only gave the state another number of partitions. One that
    reads nothing else may have rows: of windows that closed."""
    counts = before.state_partitions, now.state_partitions
    reads_nothing = bool(before.ends) and same_lines(before.ends, now.ends)
    return reads_nothing and None not in counts and counts[0] != counts[1]


def batches_in(log: str, paths: Iterable[str]) -> list[int]:
    """The batches that one of Spark's logs, `offsets` or `commits`, has an entry of; in order."""
    found = (path.rpartition("/") for path in paths)
    return sorted(int(name) for parent, _, name in found if parent == log and name.isdecimal())


def planned_batch(
    checkpoint: Checkpoint, batch: int, missing: PlannedBatch | None = None
) -> PlannedBatch:
    """What `offsets/<batch>` says. Of a batch that Spark recorded nothing of: `missing`, if given.
    Raises CheckpointError."""
    text = plan_of(checkpoint, batch, "" if missing is not None else None)
    return missing if missing is not None and not text else parse(text)


def plan_of(checkpoint: Checkpoint, batch: int, missing: str | None = None) -> str:
    """The text of `offsets/<batch>`; of a batch that Spark recorded nothing of `missing`, if given.
    Raises CheckpointError."""
    path = f"offsets/{batch}"
    try:
        with checkpoint.open(path) as stream:
            found = stream.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        is_missing = isinstance(error, FileNotFoundError)
        if missing is not None and is_missing:
            return missing
        # One that is there without it may be a copy: Spark's is on another file system.
        is_other = is_missing and not checkpoint.is_empty()
        passes = None if is_other else problem_of_the_moment(checkpoint.url, path, error)
        raise passes or CheckpointError(
            f"The offsets of batch {batch} in checkpoint '{checkpoint.url}' cannot be read: "
            f"{error}. Is that the path as Spark sees it?"
        ) from None
    was_read(checkpoint.url)
    return found


def parse(plan: str) -> PlannedBatch:
    """Of a header of another form nothing is known."""
    header, *ends = plan.split("\n")[1:] or [""]
    try:
        found = json_object(header)
    except ValueError:
        found = {}
    watermark, time = found.get("batchWatermarkMs"), found.get("batchTimestampMs")
    settings = found.get("conf")
    return PlannedBatch(
        tuple(ends),
        watermark if type(watermark) is int else None,
        settings if isinstance(settings, dict) else {},
        time if type(time) is int else None,
    )
