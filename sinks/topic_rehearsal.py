"""A transaction that is opened on the output topic, looked at and aborted: `doctor --write`.

It shows that the principal may do what a task does, and gives the difference of the clocks: the
broker notes by its own clock when a transaction started. No reader sees the record with
read_committed; the topic keeps it, and the abort marker, as it keeps those of every aborted task.
"""

from __future__ import annotations

import time

from eo_kafka.machine_check import Finding, Level
from eo_kafka.sinks import transactional_producer
from eo_kafka.sinks.control_plane import ControlPlane
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.transactional_id import TransactionalIds
from eo_kafka.transaction import TransactionState

_ID = "doctor"
_TIMEOUT_MS = 60_000
CLOCK_MAX_S = 5.0


def rehearse(options: SinkOptions, control: ControlPlane) -> list[Finding]:
    """Open, write one record, describe, abort."""
    from confluent_kafka import KafkaException

    name = TransactionalIds(options.prefix, _ID).coordinator
    settings = {**options.kafka, "linger.ms": "0"}
    settings["topic.metadata.propagation.max.ms"] = "5000"  # a topic that is not there is none
    try:
        producer = transactional_producer.take(settings, name, _TIMEOUT_MS, topic=options.topic)
        producer.begin_transaction()
        before = time.time()
        producer.produce(options.topic, b"aborted", b"eo-kafka doctor")
        left = producer.flush(30.0)
        after = time.time()
        found = control.describe_one(name)
        producer.abort_transaction(30.0)
    except KafkaException as error:
        text = (
            f"a transaction under '{name}' on '{options.topic}' failed: {error.args[0].str()}. "
            "Grant Write and Describe on the topic and on transactional ids with prefix "
            f"'{options.prefix}.'."
        )
        return [Finding(Level.PROBLEM, "rehearsal", text)]
    if left or found.state is not TransactionState.ONGOING:
        text = f"'{options.topic}' took no record in a transaction (it is {found.state.value})"
        return [Finding(Level.PROBLEM, "rehearsal", text)]
    text = f"a transaction on '{options.topic}' was opened, described and aborted"
    return [Finding(Level.OK, "rehearsal", text), clock(found.start_ms / 1000, before, after)]


def clock(broker_s: float, before_s: float, after_s: float) -> Finding:
    """The broker noted `broker_s` at some moment between our `before_s` and `after_s`."""
    difference, uncertain = broker_s - (before_s + after_s) / 2, (after_s - before_s) / 2
    text = f"the broker's is {difference:+.2f} s from this machine's (within {uncertain:.2f} s)"
    if abs(difference) - uncertain <= CLOCK_MAX_S:
        return Finding(Level.OK, "clock", text)
    text += (
        ". The driver refuses batches, or decides too late, by its own clock: synchronize both "
        "(NTP)"
    )
    return Finding(Level.PROBLEM, "clock", text)
