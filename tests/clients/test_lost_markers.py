"""How a transaction ended whose marker Kafka has left out, and what is asked to know it.

The real thing: integration_tests/crash/test_lost_markers.py.
"""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import errors
from kafka.structs import TopicPartition

from eo_kafka.clients.kafka import lost_markers
from eo_kafka.clients.kafka.control_requests import LEADERLESS, Look
from eo_kafka.clients.kafka.every_broker import list_transactions
from eo_kafka.clients.kafka.partition_transactions import Missing
from eo_kafka.clients.kafka.transactional_id import TransactionalIds
from eo_kafka.core.transaction import Described, Identity, TransactionState
from eo_kafka.errors import EnvironmentRefused, OutcomeUnknown, RepairNeeded

S = TransactionState
IDS = TransactionalIds("eo-kafka", "job")
MINE = IDS.task("main", 0, 0, 0)
AT = ("out", 1)
EPOCHS = {AT: 7}
OPEN = Identity(MINE, 40, 5)


class Kafka:
    """One partition. `open_` are its open transactions: (producer, epoch, start)."""

    def __init__(self, state: TransactionState, epoch: int = 5, name: str = MINE) -> None:
        self.open_ = [(40, 5, 100)]
        self.state, self.epoch, self.name = state, epoch, name
        self.written: list[tuple[int, bool]] = []
        self.refuses: Exception | None = None
        self.looks = 0
        self.admin = SimpleNamespace(describe_producers=0)

    def look(self, ends: list[Any]) -> Look:
        self.looks += 1
        found = {True: 100 if self.open_ else 110, False: 110}
        return Look({}, [found[committed] for _, _, committed in ends], {}, 0)

    def call(self, _: int, *given: Any) -> Any:
        assert {place.topic for place in given[0]} == {AT[0]}
        if self.refuses:
            raise EnvironmentRefused("No.") from self.refuses
        states = [
            SimpleNamespace(
                producer_id=producer,
                producer_epoch=epoch,
                current_transaction_start_offset=start,
                coordinator_epoch=3,
            )
            for producer, epoch, start in [*self.open_, (41, 0, -1)]
        ]
        return {TopicPartition(*AT): SimpleNamespace(active_producers=states)}

    def describe(self, ids: list[str]) -> dict[str, Described]:
        self.described = ids
        return {name: Described(name, self.state, self.producer, self.epoch) for name in ids}

    def epoch_ends(self, asked: Any) -> dict[Any, int]:
        assert asked == {AT: (6, 7)}
        return {AT: self.begins}

    def ask(self, method: Any, _: Any, *given: Any) -> Any:
        if method is list_transactions:
            self.lists += 1
            row = SimpleNamespace(producer_id=40, transactional_id=self.name)
            return [row] if self.name and self.lists > self.unlisted else []
        (missing,) = given
        return self.write(missing)

    def write(self, missing: list[Missing]) -> None:
        if self.refuses_to_write:
            raise EnvironmentRefused("No.") from errors.ClusterAuthorizationFailedError()
        self.written += [(one.epoch, one.commit) for one in missing]
        assert {one.where.coordinator_epoch for one in missing} == {3}
        self.open_ = []

    refuses_to_write = False
    lists = unlisted = 0  # the first so many lists lack it
    begins = 105  # the leader's epoch, behind what is open
    producer = 40


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_markers, "_MARKERS_TAKE_S", 0.01)
    monkeypatch.setattr(lost_markers, "_TOLD_WITHIN_S", 0.05)
    monkeypatch.setattr(lost_markers, "SETTLE_TIMEOUT_S", 0.1)


def settle(kafka: Any, epochs: Any = EPOCHS, must: Any = None, **given: Any) -> frozenset[Any]:
    return lost_markers.settle(lost_markers.Asker(kafka, IDS, **given), epochs, must)


