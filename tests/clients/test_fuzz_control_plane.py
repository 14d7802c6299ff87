"""The control plane under answers that no sound broker gives.

The bytes go through kafka-python's own parser. Whatever they are, the control plane answers in its
own terms, for exactly the ids it was asked about, or raises an EoKafkaError: a wrong reading could
commit or abort what it must not.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import errors
from kafka.protocol.admin.transactions import (
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.producer.transaction import EndTxnResponse

from eo_kafka.clients.kafka import bootstrap, control_plane
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.control_requests import TransactionRequests
from eo_kafka.core.transaction import (
    Described,
    EndTxnAnswer,
    Identity,
    TransactionState,
    end_txn_answer,
)
from eo_kafka.errors import EnvironmentRefused, EoKafkaError, OutcomeUnknown

IDS = ("eo.job.sink.p0.g0.a0", "eo.job.sink.p1.g0.a1")
VERSIONS = {"EndTxnRequest": 5, "DescribeTransactionsRequest": 0, "ListTransactionsRequest": 1}
Mutate = Callable[[bytes], bytes]


class Answer:
    """A future of kafka-python's, as far as `await` goes."""

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self._value, self._error = value, error

    def __await__(self) -> Generator[None, None, Any]:
        if self._error is not None:
            raise self._error
        return self._value
        yield


class Wire:
    """Stands for the connection manager and the admin client: requests are encoded, the frames
    that come back are made by `reply` and mutated, and kafka-python's parser reads them."""

    def __init__(self, reply: Callable[[Any], Any], mutate: Mutate) -> None:
        self._reply, self._mutate = reply, mutate
        self._manager = self
        self.cluster = self
        self._coordinators: dict[Any, Any] = {}
        self.config: dict[str, Any] = {}

    def run(self, coroutine: Callable[..., Any], *args: Any) -> Any:
        try:
            coroutine(*args).send(None)
        except StopIteration as done:
            return done.value
        raise AssertionError("the wire never waits")

    def request_update(self) -> None:
        """Of the cluster's metadata."""

    async def _find_coordinator_ids(self, ids: list[str], key_type: Any) -> dict[str, int]:
        return dict.fromkeys(ids, 1)

    def brokers(self) -> list[Any]:
        return [SimpleNamespace(node_id=1)]

    def call_soon(self, coroutine: Callable[..., Any], *args: Any) -> Any:
        return coroutine(*args)

    async def _async_list_transactions(self, _: Any, *__: Any, **___: Any) -> dict[int, list[Any]]:
        found = await self.send(ListTransactionsRequest(), node_id=1)
        return {1: list(found.transaction_states)}

    def send(self, request: Any, node_id: Any) -> Answer:
        if type(request).__name__ == "MetadataRequest":  # which none of the tests mutates
            return Answer(SimpleNamespace(to_dict=lambda: {"topics": [], "brokers": []}))
        request.API_VERSION = VERSIONS[type(request).__name__]
        parser = KafkaProtocol(client_id="fuzz")
        correlation = parser.send_request(request)
        response = self._reply(request)
        response.API_VERSION = request.API_VERSION
        response.with_header(correlation_id=correlation)
        payload = self._mutate(response.encode(framed=True, header=True)[4:])
        try:
            found = parser.receive_bytes(struct.pack(">i", len(payload)) + payload)
        except errors.KafkaError as error:
            return Answer(error=error)
        except Exception as error:  # the real client's reading task dies, and the request times out
            return Answer(error=errors.RequestTimedOutError(type(error).__name__))
        return Answer(found[0][1]) if found else Answer(error=errors.RequestTimedOutError())


def plane(reply: Callable[[Any], Any], mutate: Mutate = lambda payload: payload) -> ControlPlane:
    made = ControlPlane.__new__(ControlPlane)
    made.servers, made.admin = "wire:1", Wire(reply, mutate)
    made._settings = {"bootstrap.servers": made.servers}
    made._requests = TransactionRequests(made.admin, made.servers)
    return made


def end_txn(code: int) -> Callable[[Any], Any]:
    return lambda _: EndTxnResponse(
        throttle_time_ms=0, error_code=code, producer_id=7, producer_epoch=3
    )


def described(names: tuple[str, ...], **changes: Any) -> Any:
    rows = DescribeTransactionsResponse.TransactionState
    return DescribeTransactionsResponse(
        throttle_time_ms=0,
        transaction_states=[
            rows(
                **{
                    "error_code": 0,
                    "transactional_id": name,
                    "transaction_state": "Ongoing",
                    "transaction_timeout_ms": 60_000,
                    "transaction_start_time_ms": 1,
                    "producer_id": 7,
                    "producer_epoch": 3,
                    "topics": [rows.TopicData(topic="out", partitions=[0, 1])],
                    **changes,
                }
            )
            for name in names
        ],
    )


def listed() -> Any:
    rows = ListTransactionsResponse.TransactionState
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=0,
        unknown_state_filters=[],
        transaction_states=[
            rows(transactional_id=name, producer_id=7, transaction_state="Ongoing") for name in IDS
        ],
    )


