"""What the lanes' markers say of what is applied to a map, and what they must say at least.

They change together with the rows, so what takes rows away again (a split brain that heals, members
that are lost with all copies, an older backup) takes back what the markers say, too. The ledger has
what is DONE: a marker that says less shows that the members went back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...clients.hazelcast.client import answer, client
from ...core.errors import LedgerError, cut
from ...core.transaction import Decision, DecisionState
from ...state.ledger.ledger import DECISIONS_KEPT, Ledger
from .staging import MapTarget, Staging

log = logging.getLogger(__name__)

MARKERS = "__eo_kafka.applied"
LANES = 4  # part of what markers mean: of another number they would count other chunks


@dataclass(frozen=True)
class Marker:
    """A lane's state: the generation of the driver that applies, that of the decision it applies,
    how many of the decision's chunks in this lane are in the map, and what tells the decision from
    others of its generation: a ledger that is new has each generation once more ("": not known, as
    in markers of eo-kafka 0.1)."""

    holder: int = 0
    decision: int = 0
    done: int = 0
    digest: str = ""

    def taken(self, holder: int, decision: int, digest: str) -> Marker | None:
        """As `holder` takes it, to apply `decision`; None where a newer decision is being applied,
        or another one of this generation was."""
        if self.decision > decision:
            return None
        same = self.decision == decision
        if same and self.digest and self.digest != digest:
            return None
        return Marker(holder, decision, self.done if same else 0, digest)

    def encode(self) -> str:
        """JSON."""
        return json.dumps({"v": 1, **self.__dict__})

    @classmethod
    def decode(cls, written: Any) -> Marker:
        """Raises LedgerError for what is not ours."""
        try:
            fields = json.loads(written)
            found = cls(
                fields["holder"], fields["decision"], fields["done"], fields.get("digest", "")
            )
            numbers = (found.holder, found.decision, found.done)
            if fields["v"] != 1 or {*map(type, numbers)} != {int} or type(found.digest) is not str:
                raise ValueError
            if json.loads(found.encode()) != {"digest": "", **fields}:
                raise ValueError  # it says more than this version reads, and would write back
        except (LookupError, TypeError, ValueError):
            raise LedgerError(
                f"Map '{MARKERS}' holds what this eo-kafka has not written there: {cut(written)}. "
                "Nothing was applied. If a newer version wrote it, run that."
            ) from None
        return found


def lane_of(partition: int) -> int:
    """The lane of a task's chunks."""
    return partition % LANES


def marker_key(job: str, sink: str, lane: int) -> str:
    """Of a lane's marker in MARKERS."""
    return f"{job}/{sink}/{lane}"


