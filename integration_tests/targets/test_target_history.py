"""What a target shows is compared with the ledger, and a topic beside it has the same decision:
resets, copies, other places, aborted transactions, losses that are accepted."""

from __future__ import annotations

from collections import Counter

import pytest
from deltalake import DeltaTable

from both_places import abort, in_both
from eo_kafka.errors import LedgerError, RepairNeeded
from eo_kafka.sinks.marker import Marker
from eo_kafka.sinks.targets.custom import writer_of
from eo_kafka.sinks.targets.target import encoded
from eo_kafka.tools import cli
from hand_made_tasks import HandMadeTasks, batch_of
from harness import delete_topic
from table_job import QUERY, kill_at
from target_job import TargetJob, delta_job
from target_places import DELTA, SCHEMA

FULL = pytest.mark.full


@pytest.fixture
def one(tmp_path, broker) -> TargetJob:
    return delta_job(tmp_path, broker.bootstrap_servers)


@pytest.fixture
def both(tmp_path, broker, make_topic) -> TargetJob:
    topic = make_topic("both", partitions=2)
    return delta_job(tmp_path, broker.bootstrap_servers, topic=topic)


def command(job: TargetJob, *words: str) -> int:
    """`eo-kafka job ...`"""
    name, _ = job.options.job_and_ledger
    servers = job.given["kafka.bootstrap.servers"]
    return cli.main(["job", words[0], name, *words[1:], "--bootstrap-servers", servers])


def test_a_job_that_was_reset_and_a_copy_of_its_ledger_go_on(one) -> None:
    one.run(0, 1)
    assert command(one, "reset") == 0
    one.run(0)
    assert one.there() == one.expected(0, 1) + one.expected(0)
    options, target = one.read()
    made, writer = target.made(), writer_of(options.job_and_ledger[0], options.sink)
    mine = made.marker(writer)
    assert mine is not None
    ledger = mine.split(b'"ledger":"')[1].split(b'"')[0]
    made.apply(writer, {}, mine, mine.replace(ledger, b"the original"))  # ours has another id
    one.run(1, 2)
    assert one.there() == one.expected(0, 1) + one.expected(0, 1, 2)


def test_another_ledger_of_the_same_name_begins_anew(one) -> None:
    from eo_kafka.sinks.protocol import preflight

    one.run(0, 1)
    delete_topic(one.given["kafka.bootstrap.servers"], one.options.job_and_ledger[1])
    preflight._checked.clear()  # another driver
    with pytest.raises(LedgerError, match="is empty, but Kafka remembers"):
        one.prepare(0)
    assert command(one, "reset") == 0
    one.run(0, 1, 2)  # the same generations and batches, which the target must not take for old
    assert one.there() == one.expected(0, 1) + one.expected(0, 1, 2)


def test_a_decided_batch_is_not_applied_elsewhere(one, crash_points) -> None:
    kill_at(one, crash_points, "S7.applied", 0)
    other = f"{one.database}-other"
    DeltaTable.create(other, SCHEMA)
    here = dict(one.given)
    one.given["target.path"] = other
    with pytest.raises(LedgerError, match="shows no batch of this job"):
        one.run(0)
    assert DeltaTable(other).version() == 0
    one.given = here
    one.run(0, 1)
    assert one.there() == one.expected(0, 1)


@pytest.mark.parametrize("aborted", [pytest.param({0, 1}, marks=FULL), {1}])
def test_what_kafka_aborted_is_not_shown_and_comes_back_in_both(
    both, crash_points, aborted
) -> None:
    both.run(0)
    kill_at(both, crash_points, "S6.after_decision", 1)
    abort(both, aborted)
    both.prepare(1)  # rolls forward what can be
    kept = Counter(row[:2] for part in {0, 1} - aborted for row in both.rows(1, part))
    assert both.there() == both.expected(0) + kept
    kill_at(both, crash_points, "S7.before_target", 1)  # the replay's driver
    both.run(1, 2)
    assert both.there() == in_both(both) == both.expected(0, 1, 2)
    assert both.left() == []


