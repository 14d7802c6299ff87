"""Where a map is and how it is written: decided once, here, by options `backend` and `commit`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ...core.maps import BACKEND, KAFKA
from ..options import COMMIT, TWO_PHASE


class Backend(Enum):
    """The kinds of maps, for all who read and write them."""

    TOPIC = "a compacted topic"
    IMAP = "an IMap that is written entry by entry"
    TWO_PHASE_IMAP = "an IMap whose batches are decided on in a ledger"

    @property
    def has_ledger(self) -> bool:
        """Whether its streaming writes are decided on in the ledger of a job."""
        return self is not Backend.IMAP


def backend_of(given: Mapping[str, str]) -> Backend:
    """The one that options ask for; an IMap where `backend` is missing or wrong, which is told when
    they are parsed."""
    lowered = {name.lower(): value for name, value in given.items()}
    backend, commit = (
        str(lowered.get(key, "")).strip().lower() for key in (BACKEND.key, COMMIT.key)
    )
    if backend == KAFKA:
        return Backend.TOPIC
    return Backend.TWO_PHASE_IMAP if commit == TWO_PHASE else Backend.IMAP
