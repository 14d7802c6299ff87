"""Finds logs that were cut below where a query has read, and are written again since.

A leader that did not have the newest records (an unclean election), or a broker whose disk lost
them, goes on where its own log ends. The offsets look as before, and other records are there.
Kafka's consumers find this by the leader's epoch (KIP-320): a position has the epoch of the leader
that told it, and where a later leader tells of more, it is asked where that epoch ends in its log.
Runs on the driver; no broker is asked unless a leader has changed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from ..clients.kafka import control_plane
from ..clients.kafka.control_errors import is_not_offered
from ..core.errors import EnvironmentRefused, OptionsError, cut
from ..core.offsets import Position, TopicPartition, names
from .lookup import Ends
from .settings.options import SourceOptions

log = logging.getLogger(__name__)


class CutLogs:
    """Compares positions with logs: each place once with each leader."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._compared: dict[TopicPartition, tuple[int, int]] = {}  # offset, epoch now

    def find(self, read: Position, ends: Ends) -> list[str]:
        """A sentence for each partition whose log was cut below `read` and is as long again; one
        that is shorter shows by its end. Raises EnvironmentRefused, OutcomeUnknown."""
        changed = {
            at: (read.epochs[at], now)
            for at, now in ends.epochs.items()
            if 0 < read.offsets.get(at, 0) <= ends.offsets[at]
            and now > read.epochs.get(at, now)
            and self._compared.get(at) != (read.offsets[at], now)
        }
        cut_at = _epoch_ends(self._options, changed) if changed else {}
        self._compared |= {at: (read.offsets[at], now) for at, (_, now) in changed.items()}
        return [
            f"The log of partition {at} was cut at offset {end}, and the query is at offset "
            f"{read.offsets[at]}: a broker became leader that did not have what was behind (an "
            "unclean leader election), or lost what its disk had not written. Records from "
            f"{end} on that the query has read are gone from the topic, and those that were "
            "written in their place would be skipped."
            for at, end in sorted(cut_at.items())
            if end < read.offsets[at]
        ]


def _epoch_ends(
    options: SourceOptions, epochs: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, int]:
    """Where what leaders up to the first epoch wrote ends now; of none where that cannot be asked,
    which is told."""
    asked = {(at.topic, at.partition): pair for at, pair in epochs.items()}
    try:
        found = control_plane.shared(options.kafka).epoch_ends(asked)
    except (OptionsError, EnvironmentRefused) as error:
        if not (isinstance(error, OptionsError) or is_not_offered(error)):
            raise
        log.warning(
            "The leaders of %s changed. Whether their logs still hold all that was read cannot be "
            "asked: %s",
            names(epochs),
            cut(error),
        )
        return {}
    return {TopicPartition(*at): end for at, end in found.items() if end >= 0}
