"""Orders from the job's control topic, for the supervisor that holds the job's seat."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone

from ...core.errors import EoKafkaError
from ..control import words
from ..control.seat import Seat
from ..control.words import Do, Stands, Told, Wish
from ..snapshots.last import check_exportable, export_last
from .guard import LEASE_S, STOP_S
from .orders import Order, Orders

_ORDERS = {
    Do.SUSPEND: Order.SUSPEND,
    Do.RESUME: Order.GO,
    Do.RESTART: Order.RESTART,
    Do.CANCEL: Order.CANCEL,
}
_HOLDS = {
    Stands.RUN: Order.GO,
    Stands.SUSPENDED: Order.SUSPEND,
    Stands.CANCELLED: Order.CANCEL,
}

# After it, no driver lives of a supervisor that has lost the job, frozen machines left aside.
DRIVER_GONE_S = LEASE_S + STOP_S
_NONE_LIVES = ("suspended", "cancelled", "ended")  # phases of a supervisor without a driver

log = logging.getLogger(__name__)


class ControlledOrders(Orders):
    """`options`: the sink's, as far as an export needs them."""

    elected = True

    def __init__(self, seat: Seat, options: Mapping[str, str]) -> None:
        self._seat = seat
        self._options = options
        self._before = Stands.RUN  # what held before the newest wish
        self._alone_s: float | None = None  # from then on no other's driver lives; None: no seat

    @property
    def pending(self) -> bool:
        """Whether the newest wish is not answered."""
        wish = self._seat.wish
        return self._seat.holds and wish is not None and not self._is_done(wish)

    def look(self) -> Order:
        """By the newest wish and what was answered."""
        self._seat.look()
        if not self._seat.holds:
            self._alone_s = None
            return Order.STAND_BY
        if self._alone_s is None:
            told = self._seat.told  # by who had the job before
            wait_s = 0.0 if told is None or told.phase in _NONE_LIVES else DRIVER_GONE_S
            self._alone_s = time.monotonic() + wait_s
        wish = self._seat.wish
        if wish is None or self._is_done(wish):
            self._before = words.stands(wish, self._seat.told)
            return _HOLDS[self._before]
        order = _ORDERS[Do(wish.do)]
        # A driver may be started beside another one: the ledger sees to that. What a driver writes
        # after "suspended" was told, or after the export, is in no answer.
        is_last_word = order in (Order.SUSPEND, Order.CANCEL) or wish.snapshot
        return Order.WAIT if is_last_word and time.monotonic() < self._alone_s else order

    def check_start(self) -> None:
        """A driver that runs goes on beside what this version does not understand."""
        self._seat.check_understood()

    def _is_done(self, wish: Wish) -> bool:
        told = self._seat.told
        return told is not None and told.wish == wish.id and told.done

    def why(self) -> str:
        """Who asked for what holds, and when."""
        wish = self._seat.wish
        if wish is None:
            return "who asked for it is not known any more"
        at = datetime.fromtimestamp(wish.at_ms / 1000, timezone.utc)
        return f"{wish.by}, {at:%Y-%m-%d %H:%M:%S} UTC"

    def may_obey(self) -> bool:
        """Whether there is a snapshot to export, if that is wished."""
        wish = self._seat.wish
        if wish is None or not self.pending or not wish.snapshot:
            return True
        from confluent_kafka import KafkaException

        try:
            check_exportable(self._seat.job, wish.snapshot, self._options)
        except (EoKafkaError, KafkaException) as error:
            why = _sentence(error)
            log.error("'%s' is refused: %s", wish.do, why)
            self._answer("running", f"Refused, and the job goes on. {why}", self._before, False)
            return False
        return True

    def phase(self, phase: str, said: str = "") -> None:
        """Also to who waits for an answer. What was said last stands until there is more to say."""
        if not self._seat.holds:
            return
        if phase == "ended" and time.monotonic() < (self._alone_s or 0.0):
            phase = "waiting"  # so the next one waits, too
        wish, told = self._seat.wish, self._seat.told
        if wish is None or self._is_done(wish):
            before = told or Told(phase)
            self._tell(replace(before, phase=phase, said=said or before.said))
        else:
            self._tell(Told(phase, self._before.value, wish.id, said=said or phase))

    def obeyed(self, phase: str, said: str) -> None:
        """Nothing if nobody waits."""
        from confluent_kafka import KafkaException

        wish = self._seat.wish
        if wish is None or not self.pending:
            self.phase(phase)
            return
        done = True
        if wish.snapshot:
            self.phase("exporting", f"exporting '{wish.snapshot}'")
            try:
                made = export_last(self._seat.job, wish.snapshot, self._options)
                said += f" Its last state, of batch {made.snapshot.batch}, is exported as "
                said += f"'{wish.snapshot}'."
            except (EoKafkaError, KafkaException) as error:
                why = _sentence(error)
                done, said = False, f"{said} {why}"
                log.error("Snapshot '%s' was not exported: %s", wish.snapshot, why)
        self._answer(phase, said, wish.outcome, done)

    def _answer(self, phase: str, said: str, holds: Stands, done: bool) -> None:
        wish = self._seat.wish
        assert wish is not None
        self._before = holds
        self._tell(Told(phase, holds.value, wish.id, done=True, ok=done, said=said))

    def _tell(self, told: Told) -> None:
        self._seat.tell(
            replace(
                told,
                said=words.printable(told.said),
                host=self._seat.host,
                pid=self._seat.pid,
                at_ms=words.now_ms(),
            )
        )

    def close(self) -> None:
        """Another one takes over."""
        self._seat.close()


def _sentence(error: Exception) -> str:
    if isinstance(error, EoKafkaError):
        return str(error)
    return (
        f"Kafka did not answer ({error.args[0].str()}), so nothing is known to be exported. Look "
        "at 'eo-kafka snapshots list', and export again when it answers."
    )