@pytest.mark.parametrize(
    ("state", "epoch", "known", "written"),
    [
        (S.COMPLETE_COMMIT, 5, {}, (5, True)),
        (S.COMPLETE_ABORT, 5, {}, (5, False)),
        (S.COMPLETE_ABORT, 6, {}, (6, False)),  # Kafka's own end, for its age or by a fence
        (S.COMPLETE_COMMIT, 6, {"decided": lambda: {OPEN: False}}, (6, True)),  # by EndTxn 5
        (S.COMPLETE_COMMIT, 6, {"raises_epoch": True}, (6, True)),
        (S.COMPLETE_ABORT, 5, {"decided": lambda: {OPEN: False}}, (5, False)),
        # of an id that was taken again
        (S.COMPLETE_ABORT, 6, {"decided": lambda: {OPEN: True}}, (5, True)),
        (S.EMPTY, 6, {"decided": lambda: {OPEN: True}}, (5, True)),
        (S.EMPTY, 6, {"before": Described(MINE, S.COMPLETE_COMMIT, 40, 5)}, (5, True)),
        (S.ONGOING, 7, {"before": Described(MINE, S.COMPLETE_ABORT, 40, 6)}, (6, False)),
    ],
)
def test_the_marker_is_that_of_the_end(state, epoch, known, written, caplog) -> None:
    kafka = Kafka(state, epoch)
    assert not settle(kafka, **known)
    assert kafka.written == [written]
    (said,) = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert "out-1" in said


@pytest.mark.parametrize(
    ("known", "written"),
    [
        ({"decided": lambda: {OPEN: True}}, (5, True)),
        ({"before": Described(MINE, S.COMPLETE_COMMIT, 40, 5)}, (5, True)),
        ({"before": Described(MINE, S.COMPLETE_ABORT, 40, 6)}, (6, False)),
    ],
)
def test_of_an_id_that_has_another_producer_by_now(known, written) -> None:
    kafka = Kafka(S.EMPTY, 0, name="")
    kafka.producer = 77
    assert not settle(kafka, **known)
    assert kafka.written == [written]


def test_others_that_a_decision_names_are_not_asked_of() -> None:
    kafka = Kafka(S.COMPLETE_COMMIT)
    elsewhere = Identity(IDS.task("main", 1, 0, 0), 50, 5)
    settle(kafka, decided=lambda: {OPEN: True, elsewhere: True})
    assert kafka.described == [MINE]


@pytest.mark.parametrize(
    ("state", "epoch", "known"),
    [
        (S.COMPLETE_COMMIT, 6, {}),  # of a later transaction, that its task committed
        (S.COMPLETE_COMMIT, 7, {"raises_epoch": True}),
        (S.COMPLETE_ABORT, 7, {}),
        (S.EMPTY, 6, {"decided": lambda: {OPEN: False}}),
        (S.ONGOING, 6, {"before": Described(MINE, S.COMPLETE_COMMIT, 40, 4)}),
        (S.COMPLETE_ABORT, 4, {}),
        (S.COMPLETE_ABORT, 6, {"decided": lambda: {OPEN: False}}),  # committed before, perhaps
    ],
)
def test_an_end_that_nobody_knows_is_not_guessed(state, epoch, known) -> None:
    kafka = Kafka(state, epoch)
    with pytest.raises(RepairNeeded, match="partition 1 of 'out'.*producer 40, epoch 5") as raised:
        settle(kafka, **known)
    assert "offset 100" in str(raised.value)
    assert not kafka.written


def test_of_another_tasks_id_a_task_leaves_it_to_the_driver_and_looks_again() -> None:
    kafka = Kafka(S.EMPTY, 6)
    other = Described(IDS.task("main", 9, 0, 0), S.MISSING)
    for count in (1, 2):
        settle(kafka, before=other)
        assert kafka.looks == count
    assert not kafka.written


def test_the_coordinators_own_are_ended_by_itself() -> None:
    kafka = Kafka(S.COMPLETE_COMMIT, 6, IDS.coordinator)
    with pytest.raises(RepairNeeded):
        settle(kafka, raises_epoch=True)


def test_what_one_job_has_seen_says_nothing_of_another() -> None:
    kafka: Any = Kafka(S.COMPLETE_COMMIT)
    lost_markers.settle(lost_markers.Asker(kafka, TransactionalIds("eo-kafka", "b")), EPOCHS)
    assert not kafka.written
    settle(kafka)
    assert kafka.written


def test_who_need_not_wait_for_a_leader_is_told_where_there_is_none() -> None:
    kafka = Kafka(S.COMPLETE_COMMIT)
    without = {AT: LEADERLESS}
    assert settle(kafka, without, must=()) == {AT}
    assert not kafka.looks
    settle(kafka, without, must=[AT])
    assert kafka.written


@pytest.mark.parametrize("name", ["", "another", IDS.task("main", 0, 0, 0).replace("-", "+")])
def test_what_others_have_open_is_left_to_them(name) -> None:
    kafka = Kafka(S.COMPLETE_COMMIT, name=name)
    settle(kafka)
    assert not kafka.written


