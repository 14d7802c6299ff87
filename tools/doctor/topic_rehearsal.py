"""`doctor --write`: opens a transaction on the output topic, looks at it and aborts it.

It shows that the principal may do what a task does, and gives the difference of the clocks: the
broker notes by its own clock when a transaction started. No reader sees the record with
read_committed; the topic keeps it, and the abort marker, as it keeps those of every aborted task.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any

from ...clients.kafka import transactional_producer
from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.transactional_id import TransactionalIds
from ...core.errors import EnvironmentRefused, OutcomeUnknown
from ...core.transaction import Described
from ...sinks.options import SinkOptions
from .machine_check import Finding, Level

SUBJECT = "rehearsal"
_ID = "doctor"
_TIMEOUT_MS = 60_000
CLOCK_MAX_S = 5.0


def rehearse(options: SinkOptions, control: ControlPlane) -> list[Finding]:
    """Open, write one record, describe, list, abort: each as a batch does it."""
    from confluent_kafka import KafkaException

    name = TransactionalIds(options.prefix, _ID).coordinator
    settings = {**options.kafka, "linger.ms": "0"}
    settings["topic.metadata.propagation.max.ms"] = "5000"  # a topic that is not there is none
    grant = f"Grant Write and Describe on transactional ids with prefix '{options.prefix}.'."
    try:
        producer = transactional_producer.take_own(settings, name, _TIMEOUT_MS, options.topic)
    except KafkaException as error:
        return [_refused("InitProducerId", f"for '{name}': {error.args[0].str()}", grant)]
    producer.begin_transaction()
    before = time.time()
    producer.produce(options.topic, b"aborted", b"eo-kafka doctor")
    left = producer.flush(30.0)
    after = time.time()
    refused = transactional_producer.transaction_failure(producer)
    if left or refused:
        _abort(producer)
        said = refused.str() if refused else "no answer in 30 s"
        text = f"on '{options.topic}', in a transaction: {said}"
        advice = "Grant Write and Describe on the topic."
        return [_refused("AddPartitionsToTxn or Produce", text, advice)]
    try:
        found = control.describe_one(name)
    except (EnvironmentRefused, OutcomeUnknown) as error:
        _abort(producer)
        return [_refused("DescribeTransactions", str(error), grant)]
    problems = [one for one in (_listed(control, name, grant), _ended(control, found)) if one]
    if problems:
        _abort(producer)
    text = f"a transaction on '{options.topic}' was opened, described, listed and aborted"
    told = problems or [Finding(Level.OK, SUBJECT, text)]
    return [*told, clock(found.start_ms / 1000, before, after)]


def _listed(control: ControlPlane, name: str, grant: str) -> Finding | None:
    """Brokers leave out of the list what the principal may not describe."""
    try:
        if control.open_transactions(re.escape(name), lambda found: found == name):
            return None
        said = f"leaves out '{name}', which is open"
    except (EnvironmentRefused, OutcomeUnknown) as error:
        said = str(error)
    left = "What a dead task leaves open would stay so until it times out. "
    return _refused("ListTransactions", said, left + grant)


def _ended(control: ControlPlane, found: Described) -> Finding | None:
    """As a driver ends what a task has opened: by another connection, and by name and epoch."""
    try:
        version = control.end_txn_version()
        said = control.end([found.identity], commit=False, version=version)[found.transactional_id]
    except (EnvironmentRefused, OutcomeUnknown) as error:
        said = str(error)
    if said == "NONE":
        return None
    text = f"(from another connection than the one that opened the transaction): {said}"
    return _refused("EndTxn", text, "No batch can be committed: exactly-once does not work here.")


def _refused(request: str, text: str, advice: str) -> Finding:
    return Finding(Level.PROBLEM, SUBJECT, f"{request} {text}. {advice}")


def _abort(producer: Any) -> None:
    from confluent_kafka import KafkaException

    with suppress(KafkaException):
        producer.abort_transaction(10.0)


def clock(broker_s: float, before_s: float, after_s: float) -> Finding:
    """The broker noted `broker_s` at some moment between our `before_s` and `after_s`."""
    difference, uncertain = broker_s - (before_s + after_s) / 2, (after_s - before_s) / 2
    text = f"the broker's is {difference:+.2f} s from this machine's (within {uncertain:.2f} s)"
    if abs(difference) - uncertain <= CLOCK_MAX_S:
        return Finding(Level.OK, "clock", text)
    text += (
        ". No batch is refused for that; but the ages that 'eo-kafka txn' and this command tell "
        "are wrong by it, and so are timestamps: synchronize both (NTP)"
    )
    return Finding(Level.WARNING, "clock", text)
