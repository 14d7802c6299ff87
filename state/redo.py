"""Brings a checkpoint that is older than the ledger forward: writes Spark's logs of batches as they
were.

For queries without state, whose checkpoint is nothing but these logs. A death in the middle is
safe: offsets are written before commits, so Spark runs at most a batch again that is written, with
the offsets that it had, and the sink skips it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from eo_kafka.errors import CheckpointError
from eo_kafka.state.batch_ends import is_replayable, same_lines
from eo_kafka.state.checkpoint import Checkpoint
from eo_kafka.state.snapshot import RESTORING, source_offsets

_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


def redo(checkpoint: Checkpoint, written: Mapping[int, Sequence[str]]) -> list[int]:
    """Give `checkpoint` the batches of `written` (number -> where its sources ended, a line each)
    that it lacks, or holds otherwise. Returns their numbers; none if it was as new as that.

    Runs anywhere. Raises CheckpointError, with the checkpoint as it was, for one of a query with
    state, and where it says of a batch that it is committed, and `written` does not know it.
    """
    paths = checkpoint.paths()
    newest = max(written)
    _check_can(checkpoint, paths, written)
    planned, committed = _numbers(paths, "offsets"), _numbers(paths, "commits")
    after = sorted(batch for batch in committed if batch > newest)
    if after:
        raise CheckpointError(
            f"Checkpoint '{checkpoint.url}' has batch {after[-1]} as committed, and the ledger "
            f"ends with batch {newest}: it is newer than the ledger, or another job's. Nothing "
            "was changed."
        )
    wrong = [
        batch
        for batch in sorted(written)
        if batch not in planned or not same_lines(source_offsets(checkpoint, batch), written[batch])
    ]
    lacking = [batch for batch in sorted(written) if batch not in committed]
    if not wrong and not lacking:
        return []
    _write(checkpoint, written, wrong, lacking, planned, committed)
    return sorted({*wrong, *lacking})


def _check_can(
    checkpoint: Checkpoint, paths: Sequence[str], written: Mapping[int, Sequence[str]]
) -> None:
    newest = max(written)
    problem = ""
    if RESTORING in paths or "metadata" not in paths:
        problem = "it is empty, or was not restored to its end"
    elif any(path.startswith("state/") for path in paths):
        problem = (
            "the query keeps state, which the ledger does not hold: such a query goes on from a "
            "snapshot (option 'snapshots'; 'eo-kafka snapshots restore'), or from a copy of the "
            "checkpoint that is as new as the ledger"
        )
    elif not written[newest]:
        problem = f"the ledger does not say where the sources of batch {newest} ended"
    elif not all(is_replayable(line) for line in written[newest]):
        problem = "a source of the query is not Kafka, and keeps more than offsets in a checkpoint"
    elif newest and newest - 1 not in written and newest - 1 not in _numbers(paths, "offsets"):
        problem = f"Spark needs batch {newest - 1} too, and the ledger does not know it"
    if problem:
        raise CheckpointError(
            f"Checkpoint '{checkpoint.url}' cannot be brought to batch {newest}: {problem}. "
            "Nothing was changed."
        )


def _write(
    checkpoint: Checkpoint,
    written: Mapping[int, Sequence[str]],
    wrong: Sequence[int],
    lacking: Sequence[int],
    planned: set[int],
    committed: set[int],
) -> None:
    header = _header(checkpoint, max(planned, default=None))
    ended = _ended(checkpoint, max(committed, default=None))
    # What was planned beyond what is written: Spark plans it again, from where the job is.
    for batch in sorted(planned):
        if batch > max(written):
            checkpoint.remove(f"offsets/{batch}")
    for batch in wrong:
        checkpoint.remove(f"offsets/{batch}")
        checkpoint.write(f"offsets/{batch}", ["\n".join([*header, *written[batch]]).encode()])
    for batch in lacking:
        checkpoint.write(f"commits/{batch}", [ended])


def _header(checkpoint: Checkpoint, batch: int | None) -> list[str]:
    """Version and settings, as Spark wrote them last."""
    if batch is not None:
        with checkpoint.open(f"offsets/{batch}") as stream:
            return stream.read().decode().split("\n")[:2]
    made = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {}}
    return ["v1", json.dumps(made, separators=(",", ":"))]


def _ended(checkpoint: Checkpoint, batch: int | None) -> bytes:
    if batch is None:
        return _COMMIT
    with checkpoint.open(f"commits/{batch}") as stream:
        return stream.read()


def _numbers(paths: Sequence[str], folder: str) -> set[int]:
    names = (path.partition("/") for path in paths)
    return {int(name) for top, _, name in names if top == folder and name.isdigit()}
