"""An output topic that is deleted and made again while a task writes to it: no row is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eo_kafka.errors import LedgerError, Undecided, WriteFailed
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import batch as df_write
from eo_kafka.tools.cli import main
from hand_made_tasks import HandMadeTasks, batch_of
from harness import (
    assert_exactly_once,
    committed,
    delete_topic,
    make_copy,
    wait_until,
    written,
)


def make_again(servers: str, topic: str) -> None:
    delete_topic(servers, topic)
    admin = AdminClient({"bootstrap.servers": servers})

    def made() -> bool:
        try:
            admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
        except Exception as error:
            return "TOPIC_ALREADY_EXISTS" in str(error)
        return True

    wait_until(made, f"{topic} is made again")
    wait_until(lambda: topic in admin.list_topics(timeout=30).topics, f"{topic} is there")


def replaced_after_first_row(servers: str, topic: str, *rows: pa.RecordBatch) -> Iterator:
    yield rows[0]
    wait_until(lambda: written(servers, topic), "the first row has reached the broker")
    make_again(servers, topic)
    yield from rows[1:]


@pytest.mark.parametrize("column", [False, True], ids=["option-topic", "column-topic"])
def test_a_topic_made_again_between_the_first_row_and_s5_fails_the_task(broker, make_topic, column):
    servers, topic = broker.bootstrap_servers, make_topic("out")
    job = HandMadeTasks(servers, None if column else topic)
    named = topic if column else None
    first, second = batch_of(b"a", topic=named), batch_of(b"b", topic=named)
    plan = job.plan()
    with pytest.raises(WriteFailed, match="deleted|ended"):
        job.write(plan, replaced_after_first_row(servers, topic, first, second))
    job.commit(job.write(plan, iter([first, second]), attempt=1))  # Spark tries again
    assert committed(servers, topic) == Counter([b"a", b"b"])
    assert job.open() == []


def test_a_topic_made_again_after_a_save_has_prepared_stops_the_save(broker, make_topic):
    servers, topic = broker.bootstrap_servers, make_topic("out")
    given = {"kafka.bootstrap.servers": servers, "topic": topic}
    options = SinkOptions.parse(given, streaming=False)
    save = df_write.new_batch(options)
    report = df_write.write(options, save, 0, 0, iter([batch_of(b"a")]))
    make_again(servers, topic)
    with pytest.raises(Undecided, match="deleted"):
        df_write.commit(options, save, [report])
    df_write.abort(options, save, [report])


def test_rows_that_tasks_committed_by_themselves_and_that_went_with_their_topic_are_written_again(
    broker, make_topic
):
    servers, topic = broker.bootstrap_servers, make_topic("out")
    job = HandMadeTasks(servers, topic, "idempotent")
    first, second = batch_of(b"a"), batch_of(b"b")
    plan = job.plan()
    early = job.write(plan, iter([first]))
    make_again(servers, topic)
    late = job.write(plan, iter([second]), partition=1)
    with pytest.raises(Undecided, match=f"{topic}.*deleted"):
        job.commit(early, late)
    assert committed(servers, topic) == Counter([b"b"])
    replay = job.plan()
    job.commit(
        job.write(replay, iter([first])), job.write(replay, iter([second]), partition=1, attempt=1)
    )
    assert committed(servers, topic) == Counter([b"a", b"b"])
    assert job.plan().torn is None


def test_a_query_whose_output_is_made_again_in_mid_batch_stops_and_the_next_start_writes_all(
    broker, spark, make_topic, crash_points, tmp_path
):
    values = [b"%d" % number for number in range(300)]
    job = make_copy(
        broker.bootstrap_servers,
        make_topic,
        tmp_path,
        values,
        per_batch=200,
        tasks=3,
        sink_extra={"commit": "idempotent"},
    )
    crash_points.arm("one-phase.committed", "wait")
    with job.running(spark) as query:
        crash_points.wait_reached("one-phase.committed")
        assert committed(job.servers, job.sink_topic)
        make_again(job.servers, job.sink_topic)
        crash_points.release("one-phase.committed")
        with pytest.raises(Exception, match=rf"\['{job.sink_topic}'\] were deleted, or made again"):
            query.awaitTermination(120)
    job.run(spark)
    assert_exactly_once(job, values)


def test_a_retry_sees_that_the_rows_of_the_attempt_before_went_with_their_topic(broker, make_topic):
    servers, topic = broker.bootstrap_servers, make_topic("out")
    job = HandMadeTasks(servers, topic, "idempotent")
    plan = job.plan()
    job.write(plan, iter([batch_of(b"a")]))  # it commits, and its report is lost
    make_again(servers, topic)
    with pytest.raises(WriteFailed, match=f"{topic}.*deleted"):
        job.write(plan, iter([batch_of(b"a")]), attempt=1)
    job.commit(job.write(job.plan(), iter([batch_of(b"a")])))
    assert committed(servers, topic) == Counter([b"a"])
    assert job.plan().torn is None  # of the two tokens of that task one counts


def test_a_topic_made_again_while_the_rest_of_a_torn_batch_is_written_stops_it(broker, make_topic):
    servers, topic = broker.bootstrap_servers, make_topic("out")
    job = HandMadeTasks(servers, topic, "idempotent")
    first, second = batch_of(b"a"), batch_of(b"b")
    job.write(job.plan(), iter([first]))
    replay = job.plan()
    known = job.write(replay, iter([first]))
    make_again(servers, topic)
    with pytest.raises(Undecided, match=f"{topic}.*deleted"):
        job.commit(known, job.write(replay, iter([second]), partition=1))
    again = job.plan()
    job.commit(job.write(again, iter([first])), job.write(again, iter([second]), partition=1))
    assert committed(servers, topic) == Counter([b"a", b"b"])


def test_where_one_of_a_tasks_two_topics_was_made_again_an_operator_decides(broker, make_topic):
    servers, kept, lost = broker.bootstrap_servers, make_topic("kept"), make_topic("lost")
    job = HandMadeTasks(servers, None, "idempotent")
    job.write(job.plan(), iter([batch_of(b"a", topic=kept), batch_of(b"b", topic=lost)]))
    make_again(servers, lost)
    with pytest.raises(LedgerError, match=f"{lost}.*job repair {job.name} --batch 0"):
        job.plan()
    repair = ["job", "repair", job.name, "--batch", "0", "--accept-loss"]
    assert main([*repair, "--bootstrap-servers", servers]) == 0
    assert job.plan().torn is None