def test_a_loss_is_accepted_for_good(both, crash_points, tmp_path) -> None:
    """Of a batch that is partly lost, and of the partition that a torn one misses."""
    both.run(0)
    kill_at(both, crash_points, "S6.after_decision", 1)
    abort(both, {1})
    config = tmp_path / "target.properties"
    config.write_text(f"target={DELTA}\ntarget.path={both.database}\n")
    repair = ("repair", "--batch", "1", "--accept-loss", "--table-config", str(config))
    assert command(both, *repair) == 0
    kept = Counter(row[:2] for row in both.rows(1, 0))
    both.run(2)
    assert both.there() == in_both(both) == both.expected(0, 2) + kept


@pytest.mark.parametrize("lost", [1, pytest.param(2, marks=FULL)])
def test_staged_rows_that_are_lost_beside_a_topic_are_told_or_given_up(
    both, crash_points, lost
) -> None:
    both.run(0)
    kill_at(both, crash_points, "S6.after_decision", 1)
    both.read()[1].made().discard(both.left()[:lost])
    with pytest.raises(LedgerError, match="Writing the batch again would repeat its rows in the"):
        both.prepare(1)
    both.given["failOnDataLoss"] = "false"
    kill_at(both, crash_points, "S7.applied", 1)
    if lost == 1:
        del both.given["failOnDataLoss"]
    both.run(1, 2)
    both.given.pop("failOnDataLoss", None)  # the next batch is written
    both.run(3)
    kept = Counter(row[:2] for part in range(lost, 2) for row in both.rows(1, part))
    assert both.there() == both.expected(0, 2, 3) + kept
    assert in_both(both) == both.expected(0, 1, 2, 3)


@FULL
def test_a_replay_with_other_rows_stops_the_query(both, crash_points) -> None:
    both.run(0)
    kill_at(both, crash_points, "S6.after_decision", 1)
    abort(both, {1})
    both.prepare(1, other="!")
    with pytest.raises(RepairNeeded, match="replay's rows of these partitions are not the same"):
        both.commit(1)
    both.run(1, 2)
    assert both.there() == in_both(both) == both.expected(0, 1, 2)


def test_a_marker_of_another_clusters_job_is_refused(one) -> None:
    """Which has the same name and writes the same target: it began anew there."""
    one.run(0)
    options, target = one.read()
    made, writer = target.made(), writer_of(options.job_and_ledger[0], options.sink)
    theirs = Marker("the other cluster's", 1, 0, 0, 1, "x")
    one.prepare(1)
    made.apply(writer, {}, made.marker(writer), encoded(theirs))
    with pytest.raises(LedgerError, match="or another ledger's driver writes there"):
        one.commit(1)
    with pytest.raises(LedgerError, match="was restored from an older copy, or is another one"):
        one.run(1)
    assert one.there() == one.expected(0)


@pytest.mark.parametrize("beside", [False, True])
def test_rows_that_tasks_committed_to_a_topic_are_not_taken_for_staged(
    tmp_path, broker, make_topic, beside
):
    """commit=idempotent, a task has committed and the driver has died; now it is another sink."""
    topic = make_topic("out")
    found = delta_job(tmp_path, broker.bootstrap_servers, **({"topic": topic} if beside else {}))
    name, _ = found.options.job_and_ledger
    before = HandMadeTasks(broker.bootstrap_servers, topic, "idempotent", query=QUERY, name=name)
    before.write(before.plan(), iter([batch_of(b"a")]))
    for _ in range(2):
        with pytest.raises(RepairNeeded, match=f"1 of its rows to topics .*{topic}.* elsewhere"):
            found.prepare(0)
    before.commit(before.write(before.plan(), iter([batch_of(b"a")])))
    found.prepare(1)
    found.commit(1)
    assert found.there() == found.expected(1)
