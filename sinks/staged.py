"""What the protocol asks of a target whose rows wait for the decision: a map, a table.

A target is pickled to the tasks, with the sink's options; its repr shows no secrets. All of this is
called on the driver.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from ..core.transaction import Decision, Participant
from ..state.ledger.job import Job
from ..state.ledger.ledger import Ledger

if TYPE_CHECKING:
    from .options import SinkOptions


def parts_now(decision: Decision) -> list[Participant]:
    """Those with staged rows in its round: what earlier rounds wrote is known to be applied."""
    return [part for part in decision.participants if part.staged and part.round == decision.round]


class StagedRows(Protocol):
    """The staged rows of one decision. Its methods raise Fenced, OutcomeUnknown, LedgerError."""

    def take(self) -> None:
        """Shut out every earlier driver, and learn what is applied."""

    @property
    def begun(self) -> bool:
        """Whether some of it is applied."""

    def lost(self) -> set[int]:
        """The partitions that have rows which are neither applied nor staged any more."""

    def not_applied(self) -> tuple[Participant, ...]:
        """The participants that have rows which are not applied. A target that applies them one by
        one may apply here what it still has."""

    def in_part(self) -> set[int]:
        """The partitions of which some rows are applied and some are not."""

    def apply(self, but: Collection[int]) -> None:
        """Everything that is not applied, of all partitions `but` these."""

    def remove(self) -> None:
        """S8: nobody needs it any more."""


class StagedTarget(Protocol):
    """Where rows go once they are decided."""

    @property
    def name(self) -> str:
        """What it is, in words; each decision records it."""

    @property
    def fail_on_loss(self) -> bool:
        """Whether the query stops where rows are lost for good."""

    @property
    def counts_twice(self) -> bool:
        """Whether a row that is applied twice is another result than one that is applied once."""

    @property
    def how_lost(self) -> str:
        """How staged rows are lost, if they are: the end of a sentence."""

    def check_same(self, job: SinkOptions, ledger: Ledger, *, fenced: bool) -> None:
        """S1, before anything is rolled forward: raise LedgerError if what the job's batches went
        into is gone, or shows what the ledger does not know; OptionsError if it cannot take the
        rows; EnvironmentRefused if what it remembers would not stay. Not `fenced`, the ledger may
        have been read before the newest batch."""

    def is_same(self, place: str, sink: str, ledger: str | None) -> bool:
        """Whether rows that were staged for `place` go into it, whatever the options call it. With
        `ledger`, a ledger's id: whether they went into this very one, by the marker of that."""

    def catch_up(self, job: Job, ledger: Ledger) -> None:
        """S1, with a generation of one's own, before anything is rolled forward: put in what is
        settled, waits and is not there, as of a replica that lags behind. Raises as check_same."""

    def make_room(self, job: Job, ledger: Ledger, generation: int) -> None:
        """S1, after everything is rolled forward: remove what generations before `generation`
        staged and nothing decided, and make ready what this one's tasks stage in."""

    def check_staged(
        self, job: Job, ledger: Ledger, batch: int, prepared: Sequence[Participant]
    ) -> None:
        """S6: raise Undecided unless all that the tasks staged for `batch` is there."""

    def discard(self, job: Job, ledger: Ledger, batch: int, left: Sequence[Participant]) -> None:
        """Remove what these have staged for a batch that their generation never decides."""

    def check_unequal(self, decision: Decision, unequal: Sequence[Participant]) -> None:
        """S6 of a replay that writes what is missing of a batch, with other rows: raise
        RepairNeeded, unless losses are accepted."""

    def rows_of(self, job: Job, ledger: Ledger, decision: Decision) -> StagedRows:
        """S7: what is staged of a decision. The ledger, read under a fence, may lack it yet; its
        newest generation is that of the driver that asks."""
