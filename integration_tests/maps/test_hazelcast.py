"""The Hazelcast of `eo-kafka hazelcast`: real members on loopback, killed and started again."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import hazelcast
import psutil
import pytest

from eo_kafka.broker.errors import BrokerError, PortTaken
from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.broker.jars import hazelcast_jars
from eo_kafka.clients.hazelcast.client import connect
from eo_kafka.clients.hazelcast.internals import journal_bounds
from grid_fixtures import members, new_map, settings


def test_members_listen_on_loopback_only(grid) -> None:
    for member in grid.members:
        listening = [
            one.laddr.ip
            for one in psutil.Process(member.pid).net_connections("inet")
            if one.status == psutil.CONN_LISTEN
        ]
        assert set(listening) == {"127.0.0.1"}


@pytest.mark.full
def test_a_killed_member_takes_nothing_with_it_and_comes_back_a_full_restart_loses_all() -> None:
    with members(2) as grid:
        client = connect(settings(grid))
        entries = {f"k{number}": number for number in range(1000)}
        stored = new_map(client)
        stored.put_all(entries)
        victim = grid.members[0]
        address = victim.address
        victim.kill()
        assert not victim.running
        assert stored.get_all(list(entries)) == entries
        grid.start()
        assert victim.running
        assert victim.address == address
        assert stored.get_all(list(entries)) == entries
        grid.restart()
        assert stored.size() == 0
        client.shutdown()


def test_a_taken_port_is_refused_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        grid = HazelcastCluster(port=taken.getsockname()[1])
        with pytest.raises(PortTaken, match="another process holds that port"):
            grid.start()
        grid.close()


def test_a_member_that_cannot_start_says_why() -> None:
    grid = HazelcastCluster(settings={"no-such-setting": {}})
    with pytest.raises(BrokerError, match="no-such-setting"):
        grid.start()
    grid.close()
    with pytest.raises(BrokerError, match="'five' is not a Hazelcast version"):
        hazelcast_jars("five")


def run_command(*options: str) -> tuple[subprocess.Popen[str], list[str]]:
    """Start `eo-kafka hazelcast`; return it and the addresses it prints."""
    command = [sys.executable, "-m", "eo_kafka.tools.cli", "hazelcast", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    name, _, addresses = process.stdout.readline().strip().partition("=")
    assert name == "hazelcast.members"
    assert process.stdout.readline() == "hazelcast.cluster=dev\n"
    return process, addresses.split(",")


def test_the_command_runs_two_members_until_sigterm() -> None:
    process, addresses = run_command("--members", "2", "--journal", "orders=27100")
    try:
        assert len(addresses) == 2
        client = hazelcast.HazelcastClient(cluster_members=addresses)
        assert len(client.cluster_service.get_members()) == 2
        client.get_map("orders").blocking().put("a", "b")
        assert journal_bounds(client, "orders", 0).result().oldest == 0
        with pytest.raises(hazelcast.errors.UnsupportedOperationError):
            journal_bounds(client, "others", 0).result()
        client.shutdown()
        family = psutil.Process(process.pid).children(recursive=True)
        assert sum(one.name() == "java" for one in family) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert psutil.wait_procs(family, timeout=30)[1] == []
    finally:
        process.kill()
        process.communicate()


def test_the_members_die_with_a_killed_command() -> None:
    process, _ = run_command()
    try:
        family = psutil.Process(process.pid).children(recursive=True)
        assert any(one.name() == "java" for one in family)
        process.kill()
        assert psutil.wait_procs(family, timeout=30)[1] == []
    finally:
        process.kill()
        process.communicate()
