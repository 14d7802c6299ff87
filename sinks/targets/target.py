"""A target of the user's own as the protocol knows it (sinks/staged.py). Driver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ...core.errors import LedgerError, OutcomeUnknown, Undecided, cut
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from ...targets.port import MarkerChanged, Target
from .. import staged_losses
from ..marker import History, Marker
from .custom import CustomTarget, generation_in, told, writer_of

if TYPE_CHECKING:
    from ..options import SinkOptions
    from .finisher import StagedTargetRows

_WAYS = "it was restored from an older copy, or is another one, or somebody removed its marker"


@dataclass(frozen=True)
class StagedCustomTarget(CustomTarget):
    """`StagedTarget` says what is asked."""

    @property
    def name(self) -> str:
        return self.place

    @property
    def counts_twice(self) -> bool:
        return True

    @property
    def how_lost(self) -> str:
        return "(they are not staged there any more)"

    def check_same(self, job: SinkOptions, ledger: Ledger, *, fenced: bool) -> None:
        if not fenced:  # what was read may be older than what the target shows
            with told(self.place):
                self.made().marker(writer_of(*_whose(job)))
            return
        marks = Marks(self, job, ledger)
        history, (marker, raw) = History(ledger, job.sink), marks.read()
        if marker is not None and marker.ledger == ledger.topic_id:
            if history.accepts(marker):
                return
        elif marker is None and history.newest is None:
            marks.begin(raw, history.expected())
            return
        # Another ledger's: the same one under another id, a copy; or this one begins anew
        is_copy = marker is not None and bool(marker.digest) and history.accepts(marker)
        begins = marker is not None and marker.ledger != ledger.topic_id and history.newest is None
        if begins and not is_copy:
            staged_losses.check_begins(self.place, job, ledger, marker, fail=self.fail_on_loss)
        elif not is_copy:
            staged_losses.check_restored(
                self.place,
                _whose(job)[0],
                marker,
                history,
                ways=_WAYS,
                fail=self.fail_on_loss,
            )
        taken = marker if is_copy and marker is not None else history.expected()
        mine = {**asdict(taken), "ledger": ledger.topic_id, "generation": ledger.generation}
        marks.begin(raw, Marker(**mine))

    def is_same(self, place: str, sink: str, ledger: str | None) -> bool:
        return False  # decisions name it as staged rows do

    def catch_up(self, job: Job, ledger: Ledger) -> None:
        """Nothing: what is settled and not there stops the query."""

    def make_room(self, job: Job, ledger: Ledger, generation: int) -> None:
        kept = {
            part.staged.home
            for decision in ledger.unfinished()
            for part in decision.participants
            if part.staged
        }
        writer = writer_of(*_whose(job))
        with told(self.place):
            left = []
            for name in self.made().staged(writer):
                whose = generation_in(name, writer, ledger.topic_id)
                mine = name.startswith(f"{writer}-")  # whatever else the target may answer
                if mine and name not in kept and (whose is None or whose <= generation):
                    left.append(name)
            if left:
                self.made().discard(left)

    def check_staged(
        self, job: Job, ledger: Ledger, batch: int, prepared: Sequence[Participant]
    ) -> None:
        if lost := self.lost(job, prepared):
            raise Undecided(
                f"Batch {batch} is not decided: rows of partitions {sorted(lost)} that were staged "
                f"for {self.place} are not there any more. Nothing is visible; the batch will be "
                "run again from the same offsets."
            )

    def lost(self, job: Job, parts: Sequence[Participant]) -> set[int]:
        """The partitions whose staged rows are not there."""
        with told(self.place):
            there = dict(self.made().staged(writer_of(*_whose(job))))
        return {
            part.partition
            for part in parts
            if part.staged and there.get(part.staged.home) != part.staged.chunks
        }

    def discard(self, job: Job, ledger: Ledger, batch: int, left: Sequence[Participant]) -> None:
        with told(self.place):
            self.made().discard([part.staged.home for part in left if part.staged])

    def check_unequal(self, decision: Decision, unequal: Sequence[Participant]) -> None:
        staged_losses.check_unequal(self.place, decision, unequal, fail=self.fail_on_loss)

    def rows_of(self, job: Job, ledger: Ledger, decision: Decision) -> StagedTargetRows:
        from .finisher import StagedTargetRows

        return StagedTargetRows(self, job, ledger, decision)


def _whose(job: Job) -> tuple[str, str]:
    return job.job_and_ledger[0], job.sink


class Marks:
    """The marker of one job in a target. Its methods raise SourceError, LedgerError."""

    def __init__(self, target: CustomTarget, job: Job, ledger: Ledger) -> None:
        if not ledger.topic_id:
            raise OutcomeUnknown(
                f"Kafka did not say the id of the ledger's topic, by which {target.place} knows "
                "it. Start the query again. A Kafka whose inter.broker.protocol.version is below "
                "2.8 has none: raise it first."
            )
        self._target, self.ledger = target, ledger.topic_id
        self.writer = writer_of(*_whose(job))

    @property
    def made(self) -> Target:
        return self._target.made()

    def read(self) -> tuple[Marker | None, bytes | None]:
        """The marker, and as the target has it."""
        with told(self._target.place):
            raw = self.made.marker(self.writer)
        if raw is None:
            return None, None
        try:
            return Marker(**json.loads(raw.decode())), raw
        except (ValueError, TypeError, AttributeError):  # the last of text, which is no bytes
            raise LedgerError(
                f"The marker of {self._target.place} is not what eo-kafka wrote: {cut(raw, 200)}. "
                "Nothing was written. Another program writes there under the same name, or the "
                "target mixes up its writers."
            ) from None

    def begin(self, before: bytes | None, after: Marker) -> None:
        """S1. Raises OutcomeUnknown if another driver did so at the same moment."""
        try:
            self.write(before, after)
        except MarkerChanged:
            raise OutcomeUnknown(
                f"Another driver changed the marker of {self._target.place} at the same moment. "
                "Nothing was written. Start the query again if it is not meant to be that one's."
            ) from None

    def write(
        self, before: bytes | None, after: Marker, names: dict[str, int] | None = None
    ) -> None:
        """Raises MarkerChanged, NotStaged."""
        with told(self._target.place):
            self.made.apply(self.writer, names or {}, before, encoded(after))


def encoded(marker: Marker) -> bytes:
    """As a target keeps it."""
    return json.dumps(asdict(marker), separators=(",", ":")).encode()
