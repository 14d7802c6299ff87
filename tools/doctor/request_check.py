"""Checks that a broker offers the Kafka requests that the protocol needs. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...clients.kafka.needed_requests import NEEDED, lacking
from .machine_check import Finding, Level

DESCRIBE_TOPIC_PARTITIONS = 75


def offered(node: int, versions: Mapping[int, tuple[int, int]]) -> Iterator[Finding]:
    """What node `node` lacks, from its answer to ApiVersions: key -> least and greatest version."""
    missing = lacking(versions)
    for one in missing:
        text = f"node {node} does not offer {one.name} {one.version}, {one.purpose}"
        yield Finding(Level.PROBLEM, "requests", text)
    if not missing:
        text = f"node {node} offers all {len(NEEDED)} that the protocol needs"
        if DESCRIBE_TOPIC_PARTITIONS not in versions:
            text += "; not DescribeTopicPartitions (Kafka 4 has it), for which Metadata stands in"
        yield Finding(Level.OK, "requests", text)
