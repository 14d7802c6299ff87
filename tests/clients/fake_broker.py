"""A broker of a cluster of one, as far as the control plane asks it: over real sockets, and with
the moods that a test gives it."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kafka.protocol.admin.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer.transaction import EndTxnRequest, EndTxnResponse

UNSUPPORTED_VERSION = 35
API_VERSIONS, METADATA, COORDINATOR, DESCRIBE, END_TXN = 18, 3, 10, 65, 26
_REQUESTS = {
    one.API_KEY: one
    for one in (
        ApiVersionsRequest,
        MetadataRequest,
        FindCoordinatorRequest,
        DescribeTransactionsRequest,
        EndTxnRequest,
    )
}
# Of Kafka 3.9 and of 4.1, the versions of what a control plane asks; kafka-python goes by Produce
# (0), Fetch (1) and ListOffsets (2) in telling them apart.
OLD = {0: 11, 1: 17, 2: 9, METADATA: 12, COORDINATOR: 6, API_VERSIONS: 3, END_TXN: 4, DESCRIBE: 0}
NEW = {0: 13, 1: 18, 2: 11, METADATA: 13, COORDINATOR: 6, API_VERSIONS: 4, END_TXN: 5, DESCRIBE: 0}


class Broker:
    """`versions`: the highest of each request. `silent`: takes connections and requests, and
    answers nothing; over TLS not even the handshake. `deaf`: to how many of the next connections it
    never answers."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.versions, self.transaction_version = OLD, 0
        self.silent, self.deaf = False, 0
        self._tls, self._listening = tls, socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listening.getsockname()[1]
        self.servers = f"127.0.0.1:{self._port}"
        self._clients: list[socket.socket] = []
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """With all connections."""
        self._closed.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close all connections, as when the broker is started again."""
        while self._clients:
            with suppress(OSError):
                self._clients.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self.deaf:
                    self.deaf -= 1
                    self._clients.append(client)
                    continue
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, EOFError):
            if self._tls is not None:
                self._wait_while_silent()
                client = self._tls.wrap_socket(client, server_side=True)
            self._clients.append(client)
            with client, client.makefile("rb") as stream:
                while head := stream.read(4):
                    request = stream.read(struct.unpack(">i", head)[0])
                    self._wait_while_silent()
                    client.sendall(self._answer(request))

    def _wait_while_silent(self) -> None:
        while self.silent and not self._closed.wait(0.02):
            pass

    def _answer(self, frame: bytes) -> bytes:
        key, version, correlation = struct.unpack_from(">hhi", frame)
        if key == API_VERSIONS and version > self.versions[key]:
            answer, version = self._api_versions(None, UNSUPPORTED_VERSION), 0
        else:
            request = _REQUESTS[key].decode(frame, version=version, header=True)
            answers = {
                API_VERSIONS: self._api_versions,
                METADATA: self._metadata,
                COORDINATOR: self._coordinators,
                DESCRIBE: _described,
                END_TXN: _ended,
            }
            answer = answers[key](request)
        answer.API_VERSION = version
        answer.with_header(correlation_id=correlation)
        encoded: bytes = answer.encode(framed=True, header=True)
        return encoded

    def _api_versions(self, _: Any, error: int = 0) -> Any:
        level = self.transaction_version
        feature = ApiVersionsResponse.FinalizedFeatureKey(
            name="transaction.version", min_version_level=1, max_version_level=level
        )
        row = ApiVersionsResponse.ApiVersion
        return ApiVersionsResponse(
            error_code=error,
            api_keys=[
                row(api_key=key, min_version=0, max_version=highest)
                for key, highest in self.versions.items()
            ],
            throttle_time_ms=0,
            supported_features=[],
            finalized_features_epoch=1,
            finalized_features=[feature] if level else [],
            zk_migration_ready=False,
        )

    def _metadata(self, _: Any) -> Any:
        broker = MetadataResponse.MetadataResponseBroker(
            node_id=1, host="127.0.0.1", port=self._port, rack=None
        )
        return MetadataResponse(
            throttle_time_ms=0,
            brokers=[broker],
            cluster_id="c",
            controller_id=1,
            topics=[],
            error_code=0,
        )

    def _coordinators(self, request: Any) -> Any:
        row = FindCoordinatorResponse.Coordinator
        here: dict[str, Any] = {"node_id": 1, "host": "127.0.0.1", "port": self._port}
        here |= {"error_code": 0, "error_message": ""}
        rows = [row(key=key, **here) for key in request.coordinator_keys]
        return FindCoordinatorResponse(throttle_time_ms=0, coordinators=rows, **here)


def _described(request: Any) -> Any:
    row = DescribeTransactionsResponse.TransactionState
    rows = [
        row(
            error_code=0,
            transactional_id=name,
            transaction_state="Ongoing",
            transaction_timeout_ms=60_000,
            transaction_start_time_ms=0,
            producer_id=1,
            producer_epoch=0,
            topics=[],
        )
        for name in request.transactional_ids
    ]
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=rows)


def _ended(_: Any) -> Any:
    return EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=1, producer_epoch=1)


@contextmanager
def broker(tls: ssl.SSLContext | None = None) -> Iterator[Broker]:
    """One that is closed at the end."""
    made = Broker(tls)
    try:
        yield made
    finally:
        made.close()
