"""Folding the ledger: what it says survives compaction, and contradictions stop the job."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eo_kafka.core.transaction import Begun, Decision, DecisionState, Identity, Participant
from eo_kafka.errors import CorruptLedger
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.ledger import DECISIONS_KEPT, Ledger, fold, with_state

DECIDED, DONE, VOID = DecisionState.DECIDED, DecisionState.DONE, DecisionState.VOID
Log = list[tuple[bytes, bytes | None]]
# How a batch may go, as (state, round): each list is one legal history.
WITHOUT_LOSS = [
    [(DONE, 0)],
    [(DECIDED, 0), (DONE, 0)],
    [(DECIDED, 0), (VOID, 0), (DECIDED, 1), (DONE, 1)],
    [(DECIDED, 0), (VOID, 0), (DONE, 1)],
]
REPAIRED = [(DECIDED, 0), (DECIDED, 1), (DONE, 1)]


def decision(batch: int, state: DecisionState, round_: int = 0) -> Decision:
    parts = (Participant(0, round_, batch + 1, Identity(f"p0.{batch}", 1, 0), 1, "d"),)
    return Decision("main", batch, round_, state, batch + 1, 5, 1, 0, parts)


def record(found: Decision) -> tuple[bytes, bytes]:
    key = records.decision_key(found.sink, found.batch, found.round)
    return key, records.encode_decision(found)


def generation(number: int) -> tuple[bytes, bytes]:
    return records.GENERATION_KEY, records.encode_generation(number)


def log_of(histories: list[list[tuple[DecisionState, int]]], keep: int) -> Log:
    """A whole ledger: batch after batch, with generations, an owner, and tombstones."""
    log: Log = [(records.OWNER_KEY, records.encode_owner("q"))]
    for batch, history in enumerate(histories):
        log.append(generation(batch + 1))
        log += [record(decision(batch, state, round_)) for state, round_ in history]
        log += fold(log).tombstones("main", keep)
    return log


def compacted(log: Log, dropped: list[int]) -> Log:
    """What a cleaner may leave: it drops a key's records oldest first, and never the last one."""
    keys = list(dict.fromkeys(key for key, _ in log))
    left = []
    for number, key in enumerate(keys):
        at = [position for position, (other, _) in enumerate(log) if other == key]
        left += at[min(dropped[number % len(dropped)], len(at) - 1) :]
    return [log[position] for position in sorted(left)]


ALL = 10**6
HISTORIES = st.lists(st.sampled_from(WITHOUT_LOSS), min_size=1, max_size=5)


@given(HISTORIES, st.integers(1, 3), st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_compaction_changes_nothing(
    histories: list[list[tuple[DecisionState, int]]], keep: int, dropped: list[int]
) -> None:
    log = log_of(histories, keep)

    assert fold(compacted(log, dropped)) == fold(log)


@given(HISTORIES, st.integers(1, 3))
def test_tombstones_may_vanish_too(
    histories: list[list[tuple[DecisionState, int]]], keep: int
) -> None:
    log = log_of(histories, keep)
    left = [(key, value) for key, value in compacted(log, [ALL]) if value is not None]

    assert fold(left) == fold(log)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6))
@example([ALL])
def test_compaction_of_a_repaired_batch_changes_nothing(dropped: list[int]) -> None:
    log = log_of([REPAIRED], keep=10)

    assert fold(compacted(log, dropped)) == fold(log)


def test_what_a_ledger_says() -> None:
    ledger = fold(log_of([WITHOUT_LOSS[1], [(DECIDED, 0)]], keep=10))

    assert (ledger.owner, ledger.generation) == ("q", 2)
    assert ledger.of_sink("main") == {0: decision(0, DONE), 1: decision(1, DECIDED)}
    assert ledger.of_sink("other") == {}
    assert ledger.unfinished() == [decision(1, DECIDED)]


def test_unfinished_batches_come_oldest_first() -> None:
    found = [decision(9, DECIDED), replace(decision(3, DECIDED), sink="b"), decision(3, DECIDED)]

    assert [(x.batch, x.sink) for x in fold(map(record, found)).unfinished()] == [
        (3, "b"),
        (3, "main"),
        (9, "main"),
    ]


def test_folding_goes_on_where_it_stopped() -> None:
    log = log_of(WITHOUT_LOSS, keep=2)

    assert fold(log[5:], fold(log[:5])) == fold(log)


def test_a_reset_frees_the_owner() -> None:
    log = log_of([WITHOUT_LOSS[0]], keep=0)

    assert fold([*log, (records.OWNER_KEY, None)]) == Ledger(None, 1, {})


def test_tombstones_for_all_rounds_beyond_what_is_kept() -> None:
    batches = [decision(n, DONE) for n in range(1, DECISIONS_KEPT + 2)]
    ledger = fold(map(record, [decision(0, DONE, 2), *batches]))

    assert ledger.tombstones("main") == [
        (b"decision/main/0/0", None),
        (b"decision/main/0/1", None),
        (b"decision/main/0/2", None),
        (b"decision/main/1/0", None),
    ]
    assert ledger.tombstones("other") == []
    left = fold(ledger.tombstones("main"), ledger)
    assert sorted(left.of_sink("main")) == list(range(2, DECISIONS_KEPT + 2))


