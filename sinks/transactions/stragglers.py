"""Aborts transactions that other drivers and attempts left open, and no newer ones.

An open transaction hides every later row of its partitions from `read_committed` readers, until it
times out. So what nobody needs is ended as soon as that is known.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.transactional_id import TransactionalIds
from ...core.errors import EnvironmentRefused, OutcomeUnknown
from ...core.transaction import Described, EndTxnAnswer, Identity

log = logging.getLogger(__name__)

# Long enough for Kafka to notice that a broker is gone: then it is not asked any more.
LIST_TIMEOUT_S = 90.0
END_TIMEOUT_S = 60.0
T = TypeVar("T")


def abort_stragglers(
    control: ControlPlane,
    ids: TransactionalIds,
    holder: Identity | None,
    kept: Collection[Identity],
    version: int,
    pinning: tuple[str, int] | None = None,
    before_end: Callable[[], None] = lambda: None,
) -> int | None:
    """Abort the job's open transactions that are not in `kept`; with `pinning`, only those that
    wrote to that partition. `before_end` is called when they are listed, and may raise. Returns how
    many were; None, and none was, if another holds the coordinator's id.

    Raises OutcomeUnknown if they could not be listed or ended, EnvironmentRefused.
    """
    listed = [
        described
        for described in list_open(control, ids)
        if described.identity not in kept and (pinning is None or pinning in described.partitions)
    ]
    before_end()
    return end_listed(control, ids, holder, listed, version)


def list_open(
    control: ControlPlane,
    ids: TransactionalIds,
    sink: str | None = None,
    but: Collection[Identity] = (),
) -> list[Described]:
    """The open transactions of the job's tasks, or of one sink's, that are none of `but` (which are
    being ended: they are not described). A listing that failed is not "none": asked again, then
    OutcomeUnknown."""
    deadline = time.monotonic() + LIST_TIMEOUT_S
    while True:
        try:
            return control.open_transactions(
                *(ids.task_pattern(sink), lambda name: ids.is_task(name, sink), but, ids.stem)
            )
        except OutcomeUnknown as error:
            if time.monotonic() > deadline:
                raise OutcomeUnknown(
                    f"The open transactions of job '{ids.job}' could not be listed ({error}): one "
                    "of them may hide rows from read_committed readers until it times out. "
                    "Nothing is lost; start the query again when all brokers answer."
                ) from error


def end_listed(
    control: ControlPlane,
    ids: TransactionalIds,
    holder: Identity | None,
    listed: Sequence[Described],
    version: int,
) -> int | None:
    """Abort what was listed, if `holder` still has the coordinator's id; None if it has not.
    Returns how many that were.

    Ids are used again by later generations, so what may be aborted is settled by order: list
    first, look at the coordinator after. If `holder` still has its id, no newer driver had a task
    by the time of the listing, and an abort for exactly that (producer id, epoch) hits no other.
    """
    if not listed:
        return 0
    if control.describe_one(ids.coordinator).identity != holder:
        return None
    end_all(control, [described.identity for described in listed], version)
    log.info("Aborted %d open transactions that nothing decided: %s", len(listed), listed)
    return len(listed)


def end_all(control: ControlPlane, wanted: Sequence[Identity], version: int) -> None:
    """Abort exactly these, until each has a final answer. InitProducerId could hit somebody else's
    under the same id. Raises OutcomeUnknown, EnvironmentRefused."""
    found = control.end_all(wanted, False, version, END_TIMEOUT_S)
    for name, (answer, error) in found.items():
        if answer is EndTxnAnswer.REFUSED:
            raise EnvironmentRefused(
                f"Kafka refuses to abort '{name}' ({error}), an open transaction that nobody "
                "needs: it hides later rows from read_committed readers until it times out. "
                "Correct that and start the query again."
            )
    late = sum(answer is EndTxnAnswer.RETRY for answer, _ in found.values())
    if late:
        raise OutcomeUnknown(
            f"{late} open transactions that nobody needs got no answer to their abort in "
            f"{END_TIMEOUT_S:.0f} s. Start the query again: it ends them."
        )


def beside(call: Callable[[], T]) -> Future[T]:
    """Run `call` beside what comes next."""
    thread = ThreadPoolExecutor(1, "eo-kafka-list")
    running = thread.submit(call)
    thread.shutdown(wait=False)
    return running
