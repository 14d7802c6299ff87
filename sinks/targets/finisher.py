"""S7 of rows that are staged for a target of the user's own: one step shows them, with the marker.

Runs on the driver; safe to repeat, by anybody: the step happens only on top of the marker that was
read before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ...core.crash_points import crash_point
from ...core.errors import Fenced, LedgerError, SourceError
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from ...targets.port import MarkerChanged, NotStaged
from ..insisting import insisting
from ..marker import History, Marker
from ..staged import parts_now
from ..staged_losses import check_gone_with_topic
from .custom import told
from .target import Marks, StagedCustomTarget

PAUSE_S = 0.5


class StagedTargetRows:
    """The staged rows of one decision. Its methods raise Fenced, OutcomeUnknown, LedgerError."""

    def __init__(
        self, target: StagedCustomTarget, job: Job, ledger: Ledger, decision: Decision
    ) -> None:
        self._target, self._job, self._decision = target, job, decision
        self._holder = ledger.generation
        self._history = History(ledger, job.sink, decision)
        self._marks = Marks(target, job, ledger)
        self._parts = parts_now(decision)
        self.begun = False
        self._lost: set[int] = set()

    def take(self) -> None:
        """Learn whether it is applied. Earlier drivers need to be shut out only where rows are
        lost, and others are written in their place: else they can do what this one does, once."""
        self._insisting(self._take)

    def lost(self) -> set[int]:
        """The partitions that have rows which are neither applied nor staged any more."""
        if not self.begun:
            self._insisting(self._look)
        return self._lost

    def not_applied(self) -> tuple[Participant, ...]:
        """All participants, or none: they are applied in one step."""
        return () if self.begun else tuple(self._parts)

    def in_part(self) -> set[int]:
        """None: it is one step."""
        return set()

    def apply(self, but: Collection[int]) -> None:
        """Everything, of all partitions `but` these, unless it is applied."""
        parts = [part for part in self._parts if part.partition not in but]
        passed = {part.partition for part in self._parts} - {part.partition for part in parts}
        self._insisting(lambda: self._apply(parts, passed))

    def remove(self) -> None:
        """S8: nobody needs it any more."""
        with told(self._target.place):
            self._target.made().discard([part.staged.home for part in self._parts if part.staged])

    def _insisting(self, do: Callable[[], None]) -> None:
        again = (SourceError, MarkerChanged, NotStaged)
        insisting(do, self._decision.batch, self._target.place, again, PAUSE_S)

    def _take(self) -> None:
        marker, raw = self._read()
        self.begun = marker.shows(self._decision.batch, self._parts)
        if self._lost:
            self._shut_out(marker, raw)

    def _look(self) -> None:
        self._lost = self._target.lost(self._job, self._parts)

    def _shut_out(self, marker: Marker, raw: bytes) -> None:
        """Earlier drivers: other rows come in the place of what they may still apply."""
        if marker.generation != self._holder:
            self._marks.write(raw, replace(marker, generation=self._holder))

    def _apply(self, parts: list[Participant], passed: set[int]) -> None:
        marker, raw = self._read()
        here, batch = marker.ledger, self._decision.batch
        if marker.shows(batch, self._parts):
            if passed - set(marker.passed):
                self._marks.write(raw, self._taken_back(marker, passed | set(marker.passed)))
            return
        if not parts:
            self._shut_out(marker, raw)
            return
        now = Marker.of(here, self._holder, batch, self._parts, passed)
        names = {part.staged.home: part.staged.chunks for part in parts if part.staged}
        crash_point("S7.before_target")
        self._marks.write(raw, now, names)
        crash_point("S7.in_target")

    def _read(self) -> tuple[Marker, bytes]:
        """Ours. Raises Fenced, LedgerError."""
        marker, raw = self._marks.read()
        if marker is None or raw is None:
            raise LedgerError(
                f"The marker of {self._target.place} went while a batch was written. Batch "
                f"{self._decision.batch} stays decided. Start the query again."
            )
        if marker.generation > self._holder:
            raise Fenced(
                f"Generation {marker.generation} of job '{self._job.job}' has taken over "
                f"{self._target.place} from {self._holder}. This driver stops and has changed "
                "nothing in it."
            )
        if marker.ledger != self._marks.ledger or not self._history.accepts(marker):
            raise LedgerError(
                f"{self._target.place} shows batch {marker.batch} of generation {marker.decided}, "
                f"which is not what was there before batch {self._decision.batch}: it was restored "
                "while the query ran, or another ledger's driver writes there. The batch stays "
                "decided, and nothing was written. Start the query again."
            )
        return marker, raw

    def _taken_back(self, marker: Marker, passed: set[int]) -> Marker:
        """What the target is to show when rows of an applied batch have gone with their topic
        since, and the replay writes them to both. Raises RepairNeeded."""
        check_gone_with_topic(
            self._target.place,
            self._decision.batch,
            sorted(passed - set(marker.passed)),
            repeats=True,
            fail=self._target.fail_on_loss,
        )
        if len(passed) < len(self._parts):
            batch = self._decision.batch
            return Marker.of(marker.ledger, self._holder, batch, self._parts, passed)
        return self._history.expected()
