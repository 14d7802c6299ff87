"""The soak's checker finds each anomaly that it names, in a history made by hand, and nothing in a
history without one."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from types import SimpleNamespace

import pytest

from eo_kafka.core.transaction import Described, Identity, TransactionState
from eo_kafka.testing.history import Event, Row
from eo_kafka.tools.run.verdict import Way, tree, way_of
from soak.checker import REFUSALS, Anomaly, Observed, check, hung, story, stuck
from soak.history import Done
from soak.report import Result, page, recoveries
from soak.watcher import row_of, still_open
from soak.workload import WATERMARK_DELAY_S, WORKLOADS, amount, closed_windows, entries, same


def rows(partition: int, *values: str) -> list[Row]:
    return [Row(partition, offset, value, f"k{value}") for offset, value in enumerate(values)]


def row(partition: int, offset: int, value: str) -> Row:
    return Row(partition, offset, value, f"k{value}")


def keyed(*values: str) -> list[tuple[str, str]]:
    return [(f"k{value}", value) for value in values]


COPIED = [*rows(0, "a", "b", "c"), *rows(1, "d", "e")]
COPY = Observed(
    job="copy",
    acknowledged=keyed("a", "b", "c", "d", "e"),
    source=COPIED,
    output=rows(0, "a", "d", "b", "e", "c"),
    watched=rows(0, "a", "d", "b"),
    done=[Done(0, {0: 1, 1: 1}, {0: 2}), Done(1, {0: 3, 1: 2}, {0: 5})],
    expected=Counter(keyed(*"abcde")),
    outputs=same,
    ordered=True,
)
TRANSFERS = [
    '{"id": 1, "giver": 3, "taker": 4, "amount": 10}',
    '{"id": 2, "giver": 4, "taker": 5, "amount": 7}',
]
ENTRIES = [("3", "1:3:-10"), ("4", "1:4:10"), ("4", "2:4:-7"), ("5", "2:5:7")]
BANK = Observed(
    job="bank",
    acknowledged=keyed(*TRANSFERS),
    source=rows(0, *TRANSFERS),
    output=[Row(0, offset, value, key) for offset, (key, value) in enumerate(ENTRIES)],
    watched=[],
    done=[Done(0, {0: 1}, {0: 2}), Done(1, {0: 2}, {0: 4})],
    expected=Counter(ENTRIES),
    outputs=entries,
    balanced=True,
)
LEDGER = [
    Event(1, "copy", "decided", {"batch": 0}),
    Event(2, "copy", "done", {"batch": 0}),
    Event(3, "copy", "decided", {"batch": 1}),
    Event(4, "copy", "void", {"batch": 1}),
    Event(5, "copy", "decided", {"batch": 1}),
    Event(6, "copy", "done", {"batch": 1}),
    Event(7, "copy", "end", {"why": "Fenced", "told": "another driver took over"}),
]


def found(seen: Observed, events: list[Event] = LEDGER, **changes: object) -> dict[str, str]:
    """Kind and text of each anomaly of `seen` with `changes`."""
    return {one.kind: one.text for one in check(dataclasses.replace(seen, **changes), events)}


@pytest.mark.parametrize("seen", [COPY, BANK], ids=["copy", "bank"])
def test_nothing_is_found_where_nothing_is_wrong(seen):
    assert found(seen) == {}


def test_lost():
    assert found(COPY, output=rows(0, "a", "d", "b", "e"), done=[]) == {"lost": "1 records: kc: c"}


def test_lost_names_the_batch():
    anomalies = check(dataclasses.replace(COPY, output=rows(0, "a", "d", "b", "e")), LEDGER)
    assert {one.kind: one.batches for one in anomalies} == {"lost": (1,), "torn batch": (1,)}


def test_lost_input():
    assert found(COPY, acknowledged=keyed(*"abcdef")) == {"lost input": "1 records: kf: f"}


def test_duplicate():
    output = rows(0, "a", "d", "b", "e", "c", "c")
    assert found(COPY, output=output) == {"duplicate": "1 records: kc: c"}


def test_a_record_with_another_key_is_lost_and_foreign():
    output = [one._replace(key="kb") if one.value == "c" else one for one in COPY.output]
    told = {"lost": "1 records: kc: c", "foreign": "1 records: kb: c"}
    assert found(COPY, output=output, done=[]) == told


def test_no_value_and_an_empty_one_are_two():
    empty = SimpleNamespace(
        partition=lambda: 0, offset=lambda: 7, value=lambda: b"", key=lambda: None
    )
    assert row_of(empty) == Row(0, 7, "", None)
    empty.value, empty.key = empty.key, empty.value
    assert row_of(empty) == Row(0, 7, None, "")


def test_foreign():
    output = rows(0, "a", "d", "b", "e", "c", "z")
    assert found(COPY, output=output) == {"foreign": "1 records: kz: z"}


@pytest.mark.parametrize("where", ["source", "output", "watched"])
def test_aborted_read(where):
    before = getattr(COPY, where)
    seen = [*before, Row(0, 99, "aborted-foreign", None)]
    expected = {"aborted read": "1 records: null: aborted-foreign"}
    if where == "watched":  # then it also saw what is not there in the end
        assert found(COPY, watched=seen).items() >= expected.items()
    else:
        assert found(COPY, **{where: seen}) == expected


@pytest.mark.parametrize("partition", [0, 1])
def test_reordered(partition):
    output = rows(partition, "b", "d", "a", "e", "c")
    anomalies = found(COPY, output=output, watched=[], done=[])
    told = "1 times: input 0:1 stands at output {0}:0, and the earlier 0:0 behind it at {0}:2"
    assert anomalies == {"reordered": told.format(partition)}


def test_order_counts_within_an_output_partition_only():
    output = [*rows(0, "b", "e", "c"), *rows(1, "a", "d")]
    assert found(COPY, output=output, watched=[], done=[]) == {}


def test_order_does_not_count_where_it_is_not_promised():
    output = rows(0, "c", "b", "a", "e", "d")
    assert found(COPY, output=output, watched=[], done=[], ordered=False) == {}


def test_torn_batch():
    late = [Done(0, {0: 1, 1: 1}, {0: 1}), COPY.done[1]]  # "d" stands above the high watermark
    assert found(COPY, done=late) == {
        "torn batch": "batch 0 was DONE with 1 of 2 rows; missing: kd: d"
    }


def test_a_batch_that_is_done_before_its_transactions_are_committed():
    """Its rows stand below the high watermark all the same."""
    soon = [dataclasses.replace(COPY.done[0], still_open=("eo.p0.a0",)), COPY.done[1]]
    assert found(COPY, done=soon) == {"torn batch": "batch 0 was DONE with eo.p0.a0 open"}
    assert found(COPY, done=soon, outputs=None) == found(COPY, done=soon)


@pytest.mark.parametrize(
    ("now", "is_open"),
    [
        (Described("a", TransactionState.ONGOING, 7, 2), True),
        (Described("a", TransactionState.PREPARE_ABORT, 7, 2), True),
        (Described("a", TransactionState.ONGOING, 7, 3), False),  # the id's next use
        (Described("a", TransactionState.PREPARE_COMMIT, 7, 2), False),  # nothing can abort it
        (Described("a", TransactionState.COMPLETE_COMMIT, 7, 2), False),
        (Described("a", TransactionState.MISSING), False),
    ],
)
def test_a_transaction_is_open_as_itself(now, is_open):
    assert still_open([Identity("a", 7, 2)], {"a": now}) == (("a",) if is_open else ())


def test_sum_not_constant():
    late = [Done(0, {0: 1}, {0: 1}), BANK.done[1]]
    assert found(BANK, done=late) == {
        "torn batch": "batch 0 was DONE with 1 of 2 rows; missing: 4: 1:4:10",
        "sum not constant": "the entries up to batch 0, when it was DONE, add up to -10",
    }


def test_an_observation_that_is_missing_is_made_up_for_by_the_next():
    assert found(BANK, done=BANK.done[1:]) == {}
    torn = found(BANK, done=[Done(1, {0: 2}, {0: 3})])
    assert torn["torn batch"] == "batch 1 was DONE with 3 of 4 rows; missing: 5: 2:5:7"


@pytest.mark.parametrize(
    ("watched", "told"),
    [
        pytest.param(rows(0, "a", "b"), "was 'kb: b' at offset 1", id="another-record"),
        pytest.param([row(0, 0, "a"), row(0, 2, "b")], "was 'kb: b' at offset 2", id="a-gap"),
        pytest.param(rows(0, *"adbecc"), "is nothing in the end", id="more-than-the-end"),
        pytest.param([row(0, 0, "a"), row(0, 0, "a")], "was 'ka: a' at offset 0", id="went-back"),
        pytest.param([Row(0, 0, "a", "b")], "was 'b: a' at offset 0", id="another-key"),
        pytest.param(rows(2, "a"), "is nothing in the end", id="another-partition"),
    ],
)
def test_not_a_prefix(watched, told):
    anomalies = found(COPY, watched=watched)
    assert list(anomalies) == ["not a prefix"]
    assert told in anomalies["not a prefix"]


def test_a_batch_that_was_never_done():
    assert found(COPY, LEDGER[:5]) == {"ledger": "batches [1] were never DONE"}


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        ((0, 2), "batch 2 was DONE after batch 0"),
        ((0, 0), "batch 0 was DONE after batch 0"),
        ((1,), "batch 1 was DONE after batch -1"),
    ],
    ids=["a-gap", "twice", "not-the-first"],
)
def test_batches_that_are_not_done_in_order(batches, told):
    events = [Event(n, "copy", "done", {"batch": batch}) for n, batch in enumerate(batches)]
    assert found(COPY, events) == {"ledger": told}


def test_a_ledger_that_cannot_be_read():
    events = [*LEDGER, Event(8, "copy", "unreadable", {"why": "CorruptLedger: key b'x'"})]
    assert found(COPY, events) == {"ledger": "1 times: CorruptLedger: key b'x'"}


def test_what_a_stopped_query_leaves_open_is_told_unless_a_broker_was_struck():
    told = {"kind": "stop in mid-batch", "begun": 20.0, "left_open": ["eo-kafka.a.b.p0.g1.a0"]}
    stop = Event(30.0, "copy", "fault", told)
    (found,) = check(COPY, [stop])
    assert (found.kind, "eo-kafka.a.b.p0.g1.a0" in found.text) == ("left open", True)
    assert not check(COPY, [Event(30.0, "copy", "fault", {**told, "left_open": []})])
    struck = Event(21.0, "brokers", "fault", {"kind": "kill a broker", "begun": 12.0})
    assert not check(COPY, [struck, stop])


def test_what_asks_for_a_person_is_a_refusal_unless_a_broker_may_be_the_cause():
    """Of a broker that is away a driver may say the same, and its next start gets over it."""
    asking = {name for name in tree() if way_of(name) is Way.PERSON}
    assert {"BatchMismatch", "CheckpointError", "CorruptSnapshot", "SinkError"} <= set(REFUSALS)
    assert asking - set(REFUSALS) == {"EnvironmentRefused", "SourceError", "UnknownTopic"}


@pytest.mark.parametrize("why", REFUSALS)
def test_refused(why):
    events = [*LEDGER, Event(8, "copy", "end", {"why": why, "told": "see to it"})]
    assert found(COPY, events) == {"refused": f"{why}: see to it"}


def test_another_jobs_refusal_is_not_this_ones():
    assert found(COPY, [*LEDGER, Event(8, "bank", "end", {"why": "LedgerError", "told": ""})]) == {}


def test_hung_transaction():
    assert hung("copy", {}, []) == []
    (one,) = hung("copy", {("copy-out", 1): (5, 9)}, ["eo-kafka.x.p0"])
    assert one.kind == "hung transaction"
    assert one.text == "2 times: copy-out-1 is stable to 5 of 9, eo-kafka.x.p0 is ongoing"


def test_stuck():
    assert stuck("copy", 300).text == "not at the end of its input 300 s after all faults had ended"


def test_windows_are_expected_once_the_watermark_has_passed_them():
    seconds = [0, 1, 59, 60, 61 + WATERMARK_DELAY_S]
    readings = rows(0, *(f'{{"key": "k", "second": {second}}}' for second in seconds))
    assert closed_windows(readings) == Counter([("k", "k@0=3")])
    closing = row(1, 0, f'{{"key": "x", "second": {120 + WATERMARK_DELAY_S}}}')
    assert closed_windows([*readings, closing]) == Counter([("k", "k@0=3"), ("k", "k@60=1")])


def test_transfers_add_up_to_nothing():
    chance = random.Random(7)
    made = rows(0, *(WORKLOADS["bank"].make(number, chance)[1] for number in range(100)))
    assert sum(amount(entry) for transfer in made for entry in entries(transfer)) == 0
    assert any(amount(entry) for entry in entries(made[0]))


def test_the_same_seed_writes_the_same_input():
    for workload in WORKLOADS.values():
        first, again = (
            [workload.make(number, chance) for number in range(50)]
            for chance in (random.Random(3), random.Random(3))
        )
        assert first == again
        assert len({value for _, value in first}) == 50


FAULTS = [
    Event(2, "copy", "fault", {"kind": "kill all"}),
    Event(3, "copy", "done", {"batch": 0}),
    Event(4, "bank", "done", {"batch": 0}),
    Event(5, "brokers", "fault", {"kind": "kill a broker"}),
    Event(9, "bank", "done", {"batch": 1}),
]


def test_recovery_is_the_time_to_the_next_batch_that_is_done():
    times = {(one.kind, one.job): one.seconds for one in recoveries(FAULTS)}
    assert times == {("kill all", "copy"): 1, ("kill a broker", "bank"): 4}


def test_the_story_is_of_the_job_and_the_faults_around_its_batches():
    far = Event(500, "brokers", "fault", {"kind": "bounce a broker"})
    anomaly = Anomaly("lost", "bank", "1 records: x", (1,))
    assert story(anomaly, [*FAULTS, far]) == FAULTS[2:5]


def test_the_page_tells_faults_anomalies_and_times_and_needs_nothing_else():
    anomaly = Anomaly("lost", "copy", "1 records: <c>", (0,))
    text = page(Result(7, 5, 3, [COPY, BANK], FAULTS, [anomaly]))
    assert "lost (copy): 1 records: &lt;c&gt;" in text
    assert '<td>kill a broker</td><td class="n">1</td><td>4.0</td>' in text
    assert 'src="data:image/png;base64,' in text
    assert "http" not in text
    assert "No anomaly." in page(Result(7, 5, 3, [COPY], [], []))
