"""What `failOnDataLoss` decides, and what is told of losses. On the driver, and in tasks."""

from __future__ import annotations

import logging
from collections.abc import Collection

from ..core.errors import DataLossError
from ..core.offsets import OffsetRange, Offsets, TopicPartition, encode_text, names

log = logging.getLogger(__name__)

# Of an end that a log does not reach
TO_COME = (
    "If the records are still to come, read again when they are there: to go on leaves them out."
)


def tell_loss(sentence: str, *, fail: bool) -> None:
    """Raise DataLossError, or warn if the query is to go on with what is left."""
    if fail:
        raise DataLossError(
            f"{sentence} To go on with what is left, set 'failOnDataLoss' to false."
        )
    log.warning("%s Going on with what is left, as 'failOnDataLoss' is false.", sentence)


def sentence_of_gone(partitions: Collection[TopicPartition]) -> str:
    return (
        f"Partitions {names(partitions)} are gone; some data may have been missed. They were "
        "deleted, or the options do not name them any more, or the principal may not describe "
        "them. To go on where they were read, put the topic back into 'subscribe' (or give the "
        "right DESCRIBE back). With 'failOnDataLoss' as false what is left of them is not read, "
        "and should they come back, all of it is, from its beginning."
    )


def sentence_of_deleted(topics: Collection[str]) -> str:
    return (
        f"This batch was planned on topics that were deleted since: {sorted(topics)}. Of them "
        "nothing more can be read."
    )


def sentence_of_shorter(found: OffsetRange) -> str:
    """Of a range that ends before it begins."""
    at, begin, end = found
    return (
        f"The offset of partition {at} was changed from {begin} to {end}, some data may have been "
        "missed: the topic was made again, or its records expired."
    )


def sentence_of_foreign_plan(end: Offsets) -> str:
    return (
        f"The first batch of this query, up to {encode_text(end)}, was planned by Spark's own "
        "connector (format 'kafka') and is not committed. Where it begins, Python sources cannot "
        "see: its records would be passed over. Nothing was read. Start the query once more as it "
        "was, with format 'kafka' and trigger(availableNow=True), until the checkpoint has "
        "'commits/0'. If it cannot get so far, set 'startingOffsets' here to the JSON in "
        "'sources/0/0' of the checkpoint (of the second source, 'sources/1/0'). If an eo-kafka "
        "from before topics' ids planned it, nothing is lost by going on."
    )