def test_what_no_coordinator_tells_of_is_asked_again() -> None:
    kafka = Kafka(S.COMPLETE_ABORT)
    kafka.unlisted = 1
    settle(kafka)
    assert kafka.written == [(5, False)]


def test_nor_is_it_settled_and_it_is_waited_for_once(caplog) -> None:
    """Some other program's, whose ids may not be seen; or ours, and nobody knows it yet."""
    kafka = Kafka(S.COMPLETE_ABORT)
    kafka.unlisted = 1000
    settle(kafka)
    asked = kafka.lists
    assert asked > 1
    settle(kafka)
    assert kafka.lists == asked + 1
    (said,) = [one.getMessage() for one in caplog.records]
    assert "no coordinator tells whose it is" in said
    kafka.unlisted = 0
    settle(kafka)
    assert kafka.written == [(5, False)]


@pytest.mark.parametrize(("begins", "settles"), [(100, True), (101, False), (-1, False)])
def test_what_began_under_this_leader_lost_no_end(begins, settles) -> None:
    kafka = Kafka(S.COMPLETE_ABORT)
    kafka.unlisted, kafka.begins = 1000, begins
    settle(kafka)
    asked = kafka.looks
    settle(kafka)
    assert (kafka.looks == asked) is settles


def test_what_is_open_stays_so_and_what_is_ending_is_waited_for() -> None:
    ongoing = Kafka(S.ONGOING)
    settle(ongoing)
    assert not ongoing.written
    for state in (S.PREPARE_COMMIT, S.PREPARE_ABORT, S.PREPARE_EPOCH_FENCE):
        with pytest.raises(OutcomeUnknown, match="out-1 within"):
            settle(Kafka(state))


def test_where_the_batch_is_open_it_is_looked_at_again_when_that_has_ended() -> None:
    """Its coordinator has not heard of the new leader, and leaves the end out."""
    kafka = Kafka(S.ONGOING)
    settle(kafka)
    kafka.state = S.COMPLETE_COMMIT
    settle(kafka)
    assert kafka.written == [(5, True)]


def test_a_task_does_not_look_again_where_others_are_open() -> None:
    kafka = Kafka(S.ONGOING)
    before = Described(IDS.task("main", 9, 0, 0), S.MISSING)
    settle(kafka, before=before)
    asked = kafka.looks
    settle(kafka, before=before)
    assert kafka.looks == asked


def test_the_coordinators_own_counts_too() -> None:
    kafka = Kafka(S.COMPLETE_COMMIT, name=IDS.coordinator)
    settle(kafka)
    assert kafka.written == [(5, True)]


def test_nothing_is_asked_as_long_as_no_leader_has_changed() -> None:
    kafka: Any = Kafka(S.COMPLETE_COMMIT)
    settle(kafka)
    asked = kafka.looks
    settle(kafka)
    assert kafka.looks == asked
    settle(kafka, {AT: 8})
    assert kafka.looks > asked


def test_who_may_not_look_is_told_once(caplog) -> None:
    kafka: Any = Kafka(S.COMPLETE_COMMIT)
    kafka.refuses = errors.TopicAuthorizationFailedError()
    for epoch in (7, 8):
        settle(kafka, {AT: epoch})
    assert not kafka.written
    (said,) = [one.getMessage() for one in caplog.records]
    assert "no Read on the topic" in said


def test_brokers_that_do_not_offer_the_request_are_none_of_kafkas(caplog) -> None:
    kafka = Kafka(S.COMPLETE_COMMIT)
    kafka.refuses = errors.UnsupportedVersionError()
    settle(kafka)
    assert not caplog.records


def test_who_may_not_write_is_told_what_to_allow() -> None:
    kafka = Kafka(S.COMPLETE_COMMIT)
    kafka.refuses_to_write = True
    with pytest.raises(EnvironmentRefused, match="out-1.*Alter on the cluster"):
        settle(kafka)
    kafka.refuses_to_write = False
    settle(kafka)
    assert kafka.written


def test_a_partition_without_a_leader_is_named() -> None:
    class Leaderless(Kafka):
        def look(self, ends: list[Any]) -> Look:
            unknown = OutcomeUnknown("b:1 answered LeaderNotAvailableError: out-1.")
            raise unknown from errors.LeaderNotAvailableError("out-1")

    with pytest.raises(OutcomeUnknown, match="out-1. Without its leader"):
        settle(Leaderless(S.COMPLETE_COMMIT))
