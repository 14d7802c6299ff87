"""A map as the protocol knows it: a target whose rows are staged (sinks/staged.py). Driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import cut
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from . import recovery
from .staging import MapTarget

if TYPE_CHECKING:
    from .finisher import StagedMapRows


@dataclass(frozen=True)
class StagedMap(MapTarget):
    """Hands each question on; `StagedTarget` says what they mean."""

    @property
    def name(self) -> str:
        return f"map '{cut(self.map)}'"

    @property
    def counts_twice(self) -> bool:
        return self.merge is not None

    def check_same(self, job: Job, ledger: Ledger) -> None:
        recovery.check_same_map(self, job, ledger)

    def remove_left(self, job: Job, ledger: Ledger, generation: int) -> None:
        recovery.remove_left(self, job, ledger, generation)

    def check_staged(self, job: Job, batch: int, prepared: Sequence[Participant]) -> None:
        recovery.check_staged(self, job, batch, prepared)

    def discard(
        self, job: Job, ledger: Ledger, batch: int, prepared: Sequence[Participant]
    ) -> None:
        recovery.discard(self, job, ledger, batch, prepared)

    def check_unequal(self, decision: Decision, unequal: Sequence[Participant]) -> None:
        recovery.check_unequal_is_accepted(self, decision, unequal)

    def rows_of(self, job: Job, decision: Decision, holder: int) -> StagedMapRows:
        from .finisher import StagedMapRows

        return StagedMapRows(self, job.job_and_ledger[0], decision, holder)
