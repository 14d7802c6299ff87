"""Ends what other drivers and attempts left open, without hitting what a newer one prepared."""

from __future__ import annotations

import logging
from collections.abc import Collection

from eo_kafka.errors import OutcomeUnknown
from eo_kafka.sinks.control_plane import ControlPlane
from eo_kafka.sinks.transactional_id import TransactionalIds
from eo_kafka.transaction import Identity

log = logging.getLogger(__name__)


def abort_stragglers(
    control: ControlPlane,
    ids: TransactionalIds,
    holder: Identity | None,
    kept: Collection[Identity],
    version: int,
    pinning: tuple[str, int] | None = None,
) -> int:
    """Abort the job's open transactions that are not in `kept`; return how many there were. With
    `pinning`, only those that wrote to that partition.

    Ids are used again by later generations, so what may be aborted is settled by order: list
    first, look at the coordinator after. If `holder` still has its id, no newer driver had a task
    by the time of the listing, and an abort for exactly that (producer id, epoch) hits no other.
    A broker that is down must not hold this up: what it hides times out.
    """
    try:
        listed = control.open_transactions(ids.task_pattern(), ids.is_task)
    except OutcomeUnknown as error:
        log.warning("Open transactions of job '%s' not listed: %s", ids.job, error)
        return 0
    found = [
        described.identity
        for described in listed
        if described.identity not in kept and (pinning is None or pinning in described.partitions)
    ]
    if not found or control.describe_one(ids.coordinator).identity != holder:
        return 0
    answers = control.end(found, commit=False, version=version)
    log.info("Aborted %d open transactions that nothing decided: %s", len(found), answers)
    return len(found)
