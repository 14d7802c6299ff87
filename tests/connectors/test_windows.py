"""What windows do with rows and watermarks, in a world without Spark: what it calls, and in which
order, is as integration_tests/state/test_windows.py finds it to be."""

from __future__ import annotations

import copy
import decimal
import math
import random
from collections import Counter, defaultdict
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka import windows
from eo_kafka.windows.fixed import FixedWindows
from eo_kafka.windows.folding import Fold
from eo_kafka.windows.panes import Rules
from eo_kafka.windows.sessions import Sessions, grouped

SECOND = 1_000_000
MS = 1000
T0 = 1_000_000 * SECOND


class Store:
    """State and timers of one task of Spark, by key."""

    def __init__(self):
        self.values, self.timers, self.key = {}, set(), None
        self.names = []

    def getValueState(self, name, schema):
        self.names.append(name)
        return SimpleNamespace(
            get=lambda: copy.deepcopy(self.values.get((name, self.key))),
            update=lambda value: self.values.__setitem__((name, self.key), value),
            clear=lambda: self.values.pop((name, self.key), None),
        )

    def registerTimer(self, at):
        self.timers.add((at, self.key))


def run_batch(processor, store, watermark_ms, keyed):
    """A batch as transformWithState runs it: each key's rows, then the timers that are due."""
    told, times = [], SimpleNamespace(getCurrentWatermarkInMs=lambda: watermark_ms)
    for key, rows in sorted(keyed.items(), key=repr):
        store.key = key
        spark_rows = iter([(*key, at, event, None) for at, event in rows])
        told += processor.handleInputRows(key, spark_rows, times)
    # Spark looks for those at or before the watermark, also those that this batch has registered,
    # and deletes each after its handler: one that the handler registers anew is gone then.
    for at, key in sorted(store.timers, key=repr):
        if at <= watermark_ms:
            store.key = key
            info = SimpleNamespace(getExpiryTimeInMs=lambda at=at: at)
            told += processor.handleExpiredTimer(key=key, timerValues=times, expiredTimerInfo=info)
            store.timers.discard((at, key))
    return told


def rules(lateness=0, early=False, **aggregates):
    aggregates = aggregates or {"rows": windows.count(), "ids": ids()}
    typed = [one.types(lambda expression: "BIGINT") for one in aggregates.values()]
    return Rules(
        by=["k"],
        names=list(aggregates),
        aggregates=[one for one, _, _ in typed],
        widths=[len(kept) for _, _, kept in typed],
        lateness=lateness,
        early=early,
        ordered=any(isinstance(one, Fold) for one, _, _ in typed),
    )


def ids():
    return windows.fold(
        "ARRAY<BIGINT>", [], lambda kept, row: [*kept, row["id"]], lambda a, b: a + b
    )


def starts(at, size, slide):
    """The windows of a time, from the definition: what `asked.starts` has Spark compute."""
    first = (at - size) // slide * slide
    return [s for s in range(first, at + 1, slide) if s <= at < s + size]


def world(kind, size, slide, lateness, early):
    """A processor, and how rows are dealt out to Spark's keys."""
    told = rules(lateness, early)
    if kind == "session":

        def deal(rows):
            keyed = defaultdict(list)
            for k, at, event in rows:
                keyed[(k, 0)].append((at, event))
            return keyed

        return Sessions(told, size, "", True), deal

    def deal(rows):
        keyed = defaultdict(list)
        for k, at, event in rows:
            for start in [None] if at is None else starts(at, size, slide):
                keyed[(k, start)].append((at, event))
        return keyed

    return FixedWindows(told, size, "", True), deal


WORLDS = st.tuples(
    st.sampled_from(["fixed", "session"]),
    st.integers(1, 9),  # size or gap
    st.integers(1, 9),  # slide
    st.integers(0, 12),  # allowed lateness
    st.booleans(),
)
ORIGINS = st.sampled_from([T0, -30 * SECOND, -90 * SECOND])  # windows before 1970, too
BATCHES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(0, 60))), max_size=8
    ),
    max_size=8,
)


