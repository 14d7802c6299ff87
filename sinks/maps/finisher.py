"""S7 of rows that are staged for a map: finds out what is applied or lost, applies the rest.

Runs on the driver; safe to repeat, by anybody.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ...core.errors import LedgerError
from ...core.transaction import Decision, Participant
from ...state.ledger.ledger import Ledger
from ..staged import parts_now
from .applied import LANES, Done, lane_of
from .lanes import Lanes
from .staging import ChunkKey, MapTarget, Staging, chunk_keys


@dataclass
class Lane:
    """A decision's chunks in one lane, in order, and how many of them are in the map."""

    chunks: list[ChunkKey] = field(default_factory=list)
    done: int = 0

    @property
    def rest(self) -> list[ChunkKey]:
        """What is not in the map."""
        return self.chunks[self.done :]


class StagedMapRows:
    """The staged rows of one decision. Its methods raise Fenced, OutcomeUnknown, LedgerError."""

    def __init__(self, target: MapTarget, job: str, decision: Decision, ledger: Ledger) -> None:
        """`ledger`: read under a fence; its newest generation is that of the driver that asks."""
        self._parts = parts_now(decision)
        self._staging = Staging(target, job)
        self._done = Done(target, job, decision.sink, ledger, before=decision.generation)
        self._lanes = Lanes(
            self._staging,
            job,
            decision.sink,
            ledger.generation,
            decision.generation,
            digest_of(decision, ledger.topic_id),
            self._done,
        )
        self._chunks = {
            part.partition: chunk_keys(decision.sink, decision.batch, part) for part in self._parts
        }
        self._by_lane: dict[int, Lane] = {}
        for part in sorted(self._parts, key=lambda part: part.partition):
            lane = self._by_lane.setdefault(lane_of(part.partition), Lane())
            lane.chunks += self._chunks[part.partition]

    def take(self) -> None:
        """Shut out every earlier driver, and learn what is applied."""

        def take(number: int) -> None:
            self._by_lane[number].done = self._lanes.take(number)

        asked = self._done.check_all
        try:
            self._in_every_lane(take)
        except LedgerError as error:
            if error in self._done.refusals:
                self._lanes.retried(asked)  # names what all lanes lack; it said its own part
            raise
        # After it: a loss from here on is in ours, too
        for lane in self._lanes.retried(lambda: asked(but=self._by_lane)):
            self._lanes.take(lane)  # an accepted loss is settled also where this batch has no rows

    @property
    def begun(self) -> bool:
        """Whether some of it is in the map."""
        return any(lane.done for lane in self._by_lane.values())

    def lost(self) -> set[int]:
        """The partitions that have chunks which are neither applied nor staged any more."""
        rest = (key for lane in self._by_lane.values() for key in lane.rest)
        return {key.partition for key in self._staging.missing(rest)}

    def not_applied(self) -> tuple[Participant, ...]:
        """The participants that have chunks which are not in the map."""
        rest = {key.partition for lane in self._by_lane.values() for key in lane.rest}
        return tuple(part for part in self._parts if part.partition in rest)

    def in_part(self) -> set[int]:
        """The partitions of which some chunks are in the map and some are not."""
        done = {
            key.partition for lane in self._by_lane.values() for key in lane.chunks[: lane.done]
        }
        return done & {part.partition for part in self.not_applied()}

    def apply(self, but: Collection[int]) -> None:
        """Everything that is not applied, of all partitions `but` these."""

        def apply(number: int) -> None:
            lane = self._by_lane[number]
            for at, key in enumerate(lane.rest, lane.done):
                do = self._lanes.pass_over if key.partition in but else self._lanes.apply
                do(number, at, key)

        self._in_every_lane(apply)

    def remove(self) -> None:
        """S8: nobody needs it any more."""
        self._staging.remove(key for keys in self._chunks.values() for key in keys)

    def _in_every_lane(self, do: Callable[[int], None]) -> None:
        with ThreadPoolExecutor(LANES) as threads:
            list(threads.map(do, self._by_lane))


def digest_of(decision: Decision, ledger: str) -> str:
    """What tells a decision from another of its generation: of another ledger, or of one that has
    lost records. It stays the same until the decision is carried out."""
    parts = [
        [part.partition, part.round, part.digest, part.staged and part.staged.attempt]
        for part in decision.participants
    ]
    text = json.dumps([ledger, decision.batch, decision.round, parts])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
