"""What happened to a job besides its batches, as its ledger and its supervisor tell it. No I/O.

Nobody writes a log of faults into Kafka. But each batch takes one generation, and each attempt to
write it another; and a supervisor leaves what it said last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ...core.transaction import Decision, DecisionState
from ...state.ledger.job_topics import MAIN_SINK
from ..control import words
from ..shared.command_line import duration
from .tails import Tail
from .watchers import Watch

SLOW_COMMIT_MS = 10_000  # from a decision to DONE: somebody died between, or Kafka was away


@dataclass(frozen=True)
class Event:
    """`at_ms` since 1970, None where that is not known. `is_fault`: else a person asked for it."""

    at_ms: int | None
    text: str
    is_fault: bool = True


def events(tail: Tail | None, watch: Watch | None, count: int) -> list[Event]:
    """The newest `count`, newest first; those of unknown time last."""
    found = [*(_of_ledger(tail) if tail else ()), *(_of_supervisor(watch) if watch else ())]
    return sorted(found, key=lambda one: -(one.at_ms or 0))[:count]


def _of_ledger(tail: Tail) -> Iterator[Event]:
    mine = tail.ledger.of_sink(MAIN_SINK)
    batches = [mine[number] for number in sorted(mine)]
    for before, batch in pairwise(batches):
        if batch.batch == before.batch + 1:
            yield from _attempts(tail, before, batch)
    for batch in batches:
        yield from _of_batch(tail, batch)
    newest = batches[-1] if batches else None
    begun = tail.ledger.generation - newest.generation if newest else 0
    if newest and begun > 1:
        yield Event(
            tail.planned_ms.get(tail.ledger.generation),
            f"Batch {newest.batch + 1} has been begun {begun} times, and is not decided.",
        )


def _attempts(tail: Tail, before: Decision, batch: Decision) -> Iterator[Event]:
    begun = batch.generation - before.generation - batch.round
    if begun > 1:
        yield Event(
            tail.planned_ms.get(batch.generation),
            f"Batch {batch.batch} was begun {begun} times, in generations {before.generation + 1} "
            f"to {batch.generation}: a driver died or was stopped before it had decided, or "
            "somebody aborted its transactions.",
        )


def _of_batch(tail: Tail, batch: Decision) -> Iterator[Event]:
    at = (batch.sink, batch.batch)
    decided, done = tail.decided_ms.get(at), tail.done_ms.get(at)
    if batch.round:
        yield Event(
            decided or done,
            f"Batch {batch.batch} was decided, and Kafka aborted some of its transactions before "
            f"they were committed: it was written again (round {batch.round}).",
        )
    if batch.state is DecisionState.VOID:
        yield Event(
            tail.void_ms.get(at),
            f"Batch {batch.batch} was decided, and Kafka aborted all of its transactions: it is "
            "written anew.",
        )
    if batch.accepted:
        text = f"Batch {batch.batch} counts as written, as a person said ('eo-kafka job repair')."
        yield Event(done, text, is_fault=False)
    if decided is not None and done is not None and done - decided > SLOW_COMMIT_MS:
        took = duration((done - decided) / 1000)
        yield Event(done, f"Batch {batch.batch} was decided, and committed only {took} later.")


def _of_supervisor(watch: Watch) -> Iterator[Event]:
    wish, told = watch.control.wish, watch.control.told
    if wish is not None:
        also = f", and to export its state as '{wish.snapshot}'" if wish.snapshot else ""
        yield Event(wish.at_ms, f"{wish.by} asked to {wish.do} it{also}.", is_fault=False)
    if told is not None and told.said:
        by_wish = told.done and told.ok and wish is not None and told.wish == wish.id
        said = f"The supervisor on {told.host} said: {told.said}"
        is_fault = not by_wish or told.said.startswith(words.DRIVER_ENDED)
        yield Event(told.at_ms, said, is_fault=is_fault)
    if told is not None and (last := watch.last_phase):
        text = f"No supervisor lives. The last word of the one on {told.host}: {last}."
        yield Event(told.at_ms, text, is_fault=last != "ended")
