"""A query whose job was given another name: its new ledger is empty, and the old one is not.

If the name was changed (`jobName`, or the query's) after a batch was decided and before Spark had
noted it, Spark runs that batch again, and the new ledger does not know it. A ledger names the query
that owns it, so the old one is found among those of the cluster.
"""

from __future__ import annotations

import logging

from ...clients.kafka.control_plane import ControlPlane
from ...core.errors import EoKafkaError, ForeignLedger, cut
from ...state.ledger.coordinator import Coordinator
from ...state.ledger.job_topics import LEDGER_NAME
from ...state.ledger.ledger import DECISION_PARTITION, Ledger
from ...state.ledger.ledger_memory import LedgerMemory
from ...state.snapshots.checkpoint import open_checkpoint
from ...state.snapshots.offset_log import batches_in
from ..options import SinkOptions

log = logging.getLogger(__name__)


def check_not_renamed(
    options: SinkOptions, coordinator: Coordinator, control: ControlPlane
) -> None:
    """Raise ForeignLedger if this query has decided the batch that is about to run under another
    name. Driver, in S1 of a query's first batch in a ledger. Not for batch 0, with which each new
    query begins: all ledgers are read."""
    mine, url = options.query_id, options.checkpoint
    if mine is None or url is None or coordinator.ledger.owner is not None:
        return
    batch = max(batches_in("offsets", open_checkpoint(url).paths()), default=0)
    if not batch:
        return
    for found in filter(None, map(LEDGER_NAME.fullmatch, control.topics())):
        topic = found[0]
        ledger = _read(options, control, topic)
        if ledger is not None and ledger.owner == mine and _newest(ledger, options) >= batch:
            raise ForeignLedger(
                f"Batch {batch} of this query, {mine}, is written already, or in part, as job "
                f"'{found['job']}' (ledger '{topic}'), and Spark has not noted it: as job "
                f"'{options.job}' it would be written once more. Nothing was written. Start the "
                "query by its old name ('jobName', or the query's name) until it has ended a "
                "batch; rename it then."
            )


def _newest(ledger: Ledger, options: SinkOptions) -> int:
    """The newest batch that may be visible: decided, or with tasks that commit by themselves."""
    decided = ledger.of_sink(options.sink)
    newest = max(decided, default=-1)
    if decided and decided[newest].target != options.target:
        return -1  # a copy of the checkpoint, for another write
    return max(newest, ledger.begun.batch if ledger.begun else -1)


def _read(options: SinkOptions, control: ControlPlane, topic: str) -> Ledger | None:
    """Fences nobody. None: it is another principal's, or broken."""
    try:
        end = control.end_offset(topic, DECISION_PARTITION, committed=True)
        return LedgerMemory(options.kafka, topic).read_to(end)
    except EoKafkaError as error:
        log.info("Ledger '%s' was passed over: %s", topic, cut(error))
        return None
