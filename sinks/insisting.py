"""What S7 does of a target that is away for a while: again, until it is known what became of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..core.errors import OutcomeUnknown

APPLY_TIMEOUT_S = 60.0  # for a server that starts again


def insisting(
    do: Callable[[], None],
    batch: int,
    place: str,
    again: tuple[type[Exception], ...],
    pause_s: float,
) -> None:
    """`do`, again when it raises one of `again`: what has become of it, it sees by itself. Driver.
    Raises OutcomeUnknown a minute after the first failure: work that takes longer says nothing of
    an outage."""
    deadline: float | None = None
    while True:
        try:
            return do()
        except again as error:
            now = time.monotonic()
            deadline = deadline or now + APPLY_TIMEOUT_S
            if now > deadline:
                raise OutcomeUnknown(
                    f"Batch {batch} is decided, and whether {place} has it is unknown: "
                    f"{str(error) or type(error).__name__} Start the query again when that is "
                    "mended: it goes on with this batch."
                ) from error
        time.sleep(pause_s)
