"""What is told where a map's markers show less than is DONE, by ledgers of any length."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eo_kafka.core.transaction import NO_TRANSACTION, Decision, DecisionState, Participant, Staged
from eo_kafka.errors import LedgerError
from eo_kafka.sinks.maps import applied
from eo_kafka.sinks.maps.applied import Done, Marker
from eo_kafka.state.ledger.ledger import DECISIONS_KEPT, Ledger

EMPTY = "empty it, and write everything again"


def decision(batch: int, *partitions: int, home: str = "here") -> Decision:
    """Of a batch with a chunk in each of these lanes, by generation `batch` + 1."""
    parts = tuple(
        Participant(*(one, 0, batch + 1, NO_TRANSACTION, 1, ""), staged=Staged("old", home, 0, 1))
        for one in partitions
    )
    return Decision("main", batch, 0, DecisionState.DONE, batch + 1, 2, 1, 0, parts)


@pytest.fixture
def done(monkeypatch):
    monkeypatch.setattr(applied, "Staging", lambda *_: SimpleNamespace(cluster="here"))
    target = SimpleNamespace(fail_on_loss=True, merge=None, hazelcast=SimpleNamespace(place="c"))

    def of(*decisions: Decision) -> Done:
        ledger = Ledger(decisions={("main", one.batch): one for one in decisions})
        return Done(target, "job", "main", ledger)  # type: ignore[arg-type]

    return of


@pytest.mark.parametrize("first", [5, 6])
def test_a_way_by_offsets_is_told_only_if_spark_has_them(done, first) -> None:
    """Spark keeps those of batches 5 to 105, and 105 is the one that is refused; with snapshots the
    ledger keeps more."""
    found = done(*(decision(batch, 0) for batch in range(105)))
    with pytest.raises(LedgerError) as told:
        found.check({0: Marker(9, first, 1)})  # generation 6 is batch 5's
    has = first - 1 >= 105 - DECISIONS_KEPT
    assert (f"'offsets/{first - 1}'" in str(told.value)) is has
    assert (EMPTY in str(told.value)) is not has


def test_older_batches_than_the_ledger_has_are_in_doubt_too(done) -> None:
    found = done(*(decision(batch, 0) for batch in range(5, 105)))
    with pytest.raises(LedgerError, match="Batches 5 to 104 and perhaps older ones") as told:
        found.check({0: Marker(3, 3, 1)})
    assert EMPTY in str(told.value)


def test_what_went_to_another_cluster_in_between_is_not_asked_for(done) -> None:
    found = done(decision(0, 0, 1), decision(1, 1, home="there"), decision(2, 0))
    assert not found.check({0: Marker(3, 3, 1), 1: Marker(1, 1, 1)})
    with pytest.raises(LedgerError, match="Batch 0: entries"):
        found.check({0: Marker(3, 3, 1), 1: Marker(1, 0, 0)})
