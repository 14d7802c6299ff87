"""Which tasks write, and under which round."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eo_kafka.core.transaction import Decision, DecisionState, Identity, Participant
from eo_kafka.errors import LedgerError
from eo_kafka.sinks.batches.committable import Torn, WritePlan
from eo_kafka.sinks.options import BATCH_WRITES

PARTS = tuple(Participant(p, 0, 1, Identity(f"p{p}", 1, 0), 1, "d") for p in (0, 1, 2))


def decision(batch: int, state: DecisionState, round_: int = 0) -> Decision:
    return Decision("main", batch, round_, state, 1, 5, 1, 0, PARTS)


def plan(*decisions: Decision, torn: Torn | None = None) -> WritePlan:
    return WritePlan(2, Identity("c", 1, 1), "q", 5, 0, {d.batch: d for d in decisions}, torn)


def test_a_batch_that_nothing_is_known_of_is_written_in_round_0() -> None:
    for known in (plan(), plan(decision(6, DecisionState.DONE))):
        assert known.must_write(7, 0)
        assert known.round_of(7) == 0


def test_a_batch_that_is_done_is_skipped() -> None:
    known = plan(decision(7, DecisionState.DONE), decision(8, DecisionState.DONE))

    assert not any(known.must_write(batch, p) for batch in (7, 8) for p in range(4))


def test_a_void_batch_is_written_again_in_the_next_round() -> None:
    known = plan(decision(7, DecisionState.VOID, round_=2))

    assert all(known.must_write(7, p) for p in range(4))
    assert known.round_of(7) == 3


def test_of_a_batch_partly_lost_only_what_is_missing_is_staged_again() -> None:
    lost = decision(7, DecisionState.DECIDED)
    known = plan(decision(6, DecisionState.DONE), lost, torn=Torn(lost, PARTS[1:2]))

    assert [known.must_write(7, p) for p in range(4)] == [False, True, False, False]
    assert not known.must_write(6, 1)
    assert known.must_write(8, 0)
    assert known.round_of(7) == 1


def test_a_batch_interrupted_in_one_phase_is_written_in_another_round() -> None:
    found = decision(7, DecisionState.DECIDED, round_=2)
    known = plan(decision(6, DecisionState.DONE), torn=Torn(found, (), decided=False))

    assert known.torn and known.torn.shows(1, 1, "d")
    assert not any(known.torn.shows(*other) for other in ((3, 1, "d"), (1, 2, "d"), (1, 1, "e")))
    assert known.round_of(7) == 3
    assert not known.must_write(6, 3)
    assert known.must_write(8, 0)
    assert known.torn_at(7) is known.torn
    assert known.torn_at(8) is None


def test_a_batch_older_than_the_ledger_remembers_is_refused() -> None:
    known = plan(decision(7, DecisionState.DONE), decision(8, DecisionState.DONE))

    with pytest.raises(LedgerError, match=r"Batch 6 .* job is at batch 8 .* Nothing was written"):
        known.must_write(6, 0)


def test_of_a_number_given_by_hand_it_says_what_the_ledger_knows() -> None:
    """Nothing runs again, and there is no checkpoint that could be too old."""
    done = (decision(3, DecisionState.DONE), decision(7, DecisionState.DONE))
    known = replace(plan(*done), owner=f"{BATCH_WRITES}nightly")
    told = {}
    for batch in (5, 2):
        with pytest.raises(LedgerError) as error:
            known.must_write(batch, 0)
        told[batch] = str(error.value)

    assert all("job 'nightly' must rise, and its newest is 7" in said for said in told.values())
    assert all("'batchId' above 7" in said and "again" not in said for said in told.values())
    assert "was not written" in told[5]
    assert "look whether" not in told[5]
    assert "remembers none before batch 3: look whether the output has batch 2" in told[2]