def played(case, batches, *, again=random.Random(0), lag=3, origin=T0):  # noqa: B008
    """All that comes out, batch by batch. Each batch runs twice, from the same state and with its
    rows in another order, and must give the same. Times are seconds after `origin`."""
    kind, size, slide, lateness, early = case
    slide = min(size, slide)
    processor, deal = world(kind, size * SECOND, slide * SECOND, lateness * SECOND, early)
    store, newest, told, number = Store(), 0, [], 0
    processor.init(store)
    # The last batch has no rows, as Spark's when only the watermark has moved.
    for batch in [*batches, [("b", 900)], []]:
        rows = []
        for k, at in batch:
            rows.append((k, None if at is None else origin + at * SECOND, {"id": number, "k": k}))
            number += 1
        before = copy.deepcopy((store.values, store.timers))
        watermark = max(0, newest // MS - lag * 1000)  # Spark's begins at 0, and never goes back
        first = run_batch(processor, store, watermark, deal(rows))
        after = copy.deepcopy((store.values, store.timers))
        store.values, store.timers = before
        second = run_batch(processor, store, watermark, deal(again.sample(rows, len(rows))))
        assert first == second
        assert (store.values, store.timers) == after
        told.append((watermark, rows, first))
        newest = max([newest, *(at for _, at, _ in rows if at is not None)])
    return told, store


def newest_results(told):
    """The rows that a reader counts: by window the highest revision, retracted ones left out."""
    newest = {}
    for _, _, batch in told:
        for row in batch:
            if row.kind != "late":
                window = row.k, row.window_start, row.window_end
                assert window not in newest or newest[window].revision < row.revision
                newest[window] = row
    return [row for row in newest.values() if row.kind != "retracted"]


@given(WORLDS, BATCHES, ORIGINS)
def test_each_row_is_in_its_windows_or_late_for_them_and_nowhere_twice(case, batches, origin):
    kind, size, slide, *_ = case
    told, store = played(case, batches, origin=origin)
    counted, expected = Counter(), Counter()
    for row in newest_results(told):
        assert row.rows == len(row.ids)
        counted.update(row.ids)
    for _, rows, batch in told:
        counted.update(row.late_row["id"] for row in batch if row.kind == "late")
        for _, at, event in rows:
            if at is not None and at > origin + 800 * SECOND:
                continue  # the last one, whose windows stay open
            several = kind == "fixed" and at is not None
            s = min(size, slide) * SECOND
            expected[event["id"]] += len(starts(at, size * SECOND, s)) if several else 1
    last = {event["id"] for _, _, event in told[-2][1]}
    assert {one: n for one, n in counted.items() if one not in last} == dict(expected)
    assert {key[0] for _, key in store.values} <= {"b"}  # of all others nothing is left


@given(WORLDS, BATCHES, ORIGINS)
def test_a_row_is_late_only_when_the_watermark_has_passed_window_and_lateness(
    case, batches, origin
):
    lateness = case[3]
    told, _ = played(case, batches, origin=origin)
    for watermark, _, batch in told:
        for row in batch:
            if row.kind == "late" and row.window_end is not None:
                assert row.window_end + lateness * SECOND <= watermark * MS
                assert watermark > 0
            elif row.kind == "on_time":
                assert row.window_end <= watermark * MS
                assert watermark > 0
            elif row.kind == "early":
                assert row.window_end > watermark * MS or watermark == 0


@given(WORLDS, BATCHES, ORIGINS)
def test_without_early_or_allowed_lateness_each_window_comes_out_once(case, batches, origin):
    kind, size, slide, _, _ = case
    told, _ = played((kind, size, slide, 0, False), batches, origin=origin)
    results = [row for _, _, batch in told for row in batch if row.kind != "late"]
    assert {row.kind for row in results} <= {"on_time"}
    assert len(results) == len({(row.k, row.window_start, row.window_end) for row in results})


@pytest.mark.parametrize("lateness", [0, 60 * SECOND])
@pytest.mark.parametrize("before", [-105, -5])  # a window that ends at 0 ends before all, too
@pytest.mark.parametrize(("kind", "slide"), [("fixed", 10), ("fixed", 5), ("session", 10)], ids=str)
def test_a_window_before_1970_comes_out(kind, slide, before, lateness):
    processor, deal = world(kind, 10 * SECOND, slide * SECOND, lateness, early=False)
    store = Store()
    processor.init(store)
    old = [("a", before * SECOND, {"id": 1})]
    told = run_batch(processor, store, 0, deal([*old, ("b", T0, {"id": 2})]))
    told += run_batch(processor, store, 0, deal([("a", before * SECOND, {"id": 4})]))
    told += run_batch(processor, store, T0 // MS, deal([("c", T0 + 900 * SECOND, {"id": 3})]))
    told += run_batch(processor, store, (T0 + 890 * SECOND) // MS, {})
    found = Counter(n for row in told for n in row.ids or [row.late_row["id"]])
    times = 10 // slide
    assert found == {1: times, 2: times, 4: times}
    assert {row.kind for row in told} == {"on_time"}
    assert {key[0] for _, key in store.values} == {"c"}


@given(st.lists(st.integers(0, 100)), st.integers(1, 10))
def test_sessions_are_the_runs_of_times_that_are_no_further_apart_than_the_gap(times, gap):
    groups = grouped([], [(at, {"id": n}) for n, at in enumerate(times)], gap)
    model = []
    for at in sorted(times):
        if model and at - model[-1][-1] <= gap:
            model[-1].append(at)
        else:
            model.append([at])
    assert [sorted(at for at, _ in one.rows) for one in groups] == model
    assert [(one.start, one.end) for one in groups] == [(m[0], m[-1] + gap) for m in model]


@given(st.lists(st.lists(st.integers(0, 60), max_size=6), max_size=6), st.integers(1, 9))
def test_sessions_do_not_depend_on_how_rows_are_cut_into_batches(batches, gap):
    """As long as none is late."""

    def final(batches):
        rows = [[("a", at) for at in one] for one in batches]
        told, _ = played(("session", gap, 1, 1000, False), rows, lag=0)
        times = {event["id"]: at for _, rows, _ in told for _, at, event in rows}
        return Counter(
            (row.window_start, row.window_end, *sorted(times[one] for one in row.ids))
            for row in newest_results(told)
        )

    whole = [at for one in batches for at in one]
    assert final(batches) == final([whole])
    assert not whole or final(batches)


def test_a_session_that_came_out_is_taken_back_before_it_grows():
    processor, deal = world("session", 10 * SECOND, 1, 60 * SECOND, early=False)
    store = Store()
    processor.init(store)

    def batch(watermark, *times):
        rows = [("a", T0 + at * SECOND, {"id": at}) for at in times]
        told = run_batch(processor, store, (T0 + watermark * SECOND) // MS, deal(rows))
        return [
            (row.kind, (row.window_start - T0) // SECOND, (row.window_end - T0) // SECOND, row.ids)
            for row in told
        ]

    assert batch(0, 0) == []
    assert batch(12) == [("on_time", 0, 10, [0])]
    assert batch(12, 5) == [("retracted", 0, 10, [0])]  # the session is open again, to 15
    assert batch(20) == [("on_time", 0, 15, [0, 5])]
    assert batch(20, 1) == [("correction", 0, 15, [0, 5, 1])]  # the bounds stay
    assert batch(80, 2) == [("late", 2, 12, None)]
    assert not store.values


@given(st.lists(st.floats()), st.randoms())
def test_doubles_come_out_the_same_in_any_order(values, rng):
    shuffled = rng.sample(values, len(values))
    for one in (windows.sum("d"), windows.avg("d"), windows.min("d"), windows.max("d")):
        results = {
            str(one.result(one.add(one.start(), [{"d": value} for value in order])))
            for order in (values, shuffled)
        }
        assert len(results - {"0.0", "-0.0"}) <= 1


def test_aggregates_leave_nulls_out_and_keep_what_spark_keeps():
    at = datetime(2026, 11, 1, 1, 30, 0, 7, tzinfo=timezone.utc)
    rows = [
        {"n": 2**62, "d": None, "x": decimal.Decimal("9" * 37), "at": at},
        {"n": None, "d": 1.5, "x": decimal.Decimal("0.1"), "at": None},
    ]
    types = {
        "sum(`n`)": "bigint",
        "sum(`x`)": "decimal(38,1)",
        "sum(`d`)": "double",
        "`at`": "timestamp",
    }
    results = {}
    for name, one in {
        "rows": windows.count(),
        "with_n": windows.count("n"),
        "n": windows.sum("n"),
        "x": windows.sum("x"),
        "mean": windows.avg("d"),
        "first": windows.min("at"),
    }.items():
        typed, _, kept = one.types(types.__getitem__)
        state = typed.add(typed.start(), rows)
        assert len(state) == len(kept)
        results[name] = typed.result(state)
    assert results == {
        "rows": 2,
        "with_n": 1,
        "n": 2**62,
        "x": decimal.Decimal("9" * 37 + ".1"),
        "mean": 1.5,
        "first": at,
    }
    nothing = windows.max("d")
    assert nothing.result(nothing.add(nothing.start(), [{"d": None}])) is None
    assert math.isnan(nothing.result(nothing.add((1.0,), [{"d": math.nan}])))


def test_a_watermark_that_cannot_be_repeated_is_marked_in_the_checkpoint():
    for make in (FixedWindows, Sessions):
        for repeatable in (True, False):
            store = Store()
            make(rules(), SECOND, "", repeatable).init(store)
            assert ("eo_kafka_watermark_not_repeatable" in store.names) is not repeatable


def test_policies_take_times_only():
    assert windows.lag("1 minute") == windows.lag("60 s")
    with pytest.raises(ValueError, match="must be a time like"):
        windows.lag("soon")
    with pytest.raises(ValueError, match="partitions must be at least 1"):
        windows.by_partition("1 s", partitions=0)
