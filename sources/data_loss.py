"""What `failOnDataLoss` decides. On the driver, and in tasks."""

from __future__ import annotations

import logging

from ..core.errors import DataLossError

log = logging.getLogger(__name__)


def tell_loss(sentence: str, *, fail: bool) -> None:
    """Raise DataLossError, or warn if the query is to go on with what is left."""
    if fail:
        raise DataLossError(
            f"{sentence} To go on with what is left, set 'failOnDataLoss' to false."
        )
    log.warning("%s Going on with what is left, as 'failOnDataLoss' is false.", sentence)
