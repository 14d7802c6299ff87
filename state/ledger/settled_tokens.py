"""Reads tokens once it is settled which of them count.

A token whose transaction is open is neither visible nor gone, and it hides those behind it: a
`read_committed` reader gets no further than the last stable offset (LSO).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.control_requests import End
from ...core.errors import LedgerError, OutcomeUnknown
from ...core.transaction import Token
from . import records
from .job import Job
from .log_reader import RecordsDeleted, read_records

log = logging.getLogger(__name__)

STABLE_TIMEOUT_S = 120.0


def token_ends(options: Job, partition: int, until: int | None) -> list[End]:
    """The questions for `ControlPlane.look` whose answers `read_tokens` goes by."""
    _, topic = options.job_and_ledger
    stable = (topic, partition, True)
    return [stable] if until is not None else [stable, (topic, partition, False)]


def read_tokens(
    options: Job,
    control: ControlPlane,
    partition: int,
    between: tuple[int, int | None],
    end_stragglers: Callable[[], object],
    patience_s: float,
    ends: Sequence[int] | None = None,
    *,
    by_hand: bool = False,
    whole: bool = True,
) -> list[Token]:
    """The committed tokens in `between`, once none of them is open any more. `ends` are the answers
    to `token_ends`, where they were asked for with other things.

    Where the second offset is not known (a decision of eo-kafka 0.1 does not say how far its tokens
    reach) the high watermark takes its place, which a leader that is cut off may tell too low.

    A token of that range that is not in the answer belongs to an aborted transaction. After
    `patience_s`, and then every second, `end_stragglers` is called to end what is in the way.
    Raises OutcomeUnknown when something stays open for two minutes, and LedgerError where tokens of
    that range may be lost: their number is not known then. `by_hand`: one that was told so, and
    does not wait again. Not `whole`: of those that were deleted it is only warned.
    """
    _, topic = options.job_and_ledger
    start, until = between
    # Whichever is answered first: the LSO only grows, so nothing below it is open.
    stable, *high = ends or control.look(ends=token_ends(options, partition, until)).ends
    end = high[0] if until is None else until
    if stable < end:
        if by_hand:
            check_reaches(options, control, partition, end, wait_s=0.0)
        _wait_stable(options, control, (topic, partition, True), end, end_stragglers, patience_s)
    return tokens_between(options, partition, start, end, whole=whole)


def visible_tokens(options: Job, control: ControlPlane, partition: int, start: int) -> list[Token]:
    """The committed tokens from `start` to the last stable offset, as the broker tells it."""
    _, topic = options.job_and_ledger
    stable = control.end_offset(topic, partition, committed=True)
    return tokens_between(options, partition, start, stable)


def tokens_between(
    options: Job, partition: int, start: int, end: int, *, whole: bool = True
) -> list[Token]:
    """Those that are visible. Raises LedgerError where some may have been deleted; not `whole`, it
    warns."""
    _, topic = options.job_and_ledger

    def read(*, all_of_it: bool) -> list[Token]:
        found = read_records(options.kafka, topic, partition, start, end, whole=all_of_it)
        # a barrier has no value
        return [records.decode_token(key, value) for _, key, value in found if value is not None]

    try:
        return read(all_of_it=True)
    except RecordsDeleted as cut:
        sentence = (
            f"Partition {partition} of ledger '{topic}' begins at offset {cut.begin}, and what "
            f"stood in it from {start} on is asked for: records of it were deleted, by age (a "
            "cleanup.policy with 'delete') or by hand."
        )
        if whole:
            raise LedgerError(sentence) from None
    log.warning(
        "%s Whether tasks of the next batch had committed by themselves (commit=idempotent) is not "
        "known: if so, it writes their rows again. 'eo-kafka verify' finds them.",
        sentence,
    )
    return read(all_of_it=False)


def check_reaches(
    options: Job, control: ControlPlane, partition: int, end: int, wait_s: float = STABLE_TIMEOUT_S
) -> None:
    """Raise LedgerError if the partition ends before `end`, up to where records of it were
    acknowledged, and still does after `wait_s`: a leader that is cut off is one of several."""
    _, topic = options.job_and_ledger
    high = control.reach((topic, partition, False), end, wait_s)
    if high < end:
        raise LedgerError(
            f"Partition {partition} of ledger '{topic}' ends at offset {high}, and records up to "
            f"{end} were acknowledged: its newest ones are lost (an unclean leader election). Or "
            "its leader is cut off from the other brokers: then start again when they see each "
            "other."
        )


def _wait_stable(
    options: Job,
    control: ControlPlane,
    stable_end: End,
    offset: int,
    end_stragglers: Callable[[], object],
    patience_s: float,
) -> None:
    stragglers_at = time.monotonic() + patience_s

    def meanwhile() -> None:
        nonlocal stragglers_at
        if time.monotonic() > stragglers_at:
            end_stragglers()
            stragglers_at = time.monotonic() + 1.0

    stable = control.reach(stable_end, offset, STABLE_TIMEOUT_S, meanwhile)
    if stable < offset:
        topic, partition, _ = stable_end
        check_reaches(options, control, partition, offset, wait_s=0.0)
        raise OutcomeUnknown(
            f"Partition {partition} of ledger '{topic}' is stable up to offset {stable} only, of "
            f"{offset}, so it is unknown what is committed: a transaction stays open on it. What "
            "is decided stays so; start the query again."
        )
