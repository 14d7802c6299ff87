"""One Hazelcast of two members for all tests that do not kill one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

import hazelcast
import pytest

from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.broker.hazelcast_settings import journal
from eo_kafka.hazelcast_client import HazelcastSettings, connect
from eo_kafka.options import OptionReader

# By the beginning of a map's name
MAPS = {
    "j*": journal(),
    "small*": journal(capacity=2710),  # ten events a partition
    "brief*": journal(time_to_live_s=1),
    "plain*": {"backup-count": 1},  # no journal
    "guarded*": {**journal(), "split-brain-protection-ref": "two-members"},
}
PROTECTION = {
    "split-brain-protection": {"two-members": {"enabled": True, "minimum-cluster-size": 2}}
}


def members(count: int, maps: Mapping[str, Mapping[str, object]] = MAPS) -> HazelcastCluster:
    """A cluster of a test's own, with the same maps if no others are given."""
    return HazelcastCluster(count, maps, settings=PROTECTION)


def settings(grid: HazelcastCluster, **options: str) -> HazelcastSettings:
    """How to reach it."""
    reader = OptionReader({"hazelcast.members": ",".join(grid.addresses), **options})
    found = HazelcastSettings.read(reader)
    reader.finish()
    return found


def new_map(client: hazelcast.HazelcastClient, kind: str = "j"):
    """A map that nobody else uses, of a kind of MAPS; with blocking methods."""
    return client.get_map(f"{kind}-{uuid.uuid4().hex[:8]}").blocking()


@pytest.fixture(scope="session")
def grid() -> Iterator[HazelcastCluster]:
    with members(2) as one:
        yield one


@pytest.fixture(scope="session")
def hazelcast_client(grid) -> Iterator[hazelcast.HazelcastClient]:
    client = connect(settings(grid))
    yield client
    client.shutdown()
