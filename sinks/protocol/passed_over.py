"""A new query takes a job over by `onReset=new-job`: what its readers pass over.

The option promises that all is read again. A stream without `startingOffsets` starts at `latest`,
and what came since the last query ended would be read by nobody. Driver, in S1; contacts nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...core.errors import ForeignLedger
from ...core.offsets import Offsets, TopicPartition, encode_text
from ...state.ledger.ledger import Ledger
from ...state.snapshots.batch_ends import position_of
from ...state.snapshots.checkpoint import open_checkpoint
from ...state.snapshots.first_starts import told
from ...state.snapshots.offset_log import NOT_PLANNED, planned_batch
from ..options import SinkOptions


@dataclass(frozen=True)
class PassedOver:
    """Where the query before ended and this one begins, of the partitions with records between.
    `by_default`: because no option says, or said, where to begin. `is_known`: all readers have
    told."""

    ended: Offsets
    begins: Offsets
    by_default: bool
    is_known: bool

    @property
    def between(self) -> str:
        """As the end of a sentence."""
        return (
            f"it begins at {encode_text(self.begins)}, and the query before ended at "
            f"{encode_text(self.ended)}: what lies between would be read by neither"
        )


def find(options: SinkOptions, ledger: Ledger) -> PassedOver:
    """By the ledger's ends and what the readers told of the first batch. Raises CheckpointError."""
    ended = _newest(ledger.ends(options.sink))
    topics = {at.topic for at in ended}
    begins: dict[TopicPartition, tuple[int, bool]] = {}
    is_known = options.checkpoint is not None
    for line in _first_batch(options):
        start = told(line)
        if start is None:
            is_known = False
            continue
        for at, offset in start.offsets.items():
            # Of a topic that is read twice, what one reader passes over the other may read.
            if at.topic in topics:
                mine = offset, start.by_default
                begins[at] = min(mine, begins.get(at, mine))
    late = {at: found for at, found in begins.items() if found[0] > ended.get(at, 0)}
    return PassedOver(
        ended={at: ended.get(at, 0) for at in late},
        begins={at: offset for at, (offset, _) in late.items()},
        by_default=any(is_default for _, is_default in late.values()),
        is_known=is_known,
    )


def check_nothing(options: SinkOptions, ledger: Ledger) -> None:
    """Raise ForeignLedger where records are passed over that no option says to pass over."""
    found = find(options, ledger)
    if not found.begins or not found.by_default:
        return
    raise ForeignLedger(
        f"This query is to read and write everything of job '{options.job}' again (option "
        f"'onReset' is 'new-job'), but {found.between}. A reader without option 'startingOffsets' "
        "starts at 'latest', and this checkpoint keeps that. Nothing was written or skipped. Set "
        "'startingOffsets' at the readers to 'earliest' or to that end, delete this new checkpoint "
        "(a pipeline: full refresh again), and start again. If those records are not wanted, set "
        "it to 'latest'."
    )


def _first_batch(options: SinkOptions) -> Sequence[str]:
    if options.checkpoint is None:
        return ()
    return planned_batch(open_checkpoint(options.checkpoint), 0, NOT_PLANNED).ends


def _newest(lines: Sequence[str]) -> Mapping[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for line in lines:
        with suppress(ValueError):  # of a source that is not Kafka
            for at, offset in position_of(line).items():
                found[at] = max(offset, found.get(at, 0))
    return found
