"""A query whose job was given another name: its new ledger is empty, and the old one is not.

If the name was changed (`jobName`, or the query's) after a batch was decided and before Spark had
noted it, Spark runs that batch again, and the new ledger does not know it. A ledger names the query
that owns it, so the old one is found among those of the cluster.
"""

from __future__ import annotations

import logging

from ...clients.kafka.control_plane import ControlPlane
from ...core.errors import EoKafkaError, ForeignLedger, OutcomeUnknown, cut
from ...state.ledger.coordinator import Coordinator
from ...state.ledger.job_topics import LEDGER_NAME
from ...state.ledger.ledger import DECISION_PARTITION, Ledger
from ...state.ledger.ledger_memory import LedgerMemory
from ...state.snapshots.checkpoint import open_checkpoint
from ...state.snapshots.offset_log import batches_in
from ..options import SinkOptions
from .other_names import is_other_name

log = logging.getLogger(__name__)


def check_not_renamed(
    options: SinkOptions, coordinator: Coordinator, control: ControlPlane
) -> None:
    """Raise ForeignLedger if this query has decided the batch that is about to run under another
    name; OutcomeUnknown if a ledger cannot be read now. Driver, in S1 of a query's first batch in a
    ledger. Not for batch 0, with which each new query begins: all ledgers are read."""
    mine, url = options.query_id, options.checkpoint
    if mine is None or url is None or coordinator.ledger.owner is not None:
        return
    batch = max(batches_in("offsets", open_checkpoint(url).paths()), default=0)
    if not batch:
        return
    before: dict[int, str] = {}
    refused: dict[str, str] = {}
    for found in filter(None, map(LEDGER_NAME.fullmatch, control.topics())):
        topic = found[0]
        try:
            ledger = _read(options, control, topic)
        except EoKafkaError as error:
            if error.retriable or error.in_doubt:
                raise OutcomeUnknown(
                    f"Whether this query, {mine}, has written its batch {batch} by another job "
                    f"name is not known: ledger '{topic}' cannot be read now ({cut(error)}). "
                    "Nothing was written. Start the query again when it can be read."
                ) from error
            refused[topic] = cut(error)
            continue
        if ledger.owner != mine or (newest := _newest(ledger, options)) < 0:
            continue
        before[newest] = found["job"]
        if newest >= batch and not _went_elsewhere(ledger, options, control, topic):
            raise ForeignLedger(
                f"Batch {batch} of this query, {mine}, is written already, or in part, as job "
                f"'{found['job']}' (ledger '{topic}'), and Spark has not noted it: as job "
                f"'{options.job}' it would be written once more. Nothing was written. Start the "
                "query by its old name ('jobName', or the query's name) until it has ended a "
                "batch; rename it then."
            )
    # A rename that is meant, and a second job on the checkpoint, look the same. A function of
    # foreachBatch may have several jobs, and begin with one when it likes.
    if before and not options.may_pass_batches:
        old = before[max(before)]
        log.warning(
            "Job '%s' begins with batch %d of query %s: job '%s' has written its batches up to %d. "
            "If the job was renamed, all is well: do not start it by its old name any more. If "
            "'%s' is another job, this one has its checkpoint or a copy of it, and lacks what that "
            "one has read: stop it, and give it a checkpoint and a 'jobName' of its own.",
            *(options.job, batch, mine, old, max(before), old),
        )
    if refused:
        topic = min(refused)
        log.warning(
            "Job '%s' has no ledger yet, and query %s is at batch %d. Ledgers of other jobs could "
            "not be read (%s); of '%s': %s If one of them is this query's, by an older job name, "
            "and Spark has not noted batch %d as written, that batch is written again.",
            *(options.job, mine, batch, cut(", ".join(sorted(refused)), 1000)),
            *(topic, refused[topic], batch),
        )


def _newest(ledger: Ledger, options: SinkOptions) -> int:
    """The newest batch that may be visible: decided, or with tasks that commit by themselves."""
    newest = max(ledger.of_sink(options.sink), default=-1)
    return max(newest, ledger.begun.batch if ledger.begun else -1)


def _went_elsewhere(
    ledger: Ledger, options: SinkOptions, control: ControlPlane, topic: str
) -> bool:
    """Whether this is a copy of the checkpoint, for another write."""
    decided = ledger.of_sink(options.sink)
    wrote = decided[max(decided)].target if decided else options.target
    if wrote == options.target:
        return False
    return not is_other_name(
        options, ledger, wrote, lambda: control.topic_ids([topic]).get(topic, "")
    )


def _read(options: SinkOptions, control: ControlPlane, topic: str) -> Ledger:
    """Fences nobody. Raises EoKafkaError: also as it may be another principal's, or broken."""
    end = control.end_offset(topic, DECISION_PARTITION, committed=True)
    return LedgerMemory(options.kafka, topic).read_to(end)
