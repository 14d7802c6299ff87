"""What is said where a directory or a store does not hold what its manifest says."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...core.errors import LedgerError
from .manifest import DataFile, Manifest

log = logging.getLogger(__name__)


def gone(place: str, sequence: int, lost: Sequence[DataFile], where: object, *, fail: bool) -> None:
    """Raise LedgerError, unless losses are accepted."""
    names = ", ".join(file.name for file in lost[:3]) + (" and more" if len(lost) > 3 else "")
    sentence = (
        f"{place} shows batch {sequence}, and {len(lost)} of its files ({names}; "
        f"{sum(file.rows for file in lost)} rows) were removed or changed before it was published."
    )
    if fail:
        raise LedgerError(
            f"{sentence} Nothing was changed. Bring them back into {where}. Or, to go on without "
            "these rows, set option 'failOnDataLoss' to false until a batch is written."
        )
    log.warning("%s Going on without them, as 'failOnDataLoss' is false.", sentence)


def check_restored(there: object, own: object, newest: Manifest | None, sequence: int) -> None:
    """Of a batch that is `there`, or was, before its manifest is made: raise LedgerError, unless
    another driver has made one since. A batch is published after its manifest."""
    if newest is None or newest.sequence < sequence:
        raise LedgerError(
            f"{there} is there, or was, and the newest manifest in {own} is older: that was "
            "restored from an older copy without the batches, or a manifest was removed. Nothing "
            "was changed. Restore all of it from one copy."
        )
