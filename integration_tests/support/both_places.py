"""Of jobs that write a topic beside a table or a target: transactions that Kafka aborts, and what
the topic holds."""

from __future__ import annotations

from collections import Counter

from eo_kafka.testing.processes import CrashPoints
from eo_kafka.testing.records import committed_messages, control_plane
from table_job import TableJob, kill_at


def abort(job: TableJob, partitions: set[int]) -> None:
    """What the broker does with transactions that are open for longer than their timeout."""
    with control_plane(job.given["kafka.bootstrap.servers"]) as control:
        found = control.open_transactions(job.options.ids.task_pattern(), job.options.ids.is_task)
        mine = [
            one.identity
            for one in found
            if int(one.transactional_id.split(".p")[1].split(".", maxsplit=1)[0]) in partitions
        ]
        assert len(mine) == len(partitions)
        answers = control.end(mine, commit=False, version=control.end_txn_version())
    assert set(answers.values()) == {"NONE"}


def kill_at_and_abort(both: TableJob, points: CrashPoints, aborted: set[int]) -> None:
    """Kafka aborts partitions of a batch that is decided; the next drivers bring them to both."""
    both.run(0)
    kill_at(both, points, "S6.after_decision", 1)
    abort(both, aborted)
    both.prepare(1)  # rolls forward what can be
    kept = {row for part in {0, 1} - aborted for row in both.rows(1, part)}
    assert set(both.there()) == set(both.expected(0)) | {row[:2] for row in kept}
    both.prepare(1)  # a driver that died before its decision
    both.commit(1)
    both.run(2)
    assert both.there() == in_both(both) == both.expected(0, 1, 2)


def in_both(job: TableJob) -> Counter:
    """Rows of the topic, as read_committed."""
    found = committed_messages(job.given["kafka.bootstrap.servers"], job.given["topic"])
    return Counter((int(one.key()), one.value().decode()) for one in found)