def test_no_tombstones_until_there_is_too_much() -> None:
    full = fold(record(decision(n, DONE)) for n in range(DECISIONS_KEPT))

    assert full.tombstones("main") == []
    assert Ledger().tombstones("main", keep=0) == []


def test_folding_is_applying_one_after_the_other() -> None:
    log = log_of([*WITHOUT_LOSS, REPAIRED, *WITHOUT_LOSS], keep=2)
    again = log_of([REPAIRED, *WITHOUT_LOSS], keep=10)  # after a reset
    log += [*fold(log).tombstones("main", 0), *(one for one in again if one[0][:1] == b"d")]
    one_by_one = Ledger()
    for key, value in log:
        one_by_one.apply(key, value)

    assert fold(log) == one_by_one
    assert all(fold(log[n:], fold(log[:n])) == one_by_one for n in range(len(log)))


@pytest.mark.parametrize(
    "key", [b"decision/", b"decision/main/0", b"decision/main/x/0", b"\xff/1/0"]
)
def test_a_tombstone_of_what_is_no_batch_takes_nothing(key: bytes) -> None:
    ledger = fold([record(decision(0, DONE))])
    ledger._forget(key)
    ledger._forget(records.decision_key("main", 0, 1))
    ledger._forget(b"decision/main/+0/0")
    assert list(ledger.decisions) == [("main", 0)]


def test_what_is_taken_away_again_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that nobody has compacted for a week has hundreds of thousands of batches."""
    log = log_of([WITHOUT_LOSS[1]] * 8, keep=3)
    decoded, decode = [], records.decode_decision
    monkeypatch.setattr(
        records, "decode_decision", lambda key, value: decoded.append(key) or decode(key, value)
    )
    assert sorted(fold(log).of_sink("main")) == [5, 6, 7]
    assert decoded == [records.decision_key("main", n, 0) for n in (5, 5, 6, 6, 7, 7)]


def test_many_tombstones_are_read_at_once() -> None:
    """As many as a day has seconds; they stay in the log for longer than what they take away."""
    ledger = fold(record(decision(n, DONE)) for n in range(DECISIONS_KEPT))
    started = time.process_time()
    fold(((records.decision_key("main", n, 0), None) for n in range(1000, 101_000)), ledger)
    assert time.process_time() - started < 2, "5.8 s, when each was looked for in all"
    assert len(ledger.decisions) == DECISIONS_KEPT


def test_a_generation_that_goes_back_is_corrupt() -> None:
    with pytest.raises(CorruptLedger, match="went back from 3 to 2"):
        fold([generation(3), generation(2)])


@pytest.mark.parametrize(
    "log",
    [
        [record(decision(0, DONE)), record(decision(0, DECIDED))],
        [record(decision(0, DONE)), record(decision(0, VOID))],
        [record(decision(0, DECIDED, 1)), record(decision(0, DECIDED, 0))],
        [record(decision(0, DECIDED)), record(replace(decision(0, DECIDED), generation=9))],
    ],
)
def test_a_contradiction_is_corrupt(log: Log) -> None:
    with pytest.raises(CorruptLedger, match="contradicts itself"):
        fold(log)


@pytest.mark.parametrize(
    "key", [b"", b"token/main/0", b"Generation", b"decisions/main/0/0", b"\xff", b"x" * 9999]
)
@pytest.mark.parametrize("value", [None, b"{}"])
def test_a_record_that_is_not_ours_is_corrupt(key: bytes, value: bytes | None) -> None:
    with pytest.raises(CorruptLedger, match="Unknown ledger record") as corrupt:
        Ledger().apply(key, value)
    assert len(str(corrupt.value)) < 1000


def test_a_generation_cannot_be_taken_away() -> None:
    with pytest.raises(CorruptLedger):
        Ledger().apply(records.GENERATION_KEY, None)


def test_tokens_count_without_decisions_until_that_is_over() -> None:
    started = (records.ONE_PHASE_KEY, records.encode_one_phase(7))

    assert fold([started]).one_phase_from == 7
    assert fold([started, (records.ONE_PHASE_KEY, None)]) == Ledger()


def test_a_batch_is_interrupted_until_it_or_a_later_one_is_decided() -> None:
    begun = Begun(1, "v1\n{}\n{}")
    found = fold([record(decision(0, DONE)), (records.BEGUN_KEY, records.encode_begun(begun))])

    assert found.interrupted("main") == begun
    assert fold([record(decision(1, DONE))], found).interrupted("main") is None
    assert fold([(records.BEGUN_KEY, None)]) == Ledger()
    assert Ledger(begun=Begun(0, "")).interrupted("main") is None, "its plan is not known"


def test_moving_on_changes_the_state_only() -> None:
    assert with_state(decision(0, DECIDED), DONE) == decision(0, DONE)
