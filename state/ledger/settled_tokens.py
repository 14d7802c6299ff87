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


def token_ends(options: Job, partition: int) -> list[End]:
    """The questions for `ControlPlane.look` whose answers `read_tokens` goes by."""
    _, topic = options.job_and_ledger
    return [(topic, partition, False), (topic, partition, True)]


def read_tokens(
    options: Job,
    control: ControlPlane,
    partition: int,
    start: int,
    end_stragglers: Callable[[], object],
    patience_s: float,
    ends: Sequence[int] | None = None,
) -> list[Token]:
    """The committed tokens of [start, high watermark), once none of them is open any more. `ends`
    are the answers to `token_ends`, where they were asked for with other things.

    A token of that range that is not in the answer belongs to an aborted transaction. After
    `patience_s`, and then every second, `end_stragglers` is called to end what is in the way.
    Raises OutcomeUnknown when something stays open for two minutes.
    """
    _, topic = options.job_and_ledger
    # Whichever is answered first: the LSO only grows, so if it is not below the high watermark
    # that was told, nothing below that is open.
    end, stable = ends or control.look(ends=token_ends(options, partition)).ends
    if stable < end:
        _wait_stable(control, topic, partition, end, end_stragglers, patience_s)
    return [
        records.decode_token(key, value)
        for _, key, value in read_records(options.kafka, topic, partition, start, end)
        if value is not None
    ]


def _wait_stable(
    control: ControlPlane,
    topic: str,
    partition: int,
    offset: int,
    end_stragglers: Callable[[], object],
    patience_s: float,
) -> None:
    started = time.monotonic()
    pause, stragglers_at = 0.002, started + patience_s
    while (stable := control.end_offset(topic, partition, committed=True)) < offset:
        now = time.monotonic()
        if now - started > STABLE_TIMEOUT_S:
            raise OutcomeUnknown(
                f"Transactions stay open on partition {partition} of ledger '{topic}' (stable to "
                f"{stable} of {offset}), so it is not known what is committed. Nothing was decided "
                "on a guess; start the query again."
            )
        if now > stragglers_at:
            end_stragglers()
            stragglers_at = now + 1.0
        time.sleep(pause)
        pause = min(0.1, pause * 2)
