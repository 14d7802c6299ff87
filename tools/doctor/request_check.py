"""Lists the Kafka requests that the protocol needs; checks that a broker offers them. No I/O.

A managed Kafka may leave some out; which it refuses to this principal, only the rehearsal shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from .machine_check import Finding, Level


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
DESCRIBE_TOPIC_PARTITIONS = 75


def offered(node: int, versions: Mapping[int, tuple[int, int]]) -> Iterator[Finding]:
    """What node `node` lacks, from its answer to ApiVersions: key -> least and greatest version."""
    lacking = [one for one in NEEDED if versions.get(one.key, (0, -1))[1] < one.version]
    for one in lacking:
        text = f"node {node} does not offer {one.name} {one.version}, {one.purpose}"
        yield Finding(Level.PROBLEM, "requests", text)
    if not lacking:
        text = f"node {node} offers all {len(NEEDED)} that the protocol needs"
        if DESCRIBE_TOPIC_PARTITIONS not in versions:
            text += "; not DescribeTopicPartitions (Kafka 4 has it), for which Metadata stands in"
        yield Finding(Level.OK, "requests", text)
