"""A member that dies while it commits a chunk leaves a part of it. Which part is made up here, in
every shape, by a transaction that is rolled back and of which some changes are then made one by
one; test_map_two_phase_losses.py kills members for it. The journal shows what was put twice."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hazelcast.errors import TargetDisconnectedError
from hazelcast.serialization.data import Data

from eo_kafka.clients.hazelcast.internals import to_object
from eo_kafka.clients.hazelcast.transactions import Transaction
from eo_kafka.errors import LedgerError
from eo_kafka.sinks.maps import lanes as map_lanes
from map_two_phase_job import ADDING, MapJob, assert_once, job_of

FULL = pytest.mark.full
Put = tuple[str, bytes, bytes | None]


class DriverDied(BaseException):
    """What ends a driver here."""


def every_other(rows: list[Put]) -> list[Put]:
    return rows[::2]


def none(rows: list[Put]) -> list[Put]:
    return []


def every(rows: list[Put]) -> list[Put]:
    return rows


ROWS = [pytest.param(none, marks=FULL), every_other, pytest.param(every, marks=FULL)]


def torn(
    rows: Callable[[list[Put]], list[Put]], marker: bool, times: int, error: type[BaseException]
) -> type[Transaction]:
    """Transactions of which the first ones that put rows leave these and perhaps the marker."""
    left: list[int] = [0] * times

    class Torn(Transaction):
        def __init__(self, client, seconds) -> None:
            super().__init__(client, seconds)
            self._puts: list[Put] = []

        def put(self, name, key, value):
            self._puts.append((name, key, value))
            return super().put(name, key, value)

        def __exit__(self, kind, raised, trace) -> None:
            of_rows = [put for put in self._puts if put[0] != map_lanes.MARKERS]
            if kind is not None or not of_rows or not left:
                super().__exit__(kind, raised, trace)
                return
            left.pop()
            super().__exit__(error, None, None)
            of_marker = [put for put in self._puts if put[0] == map_lanes.MARKERS and marker]
            for name, key, value in rows(of_rows) + of_marker:
                stored = self._client.get_map(name).blocking()
                if value is None:
                    stored.delete(Data(key))
                else:
                    stored.set(Data(key), Data(value))
            raise error("the member that commits is gone")

        @property
        def member(self) -> str:
            return gone if left else self._member

        @member.setter
        def member(self, name: str) -> None:
            self._member = name

    gone = str(uuid.uuid4())
    return Torn


@pytest.fixture
def commits(monkeypatch):
    """How chunks are committed while a test is in it."""

    @contextmanager
    def by(transactions: type[Transaction]) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(map_lanes, "Transaction", transactions)
            yield

    return by


@pytest.fixture(params=[False, True], ids=["replace", "merge"])
def job(request, grid, written_map, broker) -> MapJob:
    return job_of(grid, written_map, broker.bootstrap_servers, **(ADDING if request.param else {}))


@pytest.mark.parametrize("marker", [False, True], ids=["", "marker"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=FULL)])
def test_the_driver_goes_on_with_what_is_left(
    job, written_map, staged, hazelcast_client, commits, marker, rows, times
) -> None:
    """Also if that is torn again, by the death of another member."""
    job.run(0)
    job.prepare(1)
    with commits(torn(rows, marker, times, TargetDisconnectedError)):
        job.commit(1)
    assert_once(job, hazelcast_client, written_map, 0, 1)
    assert staged.size() == 0
    job.run(2)
    assert_once(job, hazelcast_client, written_map, 0, 1, 2)


@pytest.mark.parametrize("marker", [False, True], ids=["", "marker"])
@pytest.mark.parametrize("rows", ROWS)
def test_its_successor_does(
    job, written_map, staged, hazelcast_client, commits, marker, rows
) -> None:
    job.run(0)
    job.prepare(1)
    with commits(torn(rows, marker, 1, DriverDied)), pytest.raises(DriverDied):
        job.commit(1)
    with commits(torn(rows, marker, 1, TargetDisconnectedError)):
        job.run(1)
    assert_once(job, hazelcast_client, written_map, 0, 1)
    assert staged.size() == 0


def test_what_somebody_else_has_written_since_stays_and_a_merge_asks(
    job, written_map, hazelcast_client, commits
) -> None:
    job.run(0)
    job.prepare(1)
    touched: list[str] = []

    def one_by_another(rows: list[Put]) -> list[Put]:
        key = to_object(hazelcast_client, rows[0][1])
        touched.append(key)
        written_map.set(key, "another's")
        return rows[1::2]

    with commits(torn(one_by_another, True, 1, DriverDied)), pytest.raises(DriverDied):
        job.commit(1)
    merging = "mergeFunction" in job.given
    if merging:
        with pytest.raises(LedgerError, match=f"the entry of key {touched[0]} since: whether"):
            job.run(1)
        job.given["failOnDataLoss"] = "false"
    job.run(1)
    right = (job.sums if merging else job.expected)(0, 1)
    assert dict(written_map.entry_set()) == right | dict.fromkeys(touched, "another's")
