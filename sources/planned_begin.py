"""Where a query's first batch begins when it is run again: as its end says. Runs on the driver."""

from __future__ import annotations

import logging

from ..core.offsets import Offsets, Position, TopicPartition, encode_text

log = logging.getLogger(__name__)


def as_planned(now: Offsets, planned: Offsets) -> dict[TopicPartition, int]:
    """Where a first batch begins: as it was planned, where that is kept, and not as it is `now`."""
    other = {at: offset for at, offset in now.items() if planned.get(at, offset) != offset}
    if other:
        log.warning(
            "The first batch begins where it was planned to, at %s, and not at %s, which is what "
            "'startingOffsets' or a time means now: records have expired since, or the option was "
            "changed. Only a new checkpoint begins elsewhere.",
            encode_text({at: planned[at] for at in other}),
            encode_text(other),
        )
    return {at: planned.get(at, offset) for at, offset in now.items()}


def is_kept(start: Offsets, until: Position) -> bool:
    """Whether the batch to `until` begins elsewhere than the options say by now, `start`: then none
    says to begin there. What would start behind the end reads nothing, and starts at it."""
    ends, begins = until.offsets, until.begins
    return any(
        begins.get(at, offset) != min(offset, ends.get(at, offset)) for at, offset in start.items()
    )
