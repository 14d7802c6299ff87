"""One Hazelcast of two members for all tests that do not kill one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import hazelcast
import pytest

from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.broker.hazelcast_settings import journal
from eo_kafka.clients.hazelcast.client import HazelcastSettings, close_clients, connect
from eo_kafka.core.options import OptionReader

# By the beginning of a map's name
MAPS = {
    "j*": journal(),
    "small*": journal(capacity=2710),  # ten events a partition
    "alone*": {**journal(), "backup-count": 0},
    "brief*": journal(time_to_live_s=1),
    "plain*": {"backup-count": 1},  # no journal
    "guarded*": {**journal(), "split-brain-protection-ref": "two-members"},
}
PROTECTION = {
    "split-brain-protection": {"two-members": {"enabled": True, "minimum-cluster-size": 2}}
}


def members(count: int) -> HazelcastCluster:
    """A cluster with these maps."""
    return HazelcastCluster(count, MAPS, settings=PROTECTION)


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
def _mortal() -> Iterator[HazelcastCluster]:
    with members(2) as one:
        yield one


@pytest.fixture
def mortal_grid(_mortal) -> Iterator[HazelcastCluster]:
    """Two members, of which a test may kill the first, or restart both. Always the first: one that
    has come back may not have its copies yet, and then the other holds the only ones."""
    _mortal.start()
    yield _mortal
    close_clients()  # of this process; they may still be looking for the dead


@pytest.fixture(scope="session")
def hazelcast_client(grid) -> Iterator[hazelcast.HazelcastClient]:
    client = connect(settings(grid))
    yield client
    client.shutdown()
