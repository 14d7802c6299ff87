"""Writes a Hazelcast member's configuration file and picks its ports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .settings import LOOPBACK

CLUSTER_NAME = "dev"  # Hazelcast's own default, so that clients need not name it
PARTITIONS = 271
# Events that a journal keeps, over all partitions of a map. A partition has 1/271 of it.
JOURNAL_CAPACITY = 1_000_000


def journal(capacity: int = JOURNAL_CAPACITY, time_to_live_s: int = 0) -> dict[str, object]:
    """The settings of a map that has an event journal of so many events over all partitions."""
    return {
        "backup-count": 1,
        "event-journal": {
            "enabled": True,
            "capacity": capacity,
            "time-to-live-seconds": time_to_live_s,
        },
    }


def member_settings(
    port: int,
    ports: Sequence[int],
    maps: Mapping[str, Mapping[str, object]],
    cluster_name: str = CLUSTER_NAME,
    besides: Mapping[str, object] | None = None,
) -> str:
    """The text of a member's `hazelcast.yaml`; JSON is YAML too. `besides` goes over the rest."""
    settings: dict[str, object] = {
        "cluster-name": cluster_name,
        "network": {
            "port": {"port": port, "auto-increment": False},
            "interfaces": {"enabled": True, "interfaces": [LOOPBACK]},
            "join": {
                "auto-detection": {"enabled": False},
                "multicast": {"enabled": False},
                "tcp-ip": {
                    "enabled": True,
                    "member-list": [f"{LOOPBACK}:{one}" for one in ports],
                },
            },
        },
        "properties": {
            "hazelcast.phone.home.enabled": "false",
            "hazelcast.logging.type": "jdk",
            "hazelcast.socket.bind.any": "false",  # loopback only
            "hazelcast.wait.seconds.before.join": "0",
            "hazelcast.max.wait.seconds.before.join": "0",
            "hazelcast.tcp.join.port.try.count": "1",
            "hazelcast.partition.count": str(PARTITIONS),
            # what SIGTERM waits for; data that must not be lost has a backup
            "hazelcast.graceful.shutdown.max.wait": "20",
        },
        "jet": {"enabled": False},
        "map": {name: dict(one) for name, one in maps.items()},
        **(besides or {}),
    }
    return json.dumps({"hazelcast": settings}, indent=2)
