"""What a table, or another target, shows: kept beside its rows, and changed with them at once.

It names the ledger's topic by its id: where a ledger was deleted and made again, generations and
batches begin again, and numbers alone would take a new decision for an applied one. What it says of
the decision is compared with the ledger before anything is applied, so that a target that was
restored from an older copy is found. Free of I/O.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ..core.transaction import Decision, DecisionState, Participant
from ..state.ledger.ledger import DECISIONS_KEPT, Ledger


@dataclass(frozen=True)
class Marker:
    """What a target shows: of batch `batch` in round `round` what the decision of generation
    `decided` names, but for the partitions in `passed`. Drivers of a generation before `generation`
    are shut out."""

    ledger: str
    generation: int = 0
    batch: int | None = None
    round: int | None = None
    decided: int | None = None
    digest: str | None = None
    passed: Sequence[int] = ()

    @classmethod
    def of(
        cls,
        ledger: str,
        generation: int,
        batch: int,
        parts: Sequence[Participant],
        passed: Collection[int] = (),
    ) -> Marker:
        """After `parts` of a batch, but those in `passed`."""
        first = parts[0]
        digest = _digest(parts, passed)
        whose = (batch, first.round, first.generation)
        return cls(ledger, generation, *whose, digest, sorted(passed))

    def shows(self, batch: int, parts: Sequence[Participant]) -> bool:
        """Whether these are the newest of the target."""
        if not parts:
            return False
        whose = (self.batch, self.round, self.decided)
        return whose == (batch, parts[0].round, parts[0].generation) and self.digest == _digest(
            parts, self.passed
        )


def newest_parts(decision: Decision, before_round: int | None = None) -> list[Participant]:
    """The participants of a decision with rows for the target, of its newest round that has any;
    of those before `before_round`."""
    parts = [
        part
        for part in decision.participants
        if part.staged and (before_round is None or part.round < before_round)
    ]
    newest = max((part.round for part in parts), default=0)
    return [part for part in parts if part.round == newest]


def needed(ledger: Ledger, decided: int) -> set[str]:
    """Where rows wait that a decision names, and that a target lacks which shows the decision of
    generation `decided`, or has but perhaps not DONE."""
    return {
        part.staged.home
        for found in ledger.decisions.values()
        if found.state is DecisionState.DECIDED
        or (found.state is DecisionState.DONE and found.generation > decided)
        for part in found.participants
        if part.staged and (found.state is DecisionState.DECIDED or part.generation > decided)
    }


def may_be_forgotten(ledger: Ledger, sink: str, generation: int) -> bool:
    """Whether a decision of this generation may have been in the ledger, which keeps the newest."""
    known = ledger.of_sink(sink).values()
    oldest = min((found.generation for found in known), default=0)
    return len(known) >= DECISIONS_KEPT and generation < oldest


class History:
    """What a target should show, by the ledger."""

    def __init__(self, ledger: Ledger, sink: str, newest: Decision | None = None) -> None:
        """`newest`: a decision that the ledger may lack yet."""
        known = ledger.of_sink(sink)
        if newest is not None:
            known[newest.batch] = newest
        self._ledger = ledger
        self._written = [
            found
            for _, found in sorted(known.items())
            if found.state is not DecisionState.VOID and newest_parts(found)
        ]

    @property
    def generation(self) -> int:
        """The ledger's."""
        return self._ledger.generation

    @property
    def newest(self) -> Decision | None:
        """The newest decision that has rows for the target."""
        return self._written[-1] if self._written else None

    def accepts(self, marker: Marker) -> bool:
        """Whether the target may show this: the newest decision or, if that may not be applied
        yet, what was there before it."""
        newest = self.newest
        if newest is None:  # nothing yet, or since a reset of the ledger
            return marker.decided is None or marker.decided <= self._ledger.generation
        if marker.shows(newest.batch, newest_parts(newest)):
            return True
        if newest.state is not DecisionState.DECIDED:
            return False
        before, parts = self._before(newest)
        if before is not None:
            return marker.shows(before.batch, parts)
        return marker.decided is None or marker.decided < newest.generation

    def lacking(self, marker: Marker | None) -> list[Decision] | None:
        """What is settled and not in the target, which shows this: oldest first, each round as when
        it was decided. None if that cannot be known."""
        steps = [step for found in self._written for step in _rounds(found)]
        if marker is None or not steps:
            return None
        shown = [at for at, one in enumerate(steps) if marker.shows(one.batch, newest_parts(one))]
        first = steps[0].generation
        if not shown and (
            (marker.decided or 0) >= first
            or may_be_forgotten(self._ledger, steps[0].sink, first - 1)
        ):
            return None
        newest = self._written[-1]
        if newest.state is DecisionState.DECIDED and steps[-1].round == newest.round:
            steps.pop()  # its S7 is still to come
        return steps[shown[-1] + 1 if shown else 0 :]

    def expected(self) -> Marker:
        """What it should show at least."""
        here, generation, newest = self._ledger.topic_id, self._ledger.generation, self.newest
        if newest is not None and newest.state is not DecisionState.DECIDED:
            return Marker.of(here, generation, newest.batch, newest_parts(newest))
        before, parts = self._before(newest) if newest else (None, [])
        if before is None:
            return Marker(here, generation)
        return Marker.of(here, generation, before.batch, parts)

    def _before(self, newest: Decision) -> tuple[Decision | None, list[Participant]]:
        earlier = newest_parts(newest, before_round=newest.round)
        if earlier:
            return newest, earlier
        before = self._written[-2] if len(self._written) > 1 else None
        return before, newest_parts(before) if before else []


def _rounds(decision: Decision) -> list[Decision]:
    """A decision as it was in each round that has rows for the target, before its S7."""
    steps = []
    for number in sorted({part.round for part in decision.participants if part.staged}):
        parts = tuple(part for part in decision.participants if part.round <= number)
        whose = max(part.generation for part in parts)
        then = replace(decision, state=DecisionState.DECIDED, round=number)
        steps.append(replace(then, generation=whose, participants=parts))
    return steps


def _digest(parts: Sequence[Participant], passed: Collection[int]) -> str:
    """Of what is applied of `parts`."""
    applied = sorted(
        (part.partition, part.rows, part.digest, part.staged.attempt)
        for part in parts
        if part.staged and part.partition not in passed
    )
    return hashlib.sha256(json.dumps(applied).encode()).hexdigest()[:32]
