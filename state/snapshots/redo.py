"""Brings a checkpoint that is older than the ledger forward.

Writes Spark's logs of the missing batches as they were.

For queries without state, whose checkpoint is nothing but these logs. A death in the middle is
safe: offsets are written before commits, so Spark runs at most a batch again that is written, with
the offsets that it had, and the sink skips it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from ...core.errors import CheckpointError
from ...core.transaction import Begun
from .batch_ends import is_replayable, name_of, same_lines
from .checkpoint import Checkpoint
from .offset_log import plan_of, planned_batch
from .snapshot import RESTORING

_COMMIT = b'v1\n{"nextBatchWatermarkMs":0}'


def redo(
    checkpoint: Checkpoint,
    written: Mapping[int, Sequence[str]],
    newest: int,
    *,
    restoring: bool = False,
) -> list[int]:
    """Bring `checkpoint` to batch `newest`: give it the batches of `written` (number -> where its
    sources ended, a line each) that it lacks, or holds otherwise. Returns their numbers; none if
    it was as new as that.

    Runs anywhere. `restoring`: it is being filled from a snapshot. Raises CheckpointError, with the
    checkpoint as it was, for one of a query with state, and where checkpoint and ledger say too
    little of a batch that Spark will ask for.
    """
    paths = checkpoint.paths()
    planned, committed = _numbers(paths, "offsets"), _numbers(paths, "commits")
    unfinished = not restoring and (RESTORING in paths or "metadata" not in paths)
    problem = "it is empty, or was not restored to its end" if unfinished else ""
    if problem := problem or _problem(paths, written, newest, planned, committed):
        raise CheckpointError(
            f"Checkpoint '{checkpoint.url}' cannot be brought to batch {newest}: {problem}. "
            "Nothing was changed."
        )
    wrong = [
        batch
        for batch in sorted(written)
        if batch not in planned
        or not same_lines(planned_batch(checkpoint, batch).ends, written[batch])
    ]
    lacking = [batch for batch in sorted(written) if batch not in committed]
    if wrong or lacking:
        _write(checkpoint, written, wrong, lacking, planned, committed)
    return sorted({*wrong, *lacking})


def can_be_planned(begun: Begun) -> bool:
    """Whether its plan says all that its sources must know."""
    return all(map(is_replayable, begun.ends))


def plan_again(checkpoint: Checkpoint, begun: Begun) -> bool:
    """Let Spark run the batch that was interrupted as it had planned it, in a checkpoint that is
    as new as the batch before. Returns whether the checkpoint had it otherwise, or not at all.

    Runs anywhere. Raises CheckpointError, OSError.
    """
    path = f"offsets/{begun.batch}"
    if plan_of(checkpoint, begun.batch, "") == begun.plan:
        return False
    checkpoint.remove(path)
    checkpoint.write(path, [begun.plan.encode()])
    return True


def _problem(
    paths: Sequence[str],
    written: Mapping[int, Sequence[str]],
    newest: int,
    planned: set[int],
    committed: set[int],
) -> str:
    """Why it cannot be done, as the end of a sentence; "" if it can."""
    if any(path.startswith("state/") for path in paths):
        return (
            "the query keeps state, which the ledger does not hold: such a query goes on from a "
            "snapshot (option 'snapshots'; 'eo-kafka snapshots restore'), or from a copy of the "
            "checkpoint that is as new as the ledger"
        )
    if committed and max(committed) > newest:
        return (
            f"it has batch {max(committed)} as committed, and the ledger ends with batch {newest}: "
            "it is newer than the ledger, or another job's"
        )
    if not all(is_replayable(line) for line in written.get(newest, ())):
        return "a source of the query is not Kafka and keeps more than offsets in a checkpoint"
    if not planned and any(name_of(line) for lines in written.values() for line in lines):
        # Spark has a form of its own for these, by its version, and refuses the other one.
        return (
            "its sources have names, and it has no planned batch by which to write their log: take "
            "a copy of the checkpoint that has one in 'offsets'"
        )
    unknown = [
        batch
        for batch in (newest, newest - 1)  # what Spark starts from, and looks for besides
        if batch >= 0 and batch not in written and not (batch < newest and batch in planned)
    ]
    if unknown:
        return f"the ledger does not say where the sources of batch {unknown[0]} ended"
    return ""


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
