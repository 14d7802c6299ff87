"""A control topic that loses what was wished: nothing is started without a word. And who asks is
told when another one asks for something else."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.errors import EnvironmentRefused, EoKafkaError
from eo_kafka.state.ledger.job import Job, read_job
from eo_kafka.testing import records
from eo_kafka.tools.control import asking
from eo_kafka.tools.control import seat as seat_module
from eo_kafka.tools.control.seat import Seat, topic_of
from eo_kafka.tools.control.words import TOLD_KEY, Do, Stands, Told, Wish, encode
from eo_kafka.tools.run import control
from eo_kafka.tools.run.control import ControlledOrders
from eo_kafka.tools.run.orders import Order
from hand_made_job import cut_log
from harness import delete_topic, wait_until


@pytest.fixture
def job(broker, make_topic) -> Job:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return read_job(make_topic("supervised"), given)


def topic(job: Job) -> str:
    return topic_of(job.job_and_ledger[0])


def holds(seat: Seat) -> bool:
    seat.look()
    return seat.holds


def suspend(job: Job) -> None:
    """As its supervisor does: at offset 0 is the wish, at 1 the answer."""
    with closing(Seat(job)) as seat:
        wait_until(lambda: holds(seat), "it has the job")
        wish = Wish(Do.SUSPEND.value, "ann@host")
        asking._write(job, topic(job), wish)
        wait_until(lambda: holds(seat) and seat.wish == wish, "it has heard")
        said = "Suspended."
        seat.tell(Told("suspended", Stands.SUSPENDED.value, wish.id, done=True, ok=True, said=said))


def test_a_suspended_job_is_not_started_when_the_wish_is_lost(job):
    suspend(job)
    cut_log(job.kafka["bootstrap.servers"], topic(job), 2)
    with (
        closing(Seat(job)) as seat,
        pytest.raises(EnvironmentRefused, match=r"begins at offset 2.*eo-kafka job resume"),
    ):
        wait_until(lambda: holds(seat), "it has the job")
    asking._write(job, topic(job), Wish(Do.RESUME.value, "ann@host"))
    with closing(Seat(job)) as seat:
        wait_until(lambda: holds(seat), "it has the job")
        assert ControlledOrders(seat, {}).look() is Order.GO


def test_a_suspended_job_stays_so_by_its_answer_when_the_wish_is_lost(job):
    suspend(job)
    cut_log(job.kafka["bootstrap.servers"], topic(job), 1)
    with closing(Seat(job)) as seat:
        wait_until(lambda: holds(seat), "it has the job")
        assert ControlledOrders(seat, {}).look() is Order.SUSPEND


def test_a_late_answer_of_a_supervisor_that_lost_the_job_is_not_the_last_one(job):
    suspend(job)
    late = Told("waiting", Stands.RUN.value, "before", done=True, ok=True, host="frozen", pid=9)
    with closing(Seat(job)) as seat:
        wait_until(lambda: holds(seat), "it has the job")
        answer = seat.told
        assert answer is not None
        records.write(job.kafka["bootstrap.servers"], topic(job), [(TOLD_KEY, encode(late))])
        wait_until(lambda: not holds(seat) or seat._on_way, "it has heard")
        wait_until(lambda: holds(seat) and not seat._on_way, "it has told that again")
    with closing(Seat(job)) as seat:
        wait_until(lambda: holds(seat), "it has the job")
        assert seat.told == answer
        assert ControlledOrders(seat, {}).look() is Order.SUSPEND


def why_it_ends(seat: Seat) -> str:
    ended: list[str] = []

    def is_ended() -> bool:
        try:
            seat.look()
        except EnvironmentRefused as error:
            ended.append(str(error))
        return bool(ended)

    wait_until(is_ended, "it says why it ends")
    return ended[0]


def test_supervisors_do_not_stand_by_for_ever_when_the_topic_is_gone(job, monkeypatch):
    monkeypatch.setattr(seat_module, "_REFRESH_S", 0.5)
    monkeypatch.setattr(seat_module, "_GONE_S", 2.0)
    suspend(job)
    with closing(Seat(job)) as first:
        wait_until(lambda: holds(first), "it has the job")
        with closing(Seat(job)) as second:
            delete_topic(job.kafka["bootstrap.servers"], topic(job))
            assert "the last that this supervisor knows is 'suspended'" in why_it_ends(first)
            assert "this supervisor stood by, and does not know it" in why_it_ends(second)


def asked(job: Job, do: Do, told: list[str]) -> threading.Thread:
    def run() -> None:
        with pytest.raises(EoKafkaError) as failed:
            asking.ask(job, do, "", 60, told.append)
        told.append(str(failed.value))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_who_asks_is_told_that_another_one_asks_for_something_else(job, monkeypatch):
    monkeypatch.setattr(asking, "NOBODY_S", 3.0)
    Seat(job).close()
    first: list[str] = []
    second: list[str] = []
    one = asked(job, Do.SUSPEND, first)
    with closing(Seat(job)) as seat:
        wait_until(lambda: holds(seat) and seat.wish is not None, "it has heard the first")
        other = asked(job, Do.RESUME, second)
        one.join(60)
        assert "'resume' was asked for by" in first[-1] and "'suspend' does not hold" in first[-1]
    other.join(60)
    assert "It is recorded, and holds" in second[-1]


def test_a_supervisor_outlives_a_kafka_that_is_away_while_it_exports(job, monkeypatch):
    """It ended with a traceback, and killed a driver that ran."""

    def export(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(control, "check_exportable", export)
    monkeypatch.setattr(control, "export_last", export)
    with closing(Seat(job)) as seat:
        orders = ControlledOrders(seat, {})
        wait_until(lambda: holds(seat), "it has the job")
        assert orders.look() is Order.GO
        for obey, phase, stands in (
            (orders.may_obey, "running", Stands.RUN),
            (lambda: orders.obeyed("suspended", "Suspended."), "suspended", Stands.SUSPENDED),
        ):
            asking._write(job, topic(job), Wish(Do.SUSPEND.value, "ann@host", "mine"))
            wait_until(lambda: orders.look() is Order.SUSPEND, "it has heard")
            obey()
            assert (seat.told.phase, seat.told.stands, seat.told.ok) == (phase, stands.value, False)
            assert "nothing is known to be exported" in seat.told.said
