"""What the lanes' markers say of what is applied to a map, and what they must say at least.

They change together with the rows, so what takes rows away again (a split brain that heals, members
that are lost with all copies, an older backup) takes back what the markers say, too. The ledger has
what is DONE: a marker that says less shows that the members went back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...clients.hazelcast.client import answer, client
from ...core.errors import LedgerError, cut
from ...core.transaction import Decision, DecisionState
from ...state.ledger.ledger import Ledger
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
        self._least = self._least_of(self._decisions[-1]) if self._decisions else {}

    def check_all(self, but: Collection[int] = ()) -> None:
        """`check` the markers of all lanes that the newest batch was in, but these."""
        stored = client(self._target.hazelcast).get_map(MARKERS)
        asked = {
            lane: stored.get(marker_key(self._job, self._sink, lane))
            for lane in self._least
            if lane not in but
        }
        found = {lane: answer(one, MARKERS, self._target.hazelcast) for lane, one in asked.items()}
        self.check({lane: one and Marker.decode(one) for lane, one in found.items()})

    def check(self, markers: Mapping[int, Marker | None]) -> None:
        """Raise LedgerError if one of these lanes shows less than the newest batch made it show,
        unless losses are accepted: then the next batch is the newest."""
        lacking = {
            lane: marker
            for lane, marker in markers.items()
            if not _shows(marker, self._least.get(lane))
        }
        if not lacking:
            return
        doubt = [
            found.batch
            for found in self._decisions
            for least in [self._least_of(found)]
            if any(not _shows(marker, least.get(lane)) for lane, marker in lacking.items())
        ]
        sentence = self._sentence(lacking, doubt)
        if not self._target.fail_on_loss:
            log.warning("%s Going on with what is left, as 'failOnDataLoss' is false.", sentence)
            return
        again = "empty it, and write everything again with a new checkpoint and a new 'jobName'"
        if self._target.merge is None and doubt[0]:
            again = (
                "a query without state writes these batches again with a new checkpoint, a new "
                f"'jobName', and 'startingOffsets' of where batch {doubt[0] - 1} ended (file "
                f"'offsets/{doubt[0] - 1}' of the old checkpoint)"
            )
        raise LedgerError(
            f"{sentence} Nothing was applied now. If the map must be complete: {again}; or set "
            "its entries right from elsewhere. Then, or to go on with what is left, set option "
            "'failOnDataLoss' to false until a batch with rows is written."
        )

    def _sentence(self, lacking: Mapping[int, Marker | None], doubt: Sequence[int]) -> str:
        newest = self._decisions[-1]
        says = ", ".join(
            f"'{marker_key(self._job, self._sink, lane)}' "
            + (f"is at generation {marker.decision}" if marker else "is missing")
            for lane, marker in sorted(lacking.items())
        )
        which = f"Batches {doubt[0]} to {doubt[-1]}" if len(doubt) > 1 else f"Batch {doubt[0]}"
        older = " and perhaps older ones" if None in lacking.values() else ""
        return (
            f"{self._target.place} has lost what was written: batch {newest.batch} of job "
            f"'{self._job}' is DONE (generation {newest.generation}), and in map '{MARKERS}' "
            f"{says}. A split brain has healed, and one side's entries were given up; or members "
            "were lost with all copies, or an older backup was restored; or somebody removed the "
            f"markers, or changed 'jobName' and kept 'ledgerTopic'. {which}{older}: entries may "
            "be missing, or be older ones."
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
