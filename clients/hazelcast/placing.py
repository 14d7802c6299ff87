"""Finds out whether a map's keys lie in the partitions that their hash says.

With a partition strategy (on members or in other clients) what places a key is something else, a
part of it say, and its hash travels before the serialized key. Members tell no client which
strategy a map has, and one that only clients have they do not know; so keys are looked at.
"""

from __future__ import annotations

from ...core.errors import cut
from . import internals
from .client import HazelcastSettings, answer, client

_NO_HASH = bytes(4)
# Types that keys have which we hash. Java's PartitionAware objects are none of them
_OURS = (internals.TEXT, internals.BYTES, internals.JSON, internals.CLASS)
_KEYS = 8  # of a partition: others may have put theirs by hash beside them


def misplaced(settings: HazelcastSettings, name: str) -> str | None:
    """For sentences: a key of map `name` that lies elsewhere than its hash says; None if there is
    none among the first few of each partition. Raises what `answer` does."""
    from hazelcast.serialization.data import Data

    connected = client(settings)
    service = connected.partition_service
    asked = [
        internals.first_keys(connected, name, partition, _KEYS)
        for partition in range(service.get_partition_count())
    ]
    for partition, one in enumerate(asked):
        for key in answer(one, name, settings).items:
            if key[:4] == _NO_HASH or Data(key).get_type() not in _OURS:
                continue
            by_hash = service.get_partition_id(Data(_NO_HASH + key[4:]))
            if by_hash != partition:
                text = cut(internals.to_object(connected, key), 100)
                return (
                    f"key '{text}' lies in partition {partition}, and by its hash in {by_hash}: a "
                    "partition strategy has placed it"
                )
    return None
