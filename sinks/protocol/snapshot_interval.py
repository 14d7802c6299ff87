"""Decides which batches take no snapshot: the rule behind option `snapshotInterval`.

Between two snapshots a decision records where its batch's sources ended. After a restore the source
repeats these ends (`sources/recorded_ends.py`), and the sink skips the batches. Whatever could not
be repeated so, exactly, takes a snapshot. Runs on the driver, in `commit(N)`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...state.ledger.ledger import Ledger
from ...state.snapshots import operators
from ...state.snapshots.batch_ends import Ambiguous, NotOurs, ends_of, next_ends
from ...state.snapshots.checkpoint import Checkpoint
from ...state.snapshots.offset_log import PlannedBatch
from ...state.snapshots.processing_time import described_in, operator_by_the_clock
from ..batches.committable import TaskReport
from ..options import SinkOptions

log = logging.getLogger(__name__)

BATCHES_MAX = 500  # each commit reads the ledger, with the decisions since the snapshot in it
STARTS_MAX = 100  # whose queries one process remembers
JOIN = "symmetricHashJoin"  # of streams
Start = tuple[str, str]  # a query, and its run: the next start may be of other code


class _Query(NamedTuple):
    """What is known since a start: why the interval has no effect, if it has none, and else the
    stateful operators as Spark described them."""

    why: str | None
    described: dict[str, bytes]


_known: dict[Start, _Query] = {}


def is_due(
    options: SinkOptions,
    ledger: Ledger,
    report: TaskReport,
    mine: PlannedBatch,
    checkpoint: Checkpoint,
) -> bool:
    """Whether the batch of `report`, which Spark recorded as `mine`, takes a snapshot. `ledger` is
    read to its end."""
    head = ledger.snapshot
    if not options.snapshot_interval_ms or head is None:
        return True
    # A query that was started anew may be of other code, which would make another state of what was
    # decided before. So the first batch that it decides is where a restore begins.
    is_others = (head.query, head.run) != (report.query_id, report.run)
    age_ms = time.time() * 1000 - head.made_ms
    if is_others or not 0 <= age_ms < options.snapshot_interval_ms:
        return True
    if head.batch == 0:  # where batch 0 starts, no log of Spark's says
        return True
    since = ledger.since_snapshot(options.sink)
    recorded = [found.offsets for found in since if found.batch < report.batch]
    if not recorded or head.batch + len(recorded) != report.batch or len(recorded) > BATCHES_MAX:
        return True
    query = _query((report.query_id, report.run), mine.ends, checkpoint)
    if query.why or is_ambiguous(recorded, mine.ends):
        return True
    at_snapshot = ledger.decisions[options.sink, head.batch].watermark_ms
    return _is_of_a_forgotten_watermark(query.described, at_snapshot, mine)


def _is_of_a_forgotten_watermark(
    described: Mapping[str, bytes], at_snapshot: int | None, mine: PlannedBatch
) -> bool:
    """Whether a replay from the snapshot could give the batch an older watermark than it has.

    Of several watermarks a checkpoint holds the least, and after a restart Spark does not know how
    far the others were: the least one stays, at worst, where it was. Several take several sources,
    or a source twice, which is known of a join only: of a union of one source with itself the
    replay stops (batch_checks.py).
    """
    if not mine.takes_least_watermark or mine.watermark_ms == at_snapshot is not None:
        return False
    known = {one.name for one in operators.parse(described)}
    return bool(known) and (len(mine.ends) > 1 or JOIN in known)


def is_ambiguous(recorded: Sequence[Sequence[str]], mine: Sequence[str]) -> bool:
    """Whether a source could not tell, from where it starts, which of the batches it repeats: the
    `recorded` ones since the snapshot, oldest first, or the one after them, with lines `mine`."""
    try:
        next_ends([*recorded, mine])
    except Ambiguous:
        return True
    return False


def _query(start: Start, mine: Sequence[str], checkpoint: Checkpoint) -> _Query:
    """Looked at once a start; warns then if no batch of it can be repeated from offsets."""
    if start not in _known:
        found = _look(mine, checkpoint)
        if found.why:
            log.warning(
                "Option 'snapshotInterval' has no effect for query %s: %s. Each batch takes a "
                "snapshot.",
                start[0],
                found.why,
            )
        if len(_known) >= STARTS_MAX:
            del _known[next(iter(_known))]  # the oldest
        _known[start] = found
    return _known[start]


def _look(mine: Sequence[str], checkpoint: Checkpoint) -> _Query:
    try:
        for line in mine:
            ends_of(line)
    except NotOurs as error:
        return _Query(f"{error}, and such a source does not repeat recorded batches", {})
    described = described_in(checkpoint)
    operator = operator_by_the_clock(described)
    why = f"its operator {operator} may depend on the time of day, which no replay repeats"
    return _Query(why if operator else None, described)
