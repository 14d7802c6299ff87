"""Shares out `maxOffsetsPerTrigger` among partitions, as the JVM connector does. Pure."""

from __future__ import annotations

import math

from ..core.offsets import Offsets, TopicPartition


def rate_limited(limit: int, begin: Offsets, newest: Offsets) -> dict[TopicPartition, int]:
    """Where a batch of about `limit` offsets ends, each partition in proportion to its backlog.

    A share below one is rounded up, so that a small partition beside large ones is not starved
    (the batch may then exceed `limit` by one offset a partition); others are rounded down. A
    partition without backlog, or without an entry in `begin`, ends at its newest offset.
    """
    backlog = {
        partition: end - begin[partition]
        for partition, end in newest.items()
        if end > begin.get(partition, end)
    }
    total = float(sum(backlog.values()))
    ends = dict(newest)
    for partition, size in backlog.items():
        share = limit * (size / total)
        offsets = math.ceil(share) if share < 1 else math.floor(share)
        ends[partition] = min(newest[partition], begin[partition] + offsets)
    return ends
