"""What a job's supervisor makes of records in its control topic that this version does not know."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.errors import EnvironmentRefused
from eo_kafka.tools.control import words
from eo_kafka.tools.control.seat import Seat
from eo_kafka.tools.control.words import Told, Wish
from eo_kafka.tools.run.control import ControlledOrders
from eo_kafka.tools.run.orders import Order
from eo_kafka.tools.run.policy import Policy, Restarts
from eo_kafka.tools.run.supervisor import Supervisor

CANCEL = Wish("cancel", "ann@laptop", id="x", at_ms=1)
CANCELLED = Told("cancelled", "cancelled", "x", done=True, ok=True)
RUNNING = Told("running")


class Kafka:
    """Nothing more comes; the topic begins at its beginning. What is told stands in `told`."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def produce(self, _topic: str, said: bytes, *_: Any, **__: Any) -> None:
        self.told.append(said)

    def poll(self, _timeout_s: float) -> None:
        return None

    def get_watermark_offsets(self, _at: Any, timeout: float) -> tuple[int, int]:
        return 0, 2


@pytest.fixture
def seat() -> Seat:
    """Given to this supervisor, which has read to the topic's end."""
    made = Seat.__new__(Seat)
    made.job, made._topic = "pay", "__eo_kafka.pay.control"
    made.wish = made.told = None
    made._assigned, made._at_end, made._read, made._refused = True, True, False, ""
    made._gone_s, made._unknown, made._on_way, made._is_untold = 0.0, {}, [], False
    made._consumer = made._producer = Kafka()
    return made


def newer(record: Wish | Told) -> bytes:
    """As a version with one field more writes it."""
    return json.dumps({**json.loads(words.encode(record)), "reason": "bad data"}).encode()


def put(seat: Seat, *records: Wish | Told, encode: Any = words.encode) -> None:
    for one in records:
        seat._apply(words.WISH_KEY if isinstance(one, Wish) else words.TOLD_KEY, encode(one))


@pytest.mark.parametrize(
    ("known", "unknown"),
    [((), (CANCELLED, CANCEL)), ((), (CANCEL,)), ((CANCEL,), (CANCELLED,)), ((), (CANCELLED,))],
)
def test_nothing_is_started_beside_a_record_that_is_not_understood(
    known: Any, unknown: Any, seat: Seat
) -> None:
    put(seat, *known)
    put(seat, *unknown, encode=newer)
    orders = ControlledOrders(seat, {})
    with pytest.raises(EnvironmentRefused, match=r"Job 'pay': .*'eo-kafka job resume pay"):
        orders.look()
    put(seat, Wish("resume", "ann@laptop"))  # of this version, by a person who has read that
    assert orders.look() is Order.GO


def test_a_key_that_is_not_known_is_not_passed_over(seat: Seat) -> None:
    put(seat, Wish("resume", "ann@laptop"))
    seat._apply(b"budget", b"{}")
    with pytest.raises(EnvironmentRefused, match="its key is b'budget'"):
        ControlledOrders(seat, {}).look()


def test_an_answer_that_is_understood_takes_the_place_of_one_that_is_not(seat: Seat) -> None:
    put(seat, RUNNING, encode=newer)
    put(seat, RUNNING)
    assert ControlledOrders(seat, {}).look() is Order.GO


def test_a_driver_that_runs_goes_on_and_no_other_one_is_started(seat: Seat) -> None:
    orders = ControlledOrders(seat, {})
    assert orders.look() is Order.GO
    put(seat, CANCEL, encode=newer)
    assert orders.look() is Order.GO
    assert not orders.pending, "nothing is answered"
    supervisor = Supervisor(
        lambda: pytest.fail("a driver is started"), Restarts(Policy(), lambda: 0.5), 1, 600, orders
    )
    with pytest.raises(EnvironmentRefused, match="Nothing is started"):
        supervisor._one_run()
    put(seat, CANCEL)
    assert orders.look() is not Order.GO
    orders.check_start()


def test_a_right_that_is_lost_ends_the_supervisor_by_a_sentence_and_gives_the_seat_up(
    seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka, once it knows, refuses the next record itself: the supervisor's last words."""

    def produce(*_: Any, **__: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    closed: list[bool] = []
    monkeypatch.setattr(seat, "close", lambda: closed.append(True))
    monkeypatch.setattr(seat._producer, "produce", produce)
    supervisor = Supervisor(
        lambda: pytest.fail("a driver is started"),
        Restarts(Policy(), lambda: 0.5),
        *(1, 600, ControlledOrders(seat, {})),
    )
    seat.tell(RUNNING)
    with pytest.raises(
        EnvironmentRefused, match=r"Grant this principal Write on topic '__eo_kafka"
    ):
        supervisor.run()
    assert closed


ASKED = Wish("cancel", "ann@laptop", snapshot="monday", id="w2", at_ms=1)
REFUSED = Told("running", "run", "w2", done=True, said="Refused.", host="B", pid=7)
LATE = Told("waiting", "run", "w1", done=True, ok=True, host="A", pid=9)


def as_stored(records: list[bytes]) -> list[Any]:
    return [words.decode_told(said) for said in records]


def test_a_late_answer_of_who_has_lost_the_job_does_not_hold(seat: Seat) -> None:
    """Else the next start takes what was refused for what nobody has answered."""
    orders = ControlledOrders(seat, {})
    orders.look()
    put(seat, ASKED)
    seat.tell(REFUSED)
    put(seat, LATE, REFUSED)
    assert as_stored(seat._producer.told) == [REFUSED], "it stands behind the late one anyway"
    put(seat, LATE)
    assert as_stored(seat._producer.told) == [REFUSED, REFUSED]
    put(seat, REFUSED)
    assert len(seat._producer.told) == 2, "one's own"
    assert orders.look() is Order.GO


def test_what_could_not_be_told_in_time_is_told_by_who_has_the_job_only(seat: Seat) -> None:
    orders = ControlledOrders(seat, {})
    orders.look()
    lost: Any = SimpleNamespace(value=lambda: words.encode(REFUSED))
    for has_it, times in ((True, 2), (False, 3)):
        seat.tell(REFUSED)
        seat._assigned = has_it
        seat._delivered(KafkaError(KafkaError._MSG_TIMED_OUT), lost)
        orders.look()
        assert len(seat._producer.told) == times
        seat._on_way.clear()
