"""Reaching a cluster: by TLS, through one address, and what is said when nobody lets us in."""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eo_kafka.clients.hazelcast.client import close_clients, connect
from eo_kafka.errors import EnvironmentRefused, ReadTimeout
from grid_fixtures import new_map, settings
from secure_broker import KEY_PASSWORD, Certificates
from test_map_batch import without_spark

SOON = {"hazelcast.connect.timeout.ms": "1500"}
LATER = {"hazelcast.connect.timeout.ms": "6000"}


@contextmanager
def tls_in_front_of(port: int, made: Certificates) -> Iterator[int]:
    """What members of the Enterprise edition do themselves: TLS that asks for a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.broker, made.broker.with_suffix(".key"))
    context.load_verify_locations(made.ca)
    context.verify_mode = ssl.CERT_REQUIRED

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls_options(port: int, ca: Path, made: Certificates) -> dict[str, str]:
    return {
        "hazelcast.members": f"localhost:{port}",
        "hazelcast.smart.routing": "false",  # the other addresses are without TLS
        "hazelcast.ssl.enabled": "true",
        "hazelcast.ssl.ca.location": str(ca),
        "hazelcast.ssl.certificate.location": str(made.client),
        "hazelcast.ssl.key.location": str(made.encrypted_key),
        "hazelcast.ssl.key.password": KEY_PASSWORD,
        **SOON,
    }


def test_a_map_is_read_by_tls_through_one_address(grid, hazelcast_client, certificates) -> None:
    stored = new_map(hazelcast_client)
    stored.put_all({f"k{number}": f"v{number}" for number in range(1000)})
    with tls_in_front_of(grid.members[0].port, certificates) as port:
        given = {**tls_options(port, certificates.ca, certificates), **LATER}
        found = without_spark(grid, stored, **given)
        assert sorted(row["key"] for row in found) == sorted(f"k{number}" for number in range(1000))
        close_clients()


def test_members_that_an_unknown_authority_vouches_for_are_not_believed(grid, certificates) -> None:
    with tls_in_front_of(grid.members[0].port, certificates) as port:
        given = tls_options(port, certificates.other_ca, certificates)
        with pytest.raises(ReadTimeout) as refused:
            connect(settings(grid, **given))
    assert "credentials and TLS" in str(refused.value)
    assert KEY_PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hazelcast.members": "127.0.0.1:1"},
        {"hazelcast.cluster": "another"},
    ],
    ids=["nobody-there", "another-name"],
)
def test_nobody_lets_us_in_is_said_soon_with_what_to_check(grid, wrong) -> None:
    begin = time.monotonic()
    secret = {"hazelcast.username": "me", "hazelcast.password": "hunter2"}
    with pytest.raises(ReadTimeout) as refused:
        connect(settings(grid, **SOON, **secret, **wrong))
    assert time.monotonic() - begin < 20
    assert "within 1.5 s" in str(refused.value)
    assert "'hazelcast.cluster'" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_without_the_clients_package_the_command_is_named(grid, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hazelcast", None)
    with pytest.raises(EnvironmentRefused, match=r"pip install 'eo-kafka\[hazelcast\]'"):
        connect(settings(grid))


def test_a_member_that_says_nothing_is_passed_over(grid, hazelcast_client, monkeypatch) -> None:
    stored = new_map(hazelcast_client)
    stored.set("k", "v")
    monkeypatch.setattr(random, "shuffle", lambda addresses: None)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        members = ",".join([address, *grid.addresses])
        client = connect(settings(grid, **LATER, **{"hazelcast.members": members}))
        silent.accept()[0].close()  # it was asked
        assert client.get_map(stored.name).blocking().get("k") == "v"
        client.shutdown()
