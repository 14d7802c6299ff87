"""Who was fenced, and whose transaction was aborted for its age; and what the writer of a view does
after either."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.clients.kafka import fenced, transactional_producer
from eo_kafka.core.transaction import Described, Identity, TransactionState
from eo_kafka.errors import EoKafkaError, Fenced, OutcomeUnknown
from eo_kafka.state.snapshots.writer import ExportWriter
from eo_kafka.state.view import Marker
from eo_kafka.state.view_writer import ViewWriter

MINE = Identity("id", 5, 3)
ABORTED, EMPTY = TransactionState.COMPLETE_ABORT, TransactionState.EMPTY


class Control:
    """Says these one after the other, the last one for ever."""

    def __init__(self, *told: tuple[TransactionState, int, int]) -> None:
        self._told = list(told)

    def describe_one(self, name: str) -> Described:
        return Described(name, *(self._told.pop(0) if len(self._told) > 1 else self._told[0]))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fenced, "_TAKES_S", 0.05)
    monkeypatch.setattr(fenced, "_POLL_S", 0.01)


@pytest.mark.parametrize(
    ("told", "aged"),
    [
        ([(ABORTED, 5, 4)], True),
        ([(TransactionState.PREPARE_ABORT, 5, 4), (ABORTED, 5, 4)], True),
        ([(ABORTED, 5, 4), (EMPTY, 5, 5)], False),  # somebody was taking it
        ([(EMPTY, 5, 4)], False),
        ([(ABORTED, 5, 5)], False),  # of who took it
        ([(ABORTED, 5, 3)], False),
        ([(ABORTED, 6, 4)], False),
        ([(TransactionState.ONGOING, 5, 4)], False),
        ([(TransactionState.MISSING, -1, -1)], False),
    ],
)
def test_an_abort_for_age_is_told_from_a_successor(
    told: list[tuple[TransactionState, int, int]], aged: bool
) -> None:
    control: Any = Control(*told)
    assert fenced.was_aborted_for_age(control, MINE, was_open=True) is aged


def test_of_a_transaction_that_kafka_never_heard_of_nothing_can_be_aborted() -> None:
    control: Any = Control((ABORTED, 5, 4))
    assert not fenced.was_aborted_for_age(control, MINE, was_open=False)


class FencedAtCommit:
    def begin_transaction(self) -> None: ...

    def produce(self, *args: Any, on_delivery: Any, headers: Any) -> None:
        on_delivery(None, SimpleNamespace(offset=lambda: 0))

    def flush(self, timeout_s: float) -> int:
        return 0

    def commit_transaction(self, timeout_s: float) -> None:
        raise KafkaException(KafkaError(KafkaError._FENCED))

    def abort_transaction(self, timeout_s: float) -> None: ...


@pytest.mark.parametrize(("epoch", "error"), [(4, OutcomeUnknown), (5, Fenced)])
def test_an_export_that_was_stopped_for_long_is_fenced_by_a_successor_only(
    epoch: int, error: type[EoKafkaError], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExportWriter, "_settle", lambda _: None)
    monkeypatch.setattr(transactional_producer, "take", lambda *_, **__: FencedAtCommit())
    control: Any = Control((EMPTY, 5, 3), (ABORTED, 5, epoch))
    options: Any = SimpleNamespace(prefix="p", kafka={})
    with pytest.raises(error):
        ExportWriter(options, control, "export").append([(b"k", b"v")])


class Fails:
    """In place of the ExportWriter of a view."""

    def __init__(self, error: EoKafkaError) -> None:
        self.error, self.taken = error, 0

    def take(self) -> None:
        self.taken += 1

    def write(self, records: Any, portion_bytes: int) -> None:
        raise self.error


@pytest.mark.parametrize(("error", "taken"), [(OutcomeUnknown("x"), 1), (Fenced("x"), 0)])
def test_a_view_is_taken_again_after_a_write_that_failed_and_not_from_a_successor(
    error: EoKafkaError, taken: int
) -> None:
    view = ViewWriter.__new__(ViewWriter)
    fails: Any = Fails(error)
    view._writer, view._marker, view._is_known = fails, Marker("q", 1), True
    found: Any = SimpleNamespace(marker=Marker("q", 2))  # it had landed all the same
    view.read = lambda: found  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        view.write([], Marker("q", 2))
    assert view.marker == (Marker("q", 2) if taken else Marker("q", 1))
    assert view.marker and fails.taken == taken
