"""The Kafka requests that the protocol needs, and which of them a broker lacks. No I/O.

A managed Kafka, or another make of broker, may leave some out; which of them it refuses to this
principal, only a rehearsal shows (`eo-kafka doctor --write`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Request(NamedTuple):
    """`version` is the least that is of use; `purpose` ends a sentence."""

    key: int
    name: str
    version: int
    purpose: str


NEEDED = (
    Request(2, "ListOffsets", 2, "to read a ledger to its last stable offset"),
    Request(3, "Metadata", 10, "for the ids of topics: one that was replaced has another"),
    Request(10, "FindCoordinator", 1, "to find the broker that keeps a transaction"),
    Request(22, "InitProducerId", 1, "to take a transactional id, which fences its last holder"),
    Request(24, "AddPartitionsToTxn", 0, "to write into a transaction"),
    Request(26, "EndTxn", 3, "for the driver, to end what its tasks have prepared"),
    Request(32, "DescribeConfigs", 1, "to see that no setting loses what is acknowledged"),
    Request(65, "DescribeTransactions", 0, "to see, before it decides, that all is prepared"),
    Request(66, "ListTransactions", 0, "to find what a dead task left open"),
)


def lacking(versions: Mapping[int, tuple[int, int]]) -> list[Request]:
    """Those that are not offered, by a broker's answer to ApiVersions: key -> least and greatest
    version."""
    return [one for one in NEEDED if versions.get(one.key, (0, -1))[1] < one.version]


def not_offered(servers: str, versions: Mapping[int, tuple[int, int]]) -> str:
    """What is to be said of that; "" if nothing is lacking."""
    named = "; ".join(f"{one.name} {one.version}, {one.purpose}" for one in lacking(versions))
    return named and (
        f"The brokers at {servers} do not offer {named}. Without that there is no exactly-once: "
        "nothing was written or made. Use Apache Kafka, 3.9 or newer, or set option 'guarantee' to "
        "'at-least-once'."
    )
