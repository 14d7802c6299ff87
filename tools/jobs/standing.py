"""What can be known of a job from Kafka, and what not. No I/O.

Kafka does not tell whether a driver lives that has nothing to do: a job is quiet then, whether it
waits for input or was ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ...core.offsets import Offsets, TopicPartition
from ...core.transaction import Decision, DecisionState, Described
from ...state.ledger.job_topics import MAIN_SINK
from ...state.ledger.ledger import Ledger
from ...state.ledger.record_fields import VERSION
from ...state.snapshots.batch_ends import is_of_nothing, position_of
from ..transactions.verdict import OPEN_STATES
from .tails import Tail
from .watchers import Watch


class State(Enum):
    """Of a job, by its ledger and its transactions."""

    UNREADABLE = "unreadable"
    NO_LEDGER = "no ledger"  # transactions are open, and no ledger of theirs is seen
    NEW = "new"  # no batch yet
    OPEN = "open"  # transactions are open: a driver writes, or died while it did
    DECIDED = "decided"  # and not known to be committed: a driver commits, or died before
    VOID = "void"  # Kafka aborted all of the newest batch: it is to be written anew
    QUIET = "quiet"  # a driver waits for input, or none runs
    UNKNOWN = "unknown"  # any of the others, as its transactional ids may not be seen


@dataclass(frozen=True)
class Lag:
    """How far the newest batch's end is from the ends of its input, in offsets, which count
    transactions' markers, too. `behind` None: not known, and `why` says the reason. `at_least`: the
    input has partitions that no batch has read. `gone`: a sentence about offsets among them that
    Kafka has deleted."""

    behind: int | None = None
    why: str = ""
    at_least: bool = False
    gone: str = ""


@dataclass(frozen=True)
class Standing:
    """A job. Times are in ms since 1970. `written_ms`: of the newest batch that is done, which may
    be older than `newest`. `left_ms`: until the first of its open transactions times
    out. `open_count` None: not known, and `problem` says why."""

    job: str
    topic: str
    state: State
    problem: str = ""
    tail: Tail | None = None
    newest: Decision | None = None
    written_ms: int | None = None
    lag: Lag = Lag()
    open_count: int | None = 0
    oldest_ms: int | None = None
    left_ms: int | None = None
    exports: tuple[str, ...] = ()
    format: int | None = None
    watch: Watch | None = None  # of its supervisors, if it has a control topic

    @property
    def snapshot_known(self) -> bool:
        """Whether enough of the ledger was read to say that there is a snapshot, or none."""
        return self.tail is not None and (self.tail.whole or self.tail.ledger.snapshot is not None)


def newest_of(ledger: Ledger) -> Decision | None:
    """The newest batch of the job's own sink."""
    return max(ledger.of_sink(MAIN_SINK).values(), key=lambda one: one.batch, default=None)


def _written_ms(tail: Tail) -> int | None:
    """When the newest batch that is done was."""
    mine = tail.ledger.of_sink(MAIN_SINK).values()
    done = (one.batch for one in mine if one.state is DecisionState.DONE)
    return tail.done_ms.get((MAIN_SINK, max(done, default=-1)))


def standing(
    job: str,
    tail: Tail,
    transactions: Sequence[Described],
    lag: Lag,
    exports: Sequence[str],
    now_ms: int,
    hidden: str = "",
) -> Standing:
    """What is known of a job whose ledger's newest records are `tail`. `hidden`: a sentence, if
    there may be other transactions than these, which this principal does not see."""
    opened = [one for one in transactions if one.state in OPEN_STATES]
    starts = [one.start_ms for one in opened if one.start_ms > 0]
    left = [one.remaining_ms(now_ms) for one in opened if one.start_ms > 0]
    bare = Standing(
        job,
        tail.topic,
        State.UNREADABLE,
        tail.problem or hidden,
        open_count=len(opened) or (None if hidden else 0),
        oldest_ms=min(starts, default=None),
        left_ms=min(left, default=None),
        exports=tuple(exports),
    )
    if tail.problem:
        return bare
    ledger, newest = tail.ledger, newest_of(tail.ledger)
    if ledger.unfinished() or not tail.settled:
        state = State.DECIDED
    elif opened:
        state = State.OPEN
    elif newest and newest.state is DecisionState.VOID:
        state = State.VOID
    elif hidden:
        state = State.UNKNOWN
    else:
        state = State.QUIET if newest or not tail.whole else State.NEW
    return replace(
        bare,
        state=state,
        tail=tail,
        newest=newest,
        written_ms=_written_ms(tail),
        lag=lag,
        format=VERSION if tail.newest_ms is not None else None,
    )


def read_offsets(ledger: Ledger) -> dict[TopicPartition, int] | str:
    """Where the newest batch ended in its sources, or a sentence why that is not known."""
    mine = ledger.of_sink(MAIN_SINK).values()
    counts = [one for one in mine if one.state is not DecisionState.VOID]
    newest = max(counts, key=lambda one: one.batch, default=None)
    if newest is None:
        return "no batch is known"
    if not newest.offsets:
        return "the ledger does not say where the batch ended"
    found: dict[TopicPartition, int] = {}
    for line in newest.offsets:
        if is_of_nothing(line):
            continue
        try:
            found.update(position_of(line))
        except ValueError:
            return "a source is not Kafka"
    there = {topic for topic, _ in newest.source_ids}
    if elsewhere := sorted({at.topic for at in found} - there):
        return f"topic '{elsewhere[0]}' is of another cluster, or the ledger does not say"
    return found


def lag_of(
    read: dict[TopicPartition, int] | str,
    recorded_ids: Mapping[str, str],
    ids: Mapping[str, str],
    begins: Mapping[TopicPartition, int | str],
    ends: Mapping[TopicPartition, int | str],
    partitions: Mapping[str, Collection[int]],
) -> Lag:
    """`recorded_ids` are those of the topics when the batch was written, `ids` today's."""
    if isinstance(read, str):
        return Lag(why=read)
    for topic in sorted({at.topic for at in read}):
        if ids.get(topic) != recorded_ids.get(topic):
            return Lag(why=f"topic '{topic}' is gone, was made again, or may not be described")
    behind, gone = 0, ""
    for at, offset in sorted(read.items()):
        end = ends.get(at, f"the end of {at} is not known")
        if isinstance(end, str):
            return Lag(why=end.rstrip("."))
        behind += max(0, end - offset)
        begin = begins.get(at, 0)
        if isinstance(begin, int) and begin > offset and not gone:
            gone = (
                f"Offsets {offset:,} to {begin - 1:,} of {at} are deleted, and no batch has read "
                "them: retention was faster, or somebody deleted them. The next batch stops with "
                "DataLossError, unless failOnDataLoss is false."
            )
    known: Offsets = read
    more = any(
        TopicPartition(topic, number) not in known
        for topic in {at.topic for at in read}
        for number in partitions.get(topic, ())
    )
    return Lag(behind, at_least=more, gone=gone)
