"""Maps of ours whose entries expire by the members' own configuration: what must be remembered
would be forgotten."""

from __future__ import annotations

import pytest

from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.clients.hazelcast.client import client, close_clients
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sinks.maps import marker
from eo_kafka.sinks.maps.applied import MARKERS
from grid_fixtures import new_map, settings
from map_two_phase_job import ADDING, job_of
from test_map_imap_sink import parsed, write_batch

WAY_OUT = {"__eo_kafka.*": {"time-to-live-seconds": 0, "max-idle-seconds": 0}}


@pytest.mark.parametrize(
    "of_default", [{"time-to-live-seconds": 600}, {"max-idle-seconds": 600}], ids=["ttl", "idle"]
)
@pytest.mark.parametrize("besides", [{}, WAY_OUT], ids=["refused", "way-out"])
def test_maps_of_ours_whose_entries_expire_are_refused(broker, of_default, besides) -> None:
    """A marker that expires between a driver's death and the next start: what is applied would be
    merged once more. One of a query: tasks that were given up would write again."""
    with HazelcastCluster(1, {"default": of_default, **besides}) as grid:
        connected = client(settings(grid))
        stored = new_map(connected, "x")
        job = job_of(grid, stored, broker.bootstrap_servers, **ADDING)
        puts = parsed(grid, new_map(connected, "y"))
        if besides:
            job.run(0)
            write_batch(puts, {"k": "v"}, "query", 0)
        else:
            with pytest.raises(EnvironmentRefused, match=r"staged' of .* expire.*\"__eo_kafka"):
                job.prepare(0)
            with pytest.raises(EnvironmentRefused, match=f"'{marker.MAP}' of .* expire"):
                write_batch(puts, {"k": "v"}, "query", 0)
        for name in (MARKERS, marker.MAP, f"__eo_kafka.{job.given['jobName']}.staged"):
            keys = connected.get_map(name).blocking().key_set()
            assert not [key for key in keys if "probe" in key]
        close_clients()
