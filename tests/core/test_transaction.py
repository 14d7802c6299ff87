"""Which moves are legal, and what an answer means."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from eo_kafka.core.transaction import (
    Decision,
    DecisionState,
    Described,
    EndTxnAnswer,
    Identity,
    IllegalMove,
    Participant,
    Token,
    TransactionState,
    end_txn_answer,
    without_token,
)

DECIDED, DONE, VOID = DecisionState.DECIDED, DecisionState.DONE, DecisionState.VOID
IDENTITY = Identity("id", 7, 3)
OPEN = Described("id", TransactionState.ONGOING, 7, 3, timeout_ms=1000, start_ms=5000)


def decision(state: DecisionState, round_: int, generation: int = 1) -> Decision:
    parts = tuple(Participant(p, 0, 1, Identity(f"p{p}", 1, 0), 2, f"d{p}") for p in (0, 1))
    return Decision("main", 4, round_, state, generation, 5, 1, 0, parts)


# (before, after): by how much the round may be higher. All others are illegal.
LEGAL_ROUNDS = {
    (DECIDED, DECIDED): {0, 1, 2},  # 0: the same record, written again after a lost answer
    # Of a later round, compaction may have left the last state only.
    (DECIDED, DONE): {0, 1, 2},
    (DECIDED, VOID): {0, 1, 2},
    (VOID, DECIDED): {1, 2},
    (VOID, DONE): {1, 2},
    (VOID, VOID): {0, 1, 2},
    (DONE, DONE): {0},
}


@pytest.mark.parametrize(
    ("before", "after", "higher"), list(product(DecisionState, DecisionState, (-1, 0, 1, 2)))
)
def test_every_move(before: DecisionState, after: DecisionState, higher: int) -> None:
    earlier, later = decision(before, 3), decision(after, 3 + higher)

    if higher in LEGAL_ROUNDS.get((before, after), set()):
        later.check_follows(earlier)
    else:
        with pytest.raises(IllegalMove, match=f"batch 4: {after.value} of round {3 + higher}"):
            later.check_follows(earlier)


@pytest.mark.parametrize(("state", "legal"), [(DECIDED, True), (DONE, True), (VOID, False)])
def test_the_first_record_of_a_batch(state: DecisionState, legal: bool) -> None:
    if legal:
        decision(state, 0).check_follows(None)
    else:
        with pytest.raises(IllegalMove, match="after nothing"):
            decision(state, 0).check_follows(None)


def test_two_different_decisions_of_one_round_are_illegal() -> None:
    with pytest.raises(IllegalMove):
        decision(DECIDED, 0, generation=2).check_follows(decision(DECIDED, 0, generation=1))


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (EndTxnAnswer.ENDED, ["NONE"]),
        (
            EndTxnAnswer.RETRY,
            [
                "CONCURRENT_TRANSACTIONS",
                "COORDINATOR_LOAD_IN_PROGRESS",
                "COORDINATOR_NOT_AVAILABLE",
                "NOT_COORDINATOR",
                "REQUEST_TIMED_OUT",
                "NETWORK",
            ],
        ),
        (
            EndTxnAnswer.LOOK,
            [
                "PRODUCER_FENCED",
                "INVALID_PRODUCER_EPOCH",
                "INVALID_TXN_STATE",
                "INVALID_PRODUCER_ID_MAPPING",
                "TRANSACTIONAL_ID_NOT_FOUND",
            ],
        ),
    ],
)
def test_answers_to_end_txn(answer: EndTxnAnswer, names: list[str]) -> None:
    assert {name: end_txn_answer(name) for name in names} == dict.fromkeys(names, answer)


def test_every_other_error_of_kafka_is_refused() -> None:
    from kafka import errors

    every = {
        str(getattr(found, "message", ""))
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.BrokerResponseError)
    }
    known = {name for name in every if end_txn_answer(name) is not EndTxnAnswer.REFUSED}

    # All names but the two that are ours are Kafka's own, spelled as the client spells them.
    assert len(known - {"NONE"}) == 10
    assert end_txn_answer("TRANSACTIONAL_ID_AUTHORIZATION_FAILED") is EndTxnAnswer.REFUSED
    assert end_txn_answer("") is EndTxnAnswer.REFUSED
    assert end_txn_answer("none") is EndTxnAnswer.REFUSED


@pytest.mark.parametrize("state", TransactionState)
def test_only_an_ongoing_transaction_is_open(state: TransactionState) -> None:
    assert replace(OPEN, state=state).is_open(IDENTITY) == (state is TransactionState.ONGOING)


@pytest.mark.parametrize(
    "other",
    [
        replace(IDENTITY, epoch=2),
        replace(IDENTITY, producer_id=8),
        replace(IDENTITY, transactional_id="other"),
    ],
)
def test_another_transaction_is_not_this_one(other: Identity) -> None:
    assert OPEN.is_open(IDENTITY)
    assert not OPEN.is_open(other)


@pytest.mark.parametrize(("now", "left"), [(5000, 1000), (5400, 600), (6000, 0), (6001, -1)])
def test_remaining_time_counts_from_the_start(now: int, left: int) -> None:
    assert OPEN.remaining_ms(now) == left


@pytest.mark.parametrize(
    ("state", "producer_id", "epoch", "version", "told"),
    [
        (TransactionState.COMPLETE_ABORT, 7, 3, 4, True),
        (TransactionState.COMPLETE_ABORT, 7, 4, 5, True),
        # before version 5 its next transaction has that epoch
        (TransactionState.COMPLETE_ABORT, 7, 4, 4, False),
        (TransactionState.COMPLETE_ABORT, 7, 5, 5, False),
        (TransactionState.COMPLETE_ABORT, 8, 3, 5, False),
        (TransactionState.PREPARE_ABORT, 7, 4, 5, False),
        (TransactionState.COMPLETE_COMMIT, 7, 4, 5, False),
        (TransactionState.MISSING, -1, -1, 5, False),
    ],
)
def test_kafka_says_that_just_this_one_is_aborted(state, producer_id, epoch, version, told):
    found = replace(OPEN, state=state, producer_id=producer_id, epoch=epoch)
    assert found.is_abort_of(IDENTITY, version) is told


TOKEN = Token("main", 1, 4, 0, 1, 2, "d1")


def test_a_token_speaks_for_its_participant() -> None:
    found = decision(DECIDED, 0)
    other = replace(TOKEN, partition=0, digest="d0")

    assert without_token(found, []) == found.participants
    assert without_token(found, [TOKEN]) == found.participants[:1]
    assert without_token(found, [TOKEN, other]) == ()


@pytest.mark.parametrize(
    "token",
    [
        replace(TOKEN, partition=2),
        replace(TOKEN, batch=3),
        replace(TOKEN, round=1),
        replace(TOKEN, generation=2),
        replace(TOKEN, digest="d0"),
    ],
)
def test_a_token_of_something_else_does_not(token: Token) -> None:
    found = decision(DECIDED, 0)

    assert without_token(found, [token]) == found.participants
