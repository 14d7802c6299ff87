"""A commit that fails leaves a part of its chunk: its member died, or members that live refused
some changes. Which part is made up here, in every shape, by a transaction that is rolled back and
of which some changes are then made one by one; test_map_two_phase_losses.py kills members for it,
test_map_refused_commits.py has one refuse. The journal shows what was put twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hazelcast.errors import TargetDisconnectedError
from hazelcast.serialization.data import Data

from eo_kafka.clients.hazelcast.internals import to_object
from eo_kafka.clients.hazelcast.transactions import Transaction
from eo_kafka.errors import LedgerError
from eo_kafka.sinks.maps import lanes as map_lanes
from eo_kafka.sinks.maps.applied import MARKERS
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
            of_rows = [put for put in self._puts if put[0] != MARKERS]
            if kind is not None or not of_rows or not left:
                super().__exit__(kind, raised, trace)
                return
            left.pop()
            super().__exit__(error, None, None)
            of_marker = [put for put in self._puts if put[0] == MARKERS and marker]
            for name, key, value in rows(of_rows) + of_marker:
                stored = self._client.get_map(name).blocking()
                if value is None:
                    stored.delete(Data(key))
                else:
                    stored.set(Data(key), Data(value))
            raise error("some of it is made")

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

    def some_by_another(rows: list[Put]) -> list[Put]:
        for _, key, _ in rows[:2]:
            touched.append(to_object(hazelcast_client, key))
            written_map.set(touched[-1], "another's")
        return rows[2::2]

    with commits(torn(some_by_another, True, 1, DriverDied)), pytest.raises(DriverDied):
        job.commit(1)
    merging = "mergeFunction" in job.given
    if merging:
        with pytest.raises(LedgerError, match=f"rows of keys {', '.join(touched)} are merged into"):
            job.run(1)
        job.given["failOnDataLoss"] = "false"
    job.run(1)
    right = (job.sums if merging else job.expected)(0, 1)
    assert dict(written_map.entry_set()) == right | dict.fromkeys(touched, "another's")


def test_an_entry_that_has_expired_since_is_put_again_and_a_merge_asks(
    job, written_map, hazelcast_client, commits
) -> None:
    job.run(0)
    job.prepare(1)
    gone: list[str] = []

    def some_expire(rows: list[Put]) -> list[Put]:
        changed = [key for _, key, value in rows if value and written_map.contains_key(Data(key))]
        gone.extend(to_object(hazelcast_client, key) for key in changed[:2])
        for key in gone:
            written_map.delete(key)  # as an expiry does
        return []

    with commits(torn(some_expire, False, 1, DriverDied)), pytest.raises(DriverDied):
        job.commit(1)
    assert gone
    if "mergeFunction" not in job.given:
        job.run(1)
        assert dict(written_map.entry_set()) == job.expected(0, 1)
        return
    with pytest.raises(LedgerError, match="or they have expired"):
        job.run(1)


def test_a_key_of_two_tasks_waits_until_the_first_commit_is_known(
    grid, written_map, broker, hazelcast_client, commits
) -> None:
    """Else the second would overtake the first, whose answer is lost: nobody could tell what
    became of it."""
    job = job_of(grid, written_map, broker.bootstrap_servers, **ADDING)
    entries = job.entries
    job.entries = lambda batch, _: entries(batch, 0)
    job.rows_of_task = 50
    lost, overtaken = threading.Event(), threading.Event()

    class Lost(Transaction):
        _puts = 0

        def put(self, name, key, value):
            self._puts += name != MARKERS
            return super().put(name, key, value)

        def __exit__(self, kind, raised, trace) -> None:
            super().__exit__(kind, raised, trace)
            if kind is not None or not self._puts:
                return
            if lost.is_set():
                overtaken.set()
                return
            lost.set()
            overtaken.wait(3)
            raise TargetDisconnectedError("the answer is lost")

    job.prepare(1)
    with commits(Lost):
        job.commit(1)
    twice = {key: "2" for key, value in entries(1, 0).items() if value is not None}
    assert dict(written_map.entry_set()) == twice
