"""Records among the tokens, that all which stand there by then stand before.

A driver's stands in its generation's own transaction (appender.py). A task that commits by itself
reads up to its own token whether there is one of a newer driver, who will not look behind it. That
needs nobody's word for who the newest driver is: a coordinator that is cut off from the other
brokers would deny it.

A task's belongs to no transaction: one of its own would be open for as long as the task writes, and
hide from every other task what it looks for.
"""

from __future__ import annotations

from contextlib import suppress

from ...core.errors import WriteFailed
from .job import Job
from .log_reader import RecordsDeleted, read_records
from .plain_record import NotTaken, write_plain
from .records import barrier_generation, barrier_key
from .topics import TOKEN_PARTITION

# Of one ledger (its id) and start: up to where this process has read, and the newest generation
# before that. Else each task of a batch would read the tokens of all before it.
_read: dict[tuple[str, int], tuple[int, int]] = {}


def write_barrier(options: Job) -> int:
    """Write it; the offset after it. Runs on an executor, for an attempt that may not be its
    task's first. Raises WriteFailed."""
    try:
        return write_plain(options, TOKEN_PARTITION, (barrier_key(), None))
    except NotTaken as why:
        _, topic = options.job_and_ledger
        raise WriteFailed(
            f"Ledger '{topic}' took no record among the tokens, so it is unknown whether an "
            f"earlier attempt of the task committed ({why}). Nothing of this attempt is visible."
        ) from None


def newest_generation(options: Job, ledger_id: str, start: int, until: int) -> int:
    """Of the barriers in [start, until), whether their transactions have ended or not; 0 without
    one. The record that ends at `until` is the caller's own. Runs on an executor, once a task,
    before it commits. Raises WriteFailed if that record is not there, ReadTimeout."""
    _, topic = options.job_and_ledger
    position, newest = _read.get((ledger_id, start), (start, 0))
    between = min(position, until - 1), until
    reached = 0
    with suppress(RecordsDeleted):  # a newer driver's may have been among them
        for offset, key, _ in read_records(
            options.kafka, topic, TOKEN_PARTITION, *between, committed=False, whole=True
        ):
            newest = max(newest, barrier_generation(key) or 0)
            reached = offset + 1
    if reached != until:  # nothing that was not read may count as read
        raise WriteFailed(
            f"Ledger '{topic}' does not hold the record of the rows at offset {until - 1} of "
            f"partition {TOKEN_PARTITION}, which it had taken, or not what stood before it: it was "
            "deleted and made again, or records of it are lost. Nothing of this attempt is visible."
        )
    _read.clear()
    _read[ledger_id, start] = max(position, until), newest
    return newest
