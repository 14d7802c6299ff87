"""Fills the inbox from the queue: take, keep in one transaction, acknowledge.

It runs where the query is planned, in each `latestOffset`, and nowhere else: no thread, no task and
no command of its own. So one process takes messages, in the order in which the queue gives them; it
takes no more while Spark is busy; and there is nothing to start, to watch or to stop beside the
query. Whatever happens to the process, a message is in the queue until it is in the inbox:

    taken, not committed          Kafka drops the transaction, the broker delivers again
    committed, not acknowledged   the broker delivers again, and it is dropped: it is remembered
    acknowledged                  it is in the inbox, which Spark reads as often as it likes
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...core.crash_points import crash_point
from ...core.errors import ReadTimeout
from ...core.patience import patience_s, served
from .backend import Backend, Memory
from .id_window import IdWindows
from .inbox import Inbox
from .message import Message, Record, kind_of_id
from .offset_memory import OffsetMemory
from .options import QueueOptions
from .rabbitmq import RabbitMQQueue
from .share_group import ShareGroupQueue
from .unkept import size_of, stopped

log = logging.getLogger(__name__)

PORTION_BYTES = 32 << 20  # of one transaction, which must end in time
MOST_PROBLEMS = 10  # each takes a second to be found, and nobody sends heartbeats meanwhile
_PAUSE_S = 0.5
_PLAN_S = 1.0  # after the last of those that waited a batch is planned, though more keep coming


@dataclass
class _Counts:
    """Of one call, for the log."""

    repeats: int = 0
    poison: int = 0
    uncertain: int = 0
    taken: int = 0


class Receiver:
    """Of one query; what is open is its process's. Raises EnvironmentRefused, ReadTimeout,
    OutcomeUnknown, Fenced, SourceError."""

    def __init__(self, options: QueueOptions) -> None:
        self._options = options
        self._queue: Backend | None = None
        self._inbox: Inbox | None = None
        self._has_looked = False

    def open(self) -> None:
        """Take the inbox, if this process does not have it: from here on no other driver fills it.
        Before the queue is touched: each delivery counts."""
        if self._inbox is None:
            self.close()
            self._queue, memory = _chosen(self._options)
            self._inbox = Inbox(self._options, memory)

    def close(self) -> None:
        """Leave the queue; what is not acknowledged goes back into it."""
        if self._queue is not None:
            self._queue.drop()

    def receive(self, *, all_there: bool = False) -> int:
        """Move messages into the inbox: those that wait now and those of about a second more, up to
        `maxMessagesPerTrigger`; or all that wait now. How many were taken. A RabbitMQ, or Kafka,
        that is away is waited for. Driver, once a batch or trigger."""
        counts, told, taken = _Counts(), "", 0
        place = self._options.place
        deadline: float | None = None  # of what fails; what goes on may take its time
        while True:
            try:
                total = self._received(all_there, counts)
                served(place)
                return total
            except ReadTimeout as error:  # of either: who has the inbox keeps it, unless it is lost
                self.close()
                if self._inbox is not None and self._inbox.is_lost:
                    self._inbox = None
                now = time.monotonic()
                if counts.taken > taken:
                    taken, deadline = counts.taken, None
                    served(place)
                deadline = deadline or now + (self._options.patience_s or patience_s(place))
                if now > deadline:
                    raise
                if told != str(error):  # an outage says the same again and again
                    log.warning("%s Trying again.", error)
                    told = str(error)
                time.sleep(_PAUSE_S)
            except BaseException:
                self.close()
                self._inbox = None  # what is there must be read anew
                raise
            finally:
                self._tell(counts)

    def _received(self, all_there: bool, counts: _Counts) -> int:
        self.open()
        assert self._queue is not None and self._inbox is not None
        total, most = 0, sys.maxsize if all_there else self._options.max_messages
        until = math.inf
        while total < most:
            ready, consumers = self._queue.ready(is_first=not total)
            if not self._has_looked:
                self._warn_of_others(consumers)
            if most == sys.maxsize and (ready or total):
                most = total + ready
            if total and (total >= most or not (ready or all_there)):
                break  # else nobody may look again, and that none wait only `take` can tell
            count = min(self._options.prefetch, max(1, ready), most - total)
            self._inbox.try_out()
            taken = self._queue.take(count)
            if not taken:
                break
            crash_point("queue.received")
            self._keep(taken, counts)
            total += len(taken)
            counts.taken += len(taken)
            if not all_there and (until == math.inf or self._queue.waited(taken)):
                until = time.monotonic() + _PLAN_S
            elif time.monotonic() >= until:
                break
        if total:
            self._queue.rest()
        if all_there:  # it is not called again
            self.close()
        return total

    def _keep(self, taken: Sequence[Message], counts: _Counts) -> None:
        """Keep and acknowledge all that can be. What cannot stops the query, and holds nothing
        back: what a start that fails has in its hands counts as delivered."""
        nameless = [one for one in taken if self._stops(one)]
        refused: list[Message] = []
        for portion in _portions([one for one in taken if not self._stops(one)]):
            if not self._is_kept(portion, counts):
                refused += portion
        refused.sort(key=size_of)
        poison = [one for one in refused if self._reason(one)]
        held: list[Message] = []
        to_cut: list[Message] = []
        self._keep_by_halves(poison, counts, to_cut, 1, False)
        self._keep_by_halves(to_cut, counts, held, MOST_PROBLEMS, True)
        others = [one for one in refused if not self._reason(one)]
        self._keep_by_halves(others, counts, held, MOST_PROBLEMS, False)
        if len(nameless) + len(held) < len(taken):
            crash_point("queue.after_acknowledgement")
        if nameless or held:
            is_last = any(self._reason(one) for one in held)
            raise stopped(self._options, nameless, held, is_last=is_last)

    def _stops(self, one: Message) -> bool:
        """Whether it has no id, and may still be delivered again."""
        before = one.deliveries or 0
        return (
            one.id is None
            and self._options.fails_without_id
            and before < self._options.max_deliveries
        )

    def _keep_by_halves(
        self, taken: Sequence[Message], counts: _Counts, held: list[Message], most: int, cut: bool
    ) -> None:
        """The smallest come first. To `held` go those that are too large, which Kafka does not tell
        apart; after so many, untried, all that are no smaller."""
        for portion in _portions(taken):
            if len(held) >= most:
                held += portion
            elif self._is_kept(portion, counts, cut):
                continue
            elif len(portion) == 1:
                held += portion
            else:
                half = len(portion) // 2
                for some in (portion[:half], portion[half:]):
                    self._keep_by_halves(some, counts, held, most, cut)

    def _is_kept(self, taken: Sequence[Message], counts: _Counts, cut: bool = False) -> bool:
        """Whether they are acknowledged now; not, where one of them is too large."""
        assert self._queue is not None
        if not self._kept(taken, counts, cut):
            return False
        crash_point("queue.after_commit")
        self._queue.acknowledge(taken)
        return True

    def _kept(self, taken: Sequence[Message], counts: _Counts, cut: bool) -> bool:
        """Whether all of them are in the inbox or the poison topic now, there in parts with
        `cut`."""
        assert self._inbox is not None
        memory = self._inbox.memory
        kept: list[Record] = []
        poison: list[Record] = []
        mine: set[tuple[bytes | None, bool]] = set()  # ids, and whether they are poison
        repeats = uncertain = poisoned = 0
        for one in taken:
            reason = self._reason(one)
            is_poison = reason is not None
            known = (one.id, False) in mine or (is_poison and (one.id, True) in mine)
            if one.id is not None and (known or memory.has(one, is_poison=is_poison)):
                repeats += 1
                continue
            if reason is None:
                kept.append(one.record())
                uncertain += one.said["redelivered"] and not memory.remembers_all
            else:
                poison += one.parts(reason) if cut else [one.record(reason)]
                poisoned += 1
            mine.add((one.id, is_poison))
        if (kept or poison) and not self._inbox.append(kept, poison):
            return False
        counts.repeats += repeats
        counts.poison += poisoned
        counts.uncertain += uncertain
        return True

    def _reason(self, one: Message) -> str | None:
        """Why a message is poison."""
        before, most = one.deliveries, self._options.max_deliveries
        if before is not None and before >= most:
            return f"it was delivered {before} times before; maxDeliveries is {most}"
        if one.id is None:
            return f"it has no id in {self._options.message_id}"
        assert self._inbox is not None
        return self._inbox.memory.doubt(one)

    def _tell(self, counts: _Counts) -> None:
        queue, window = self._options.queue, self._options.window
        if counts.repeats:
            log.warning(
                "%d messages of queue '%s' came again and are in '%s' or '%s' already: dropped.",
                *(counts.repeats, queue, self._options.inbox, self._options.poison_topic),
            )
        if counts.poison:
            log.warning(
                "%d messages of queue '%s' went to the poison topic '%s', which says why.",
                *(counts.poison, queue, self._options.poison_topic),
            )
        if counts.uncertain:
            log.warning(
                "%d messages of queue '%s' were delivered before and are not among the last %d ids:"
                " taken as new. That is right if whoever had them died before it kept them, and a "
                "repeat if more than %d others were kept since: then raise 'dedupWindow'.",
                *(counts.uncertain, queue, window, window),
            )
        counts.repeats = counts.poison = counts.uncertain = 0

    def _warn_of_others(self, consumers: int) -> None:
        """Before the first message is taken. Later, and for a moment after one that died, a quorum
        queue counts consumers that have left."""
        assert self._queue is not None
        self._has_looked = True
        if consumers:
            time.sleep(_PAUSE_S)
            _, consumers = self._queue.ready()
        if consumers:
            log.warning(
                "Queue '%s' has %d other consumers now. Each message goes to one of them, and those"
                " that go to another do not come to this query; one that is delivered again may "
                "come to both.",
                self._options.queue,
                consumers,
            )


def _chosen(options: QueueOptions) -> tuple[Backend, Memory]:
    """The only place that knows which backends there are."""
    both = (options.inbox, options.poison_topic)
    if options.amqp is not None:
        name = f"eo-kafka {options.inbox}"
        queue = RabbitMQQueue(
            options.amqp, options.queue, name, options.message_id, options.max_deliveries
        )
        kind = kind_of_id(options.queue, options.message_id)
        return queue, IdWindows(both, options.window, kind)
    memory = OffsetMemory(options.kept_topic, options.inbox)
    return ShareGroupQueue(options, memory), memory


def _portions(taken: Sequence[Message]) -> Iterator[Sequence[Message]]:
    begin = size = 0
    for at, one in enumerate(taken):
        size += size_of(one)
        if size >= PORTION_BYTES:
            yield taken[begin : at + 1]
            begin, size = at + 1, 0
    if begin < len(taken):
        yield taken[begin:]