class Done:
    """What is DONE of one sink, by the ledger, and whether the markers show it. Driver."""

    def __init__(
        self, target: MapTarget, job: str, sink: str, ledger: Ledger, before: int | None = None
    ) -> None:
        """`before`: a decision's generation; only older ones count."""
        self._target, self._job, self._sink = target, job, sink
        self._home = Staging(target, job).cluster  # of what went to another, `check_same` tells
        self._decisions = sorted(
            (
                found
                for found in ledger.of_sink(sink).values()
                if found.state is DecisionState.DONE
                and (before is None or found.generation < before)
                and any(
                    part.staged and part.staged.home == self._home for part in found.participants
                )
            ),
            key=lambda found: found.generation,
        )
        # Batches use different lanes: what one shows least is of the newest that was in it
        self._least: dict[int, tuple[int, int]] = {}
        for found in reversed(self._decisions):
            if len(self._least) == LANES:
                break  # as a rule with the newest: older ones, 100 and more, say nothing else
            self._least = self._least_of(found) | self._least
        self._kept = set(ledger.of_sink(sink))
        self.refusals: list[LedgerError] = []  # raised by now, perhaps by several lanes' threads

    def check_all(self, but: Collection[int] = ()) -> Collection[int]:
        """`check` the markers of all lanes but these; answers as that does."""
        stored = client(self._target.hazelcast).get_map(MARKERS)
        asked = {
            lane: stored.get(marker_key(self._job, self._sink, lane))
            for lane in self._least
            if lane not in but
        }
        found = {lane: answer(one, MARKERS, self._target.hazelcast) for lane, one in asked.items()}
        return self.check({lane: one and Marker.decode(one) for lane, one in found.items()})

    def check(self, markers: Mapping[int, Marker | None]) -> Collection[int]:
        """Raise LedgerError if one of these lanes shows less than the newest batch in it made it
        show, unless losses are accepted: then the lanes that do. Until such a one is taken for a
        newer decision, it is told again."""
        lacking = {
            lane: marker
            for lane, marker in markers.items()
            if not _shows(marker, self._least.get(lane))
        }
        if not lacking:
            return ()
        doubt = [
            found
            for found in self._decisions
            for least in [self._least_of(found)]
            if any(not _shows(marker, least.get(lane)) for lane, marker in lacking.items())
        ]
        sentence = self._sentence(lacking, doubt)
        if not self._target.fail_on_loss:
            log.warning("%s Going on with what is left, as 'failOnDataLoss' is false.", sentence)
            return lacking
        refusal = LedgerError(
            f"{sentence} Nothing was applied now. If the map must be complete: "
            f"{self._again(doubt[0].batch, None in lacking.values())}; or set its entries right "
            "from elsewhere. Then, or to go on with what is left, set option 'failOnDataLoss' to "
            "false until a batch with rows is written."
        )
        self.refusals.append(refusal)
        raise refusal

    def _again(self, first: int, missing: bool) -> str:
        """How the map becomes complete, if the batches from `first` on are in doubt, and older ones
        where a marker is `missing`."""
        before = first - 1
        # Spark keeps the offsets of as many batches as the ledger. With snapshots that has more
        kept = before in self._kept and max(self._kept) - before < DECISIONS_KEPT
        if missing or not kept or self._target.merge is not None:
            return "empty it, and write everything again with a new checkpoint and a new 'jobName'"
        return (
            "a query without state writes these batches again with a new checkpoint, a new "
            f"'jobName', and 'startingOffsets' of where batch {before} ended (file "
            f"'offsets/{before}' of the old checkpoint)"
        )

    def _sentence(self, lacking: Mapping[int, Marker | None], doubt: Sequence[Decision]) -> str:
        says = "; ".join(
            f"'{marker_key(self._job, self._sink, lane)}' {_said(marker, self._least[lane])}"
            for lane, marker in sorted(lacking.items())
        )
        first, last = doubt[0].batch, doubt[-1].batch
        which = f"Batches {first} to {last}" if len(doubt) > 1 else f"Batch {first}"
        forgotten = first == min(self._kept) > 0  # what was before
        older = " and perhaps older ones" if forgotten or None in lacking.values() else ""
        return (
            f"Map {places_of(doubt)} of {self._target.hazelcast.place} has lost what was written: "
            f"batch {last} of job '{self._job}' is DONE (generation {doubt[-1].generation}), and "
            f"in map '{MARKERS}' {says}. A split brain has healed, and one side's entries were "
            "given up; or members were lost with all copies, or an older backup was restored; or "
            "somebody removed the markers, or changed 'jobName' and kept 'ledgerTopic'. "
            f"{which}{older}: entries may be missing, or be older ones."
        )

    def _least_of(self, decision: Decision) -> dict[int, tuple[int, int]]:
        """What each of its lanes shows at least once it is DONE: a generation, and how many of its
        chunks."""
        found: dict[int, tuple[int, int]] = {}
        for part in decision.participants:
            if part.staged is None or part.staged.home != self._home:
                continue
            lane = lane_of(part.partition)
            generation, chunks = max(found.get(lane, (0, 0)), (part.generation, 0))
            if part.round == decision.round:  # how far one before came, this one does not say
                chunks += part.staged.chunks
            found[lane] = generation, chunks
        return found


def _shows(marker: Marker | None, least: tuple[int, int] | None) -> bool:
    known = marker or Marker()
    return least is None or (known.decision, known.done) >= least


def _said(marker: Marker | None, least: tuple[int, int]) -> str:
    """What a marker says that shows less."""
    if marker is None:
        return "is missing"
    if marker.decision == least[0]:
        return f"is at chunk {marker.done} of generation {least[0]}, and was at {least[1]}"
    return f"is at generation {marker.decision}, and was at {least[0]}"


def places_of(decisions: Iterable[Decision]) -> str:
    """For sentences: the names of the maps that rows were staged for."""
    parts = (part for decision in decisions for part in decision.participants)
    return " and ".join(sorted({f"'{cut(part.staged.place)}'" for part in parts if part.staged}))