@pytest.fixture(autouse=True, scope="module")
def patience() -> Iterator[None]:
    """Retries are bounded by time; here by very little of it."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it logs every frame it cannot read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_plane, "LOOKUP_TIMEOUT_S", 0.0)
        yield
    logging.getLogger("kafka").setLevel(logging.NOTSET)


@st.composite
def mutations(draw: st.DrawFn) -> Mutate:
    """Exchange, insert or cut bytes behind the correlation id; or something else altogether."""
    edits = draw(
        st.lists(
            st.tuples(st.floats(0, 1), st.integers(0, 8), st.binary(max_size=8)),
            min_size=1,
            max_size=4,
        )
    )
    whole = draw(st.none() | st.none() | st.none() | st.binary(max_size=60))

    def mutate(payload: bytes) -> bytes:
        head, body = payload[:4], bytearray(payload[4:])
        if whole is not None:
            return head + whole
        for where, length, inserted in edits:
            at = int(where * len(body))
            body[at : at + length] = inserted
        return head + bytes(body)

    return mutate


IDENTITIES = [Identity(name, 7, 3) for name in IDS]


@settings(max_examples=300)
@given(mutations(), st.sampled_from([0, 47, 49, 51, 90, 53]))
def test_end_txn_answers_for_the_ids_asked_in_known_words(mutate: Mutate, code: int) -> None:
    try:
        answers = plane(end_txn(code), mutate).end(IDENTITIES, commit=True, version=5)
    except EoKafkaError as error:
        assert len(str(error)) < 1000
        return
    assert answers.keys() == set(IDS)
    for answer in answers.values():
        assert isinstance(end_txn_answer(answer), EndTxnAnswer)
        assert len(answer) < 100


@given(st.integers(-(2**15), 2**15 - 1))
def test_only_code_0_means_that_a_transaction_was_ended(code: int) -> None:
    answers = plane(end_txn(code)).end(IDENTITIES, commit=True, version=5)
    ended = {end_txn_answer(answer) is EndTxnAnswer.ENDED for answer in answers.values()}
    assert ended == {code == 0}


@settings(max_examples=300)
@given(mutations())
def test_describe_answers_for_the_ids_asked_or_raises_ours(mutate: Mutate) -> None:
    try:
        found = plane(lambda _: described(IDS), mutate).describe(IDS)
    except EoKafkaError as error:
        assert len(str(error)) < 1000
        return
    assert found.keys() == set(IDS)
    for name, one in found.items():
        assert isinstance(one, Described) and one.transactional_id == name
        assert isinstance(one.state, TransactionState)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: described(IDS[:1]),
        lambda: described((*IDS, "somebody-elses")),
        lambda: described((IDS[0], IDS[0])),
        lambda: described(IDS, transaction_state="Levitating"),
        lambda: described(IDS, transaction_state=""),
        lambda: described(IDS, error_code=999),
        lambda: described(IDS, error_code=-1),
    ],
    ids=["one short", "one too many", "one twice", "new state", "no state", "new code", "code -1"],
)
def test_a_description_that_cannot_be_true_is_an_unknown_outcome(answer: Callable[[], Any]) -> None:
    with pytest.raises((OutcomeUnknown, EnvironmentRefused), match="wire:1"):
        plane(lambda _: answer()).describe(IDS)


@settings(max_examples=300)
@given(mutations())
def test_listed_transactions_match_or_the_listing_raises_ours(mutate: Mutate) -> None:
    def reply(request: Any) -> Any:
        if type(request).__name__ == "ListTransactionsRequest":
            return listed()
        return described(tuple(request.transactional_ids))

    def only_the_listing(payload: bytes) -> bytes:
        return mutate(payload) if b"60" not in payload and len(payload) < 120 else payload

    try:
        found = plane(reply, only_the_listing).open_transactions("eo.*", lambda name: name in IDS)
    except EoKafkaError as error:
        assert len(str(error)) < 1000
        return
    assert {one.transactional_id for one in found} <= set(IDS)


def test_what_is_listed_and_open_is_found() -> None:
    found = plane(lambda request: listed() if "List" in type(request).__name__ else described(IDS))
    assert len(found.open_transactions("eo.*", lambda name: name in IDS)) == len(IDS)


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_negative_end_of_a_partition_is_never_taken_for_an_empty_one(offset: int) -> None:
    class Offsets(Wire):
        def list_partition_offsets(self, asked: Any, isolation_level: str) -> Any:
            return {at: errors_offset(offset) for at in asked}

    made = plane(end_txn(0))
    made.admin = Offsets(end_txn(0), lambda payload: payload)
    with pytest.raises(OutcomeUnknown, match="wire:1"):
        made.end_offset("ledger", 0, committed=True)


def errors_offset(offset: int) -> Any:
    from kafka.structs import OffsetAndTimestamp

    return OffsetAndTimestamp(offset, -1, -1)


@contextmanager
def listener(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that listens where a broker should."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    try:
                        answer(client)
                    except OSError:
                        continue

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def garbage(client: socket.socket) -> None:
    client.recv(4096)
    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def a_frame_of_garbage(client: socket.socket) -> None:
    request = client.recv(4096)
    client.sendall(struct.pack(">i", 12) + request[8:12] + b"\xff" * 8)


def nothing(client: socket.socket) -> None:
    client.recv(4096)


@pytest.mark.parametrize("answer", [garbage, a_frame_of_garbage, nothing])
def test_what_is_no_broker_is_refused_in_bounded_time(
    answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "TIMEOUT_S", 1.5)
    monkeypatch.setattr(bootstrap, "REQUEST_TIMEOUT_MS", 1000)
    started = time.monotonic()
    with listener(answer) as servers, pytest.raises(EnvironmentRefused, match=servers):
        ControlPlane({"bootstrap.servers": servers})
    assert time.monotonic() - started < 10
