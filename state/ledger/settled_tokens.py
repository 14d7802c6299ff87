"""Reads tokens once it is settled which of them count.

A token whose transaction is open is neither visible nor gone, and it hides those behind it: a
`read_committed` reader gets no further than the last stable offset (LSO).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.control_requests import End
from ...core.errors import OutcomeUnknown
from ...core.transaction import Token
from . import records
from .job import Job
from .log_reader import read_records

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
) -> list[Token]:
    """The committed tokens in `between`, once none of them is open any more. `ends` are the answers
    to `token_ends`, where they were asked for with other things.

    Where the second offset is not known (a decision of eo-kafka 0.1 does not say how far its tokens
    reach) the high watermark takes its place, which a leader that is cut off may tell too low.

    A token of that range that is not in the answer belongs to an aborted transaction. After
    `patience_s`, and then every second, `end_stragglers` is called to end what is in the way.
    Raises OutcomeUnknown when something stays open for two minutes.
    """
    _, topic = options.job_and_ledger
    start, until = between
    # Whichever is answered first: the LSO only grows, so nothing below it is open.
    stable, *high = ends or control.look(ends=token_ends(options, partition, until)).ends
    end = high[0] if until is None else until
    if stable < end:
        _wait_stable(control, (topic, partition, True), end, end_stragglers, patience_s)
    return _tokens(options, partition, start, end)


def visible_tokens(options: Job, control: ControlPlane, partition: int, start: int) -> list[Token]:
    """The committed tokens from `start` to the last stable offset, as the broker tells it."""
    _, topic = options.job_and_ledger
    return _tokens(options, partition, start, control.end_offset(topic, partition, committed=True))


def _tokens(options: Job, partition: int, start: int, end: int) -> list[Token]:
    _, topic = options.job_and_ledger
    return [
        records.decode_token(key, value)
        for _, key, value in read_records(options.kafka, topic, partition, start, end)
        if value is not None  # a barrier
    ]


def _wait_stable(
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
        raise OutcomeUnknown(
            f"Partition {partition} of ledger '{topic}' is stable up to offset {stable} only, of "
            f"{offset}, so it is unknown what is committed. A transaction stays open on it, or "
            "its leader is cut off from the other brokers, or its newest records are lost (an "
            "unclean leader election). What is decided stays so; start the query again."
        )
