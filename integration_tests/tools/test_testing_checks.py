"""The checkers of `eo_kafka.testing` pass nothing in silence: each way to compare nothing, or by
nothing, or too little, is refused. What the jobs would write, these tests write themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Producer

from eo_kafka.testing import (
    Anomaly,
    CheckRefused,
    assert_exactly_once,
    assert_nothing_open,
    assert_order,
    assert_sum,
    assert_windows,
    records,
)
from harness import delete_records

ORDERS = [{"id": n, "kind": "order", "amount": n % 5 - 2} for n in range(20)]


@pytest.fixture
def topics(eo_broker):
    """An input, and an output that is what it should be."""
    source = eo_broker.topic("in", partitions=2).write(ORDERS)
    return source, eo_broker.topic("out", partitions=2).write(ORDERS)


@contextmanager
def open_transaction(topic) -> Iterator[None]:
    """Somebody has written, and neither committed nor aborted."""
    writer = Producer(
        {"bootstrap.servers": topic.servers, "transactional.id": f"left-open.{topic.real_name}"}
    )
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(topic.real_name, json.dumps({"id": 99, "kind": "order"}))
    writer.flush(30)
    try:
        yield
    finally:
        writer.abort_transaction(30)


def test_what_is_equal_passes_by_each_kind_of_key(topics):
    for key in ("value", "record", "json:id"):
        assert_exactly_once("in", "out", key=key)
    assert_exactly_once("in", "out", expected=lambda all_: [one.json for one in all_])
    assert_exactly_once("in", "out", expected=lambda all_: [one.value for one in all_])
    assert_exactly_once("in", "out", expected=lambda all_: [(None, one.json) for one in all_])
    assert_order("in", "out", key="json:id")
    assert_sum("out", amount="json:amount", equals=0)
    assert_nothing_open()


def test_what_is_lost_repeated_or_foreign_is_told_with_its_place(topics):
    _, sink = topics
    sink.write([ORDERS[3], {"id": 77}])
    with pytest.raises(Anomaly, match="1 duplicate, 1 foreign") as found:
        assert_exactly_once("in", "out", key="json:id")
    told = "  3  should be there 1 times (source 1@1); is there 2 times (0@10, 1@1)\n"
    assert told in str(found.value)
    with pytest.raises(Anomaly, match="1 lost, 1 duplicate, 1 foreign"):
        assert_exactly_once(
            "in", "out", expected=lambda all_: [*(one.json for one in all_), {"id": 5}]
        )


def test_a_loss_and_a_repetition_of_one_id_do_not_cancel_out(eo_broker):
    eo_broker.topic("in").write([{"id": 1, "n": 1}, {"id": 1, "n": 2}])
    eo_broker.topic("out").write([{"id": 1, "n": 1}, {"id": 1, "n": 1}])
    with pytest.raises(CheckRefused, match="1 ids of 'in' stand in several records: 1"):
        assert_exactly_once("in", "out", key="json:id")
    with pytest.raises(Anomaly, match="1 lost, 1 duplicate"):
        assert_exactly_once("in", "out", key="value")


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("json:nothing", "20 of 20 records of 'in' have no 'json:nothing': 0@0, 0@1"),
        ("key", "20 of 20 records of 'in' have no 'key'"),
        ("header:id", "20 of 20 records of 'in' have no 'header:id'"),
        ("json:kind", "1 ids of 'in' stand in several records"),
        ("id", "key is 'id': key, value, record, header:NAME or json:FIELD is expected"),
    ],
)
def test_a_key_that_tells_nothing_apart_is_refused(topics, key, says):
    with pytest.raises(CheckRefused, match=says):
        assert_exactly_once("in", "out", key=key)


def test_a_key_that_the_output_does_not_have_is_refused(topics, eo_broker):
    eo_broker.topic("other").write(["not JSON"])
    with pytest.raises(CheckRefused, match="is not JSON"):
        assert_exactly_once("in", "other", key="json:id")


def test_nothing_is_not_compared_with_nothing(eo_broker, topics):
    eo_broker.topic("empty")
    for check in (
        lambda: assert_exactly_once("empty", "out", key="value"),
        lambda: assert_order("empty", "out", key="value"),
        lambda: assert_windows("empty", "out", model=lambda _: {"a": "1"}),
        lambda: assert_sum("empty", amount="json:amount", equals=0),
    ):
        with pytest.raises(CheckRefused, match="Topic 'empty' is empty"):
            check()
    with pytest.raises(Anomaly, match="20 lost"):
        assert_exactly_once("in", "empty", key="value")
    with pytest.raises(CheckRefused, match="The function expects nothing in 'out' of 20 records"):
        assert_exactly_once("in", "out", expected=lambda _: [])
    with pytest.raises(CheckRefused, match="The model gives no window"):
        assert_windows("in", "out", model=lambda _: {})
    with pytest.raises(CheckRefused, match="there is no order to compare"):
        assert_order("in", "empty", key="value")


def test_a_topic_that_is_not_meant_is_refused(topics):
    with pytest.raises(CheckRefused, match=r"This test has no topic 'outt'. It has: 'in', 'out'"):
        assert_exactly_once("in", "outt", key="value")
    with pytest.raises(CheckRefused, match="compared with itself"):
        assert_exactly_once("in", "in", key="value")
    with pytest.raises(CheckRefused, match="Give either key="):
        assert_exactly_once("in", "out")


def test_a_job_that_never_ran_or_was_left_dead_is_not_compared(topics, eo_job):
    eo_job("jobs.proved_jobs:copy", source="in", sink="out")
    with pytest.raises(CheckRefused, match=r"has not come to the end .* call job.run\(\) before"):
        assert_exactly_once("in", "out", key="value")


def test_nobody_reads_before_the_end(topics, monkeypatch):
    """What an open transaction hides may be what is wrong."""
    source, sink = topics
    monkeypatch.setattr(records, "SETTLED_S", 0.5)
    for topic in (sink, source):
        with open_transaction(topic):
            name = f"left-open.{topic.real_name}"
            with pytest.raises(Anomaly, match=rf"open transaction: .* id: {name}"):
                assert_exactly_once("in", "out", key="json:id")
            with pytest.raises(Anomaly, match="open transaction"):
                assert_nothing_open(topic)
    assert_exactly_once("in", "out", key="json:id")  # what was aborted counts nowhere


def test_records_that_are_deleted_already_are_not_passed_over(topics, eo_broker):
    source, _ = topics
    delete_records(eo_broker.bootstrap_servers, source.real_name, 4)
    with pytest.raises(CheckRefused, match="Records of '.*' are deleted already"):
        assert_exactly_once("in", "out", key="json:id", unique=False)


def test_a_topic_that_forgets_records_is_not_compared_record_by_record(topics, eo_broker):
    eo_broker.topic("newest", config={"cleanup.policy": "compact"}).write([("a", "1"), ("a", "2")])
    for source, sink in (("in", "newest"), ("newest", "out")):
        with pytest.raises(CheckRefused, match=r"Kafka compacts \['newest'\]"):
            assert_exactly_once(source, sink, key="value")
    assert_windows("in", "newest", model=lambda _: {"a": "2"})


def test_rows_that_changed_places_are_found(eo_broker):
    eo_broker.topic("in").write(ORDERS)
    eo_broker.topic("out").write([*ORDERS[5:], *ORDERS[:5]])
    assert_exactly_once("in", "out", key="json:id")
    with pytest.raises(Anomaly, match=r"reordered: 5 times: input 0:19 stands at output 0:14"):
        assert_order("in", "out", key="json:id")


def test_windows_are_the_newest_of_each_key_or_each_once(eo_broker):
    eo_broker.topic("in").write(ORDERS)
    updates = eo_broker.topic("updates").write([("a", "1"), ("b", "1"), ("a", "2")])
    model = {"a": "2", "b": "1"}
    assert_windows("in", updates, model=lambda _: model)
    with pytest.raises(Anomaly, match="1 foreign"):
        assert_windows("in", updates, model=lambda _: model, once=True)
    with pytest.raises(Anomaly, match="1 lost: 'updates' is not what 'in' should have become"):
        assert_windows("in", updates, model=lambda _: {**model, "c": "1"})
    two = eo_broker.topic("two", partitions=2)
    for partition in (0, 1):  # a writer that places its keys in another way
        writer = Producer({"bootstrap.servers": two.servers})
        writer.produce(two.real_name, "1", "a", partition=partition)
        writer.flush(30)
    with pytest.raises(CheckRefused, match="Key a is in two partitions"):
        assert_windows("in", two, model=lambda _: {"a": "1"})


def test_sums_need_amounts(topics, eo_broker):
    with pytest.raises(Anomaly, match="the 20 amounts in 'out' add up to 0, and should to 7"):
        assert_sum("out", amount="json:amount", equals=7)
    with pytest.raises(CheckRefused, match="have no 'json:price'"):
        assert_sum("out", amount="json:price", equals=0)
    with pytest.raises(CheckRefused, match="20 records of 'out' have no amount"):
        assert_sum("out", amount="json:kind", equals=0)


def test_a_kafka_that_others_use_is_left_alone(eo_broker):
    for fault in (eo_broker.kill, eo_broker.start, lambda: eo_broker.pause(1)):
        with pytest.raises(CheckRefused, match="Other tests use this Kafka, too"):
            fault()
    with pytest.raises(CheckRefused, match="own=True"), eo_broker.network_cut():
        pass


def test_words_that_mean_nothing_are_told_all_at_once(topics, eo_job):
    job = eo_job("jobs.proved_jobs:copy", source="in", sink="out")
    with pytest.raises(ValueError, match=r"crash='S9' is no crash point.*until='done'.*how='now'"):
        job.run(crash="S9", until="done", how="now")
    with pytest.raises(ValueError, match=r"needs crash"):
        job.run(until="crashed")
    with pytest.raises(ValueError, match=r"Unknown faults \['rain'\]"):
        job.nemesis(seed=1, minutes=0.1, feed=lambda _: [], faults=["rain"])
