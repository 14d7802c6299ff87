"""Compares what a topic should hold with what it holds, and says where the differences stand."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from . import checkpoint_log
from .errors import Anomaly
from .ids import SHOWN, Id, at, shown, some
from .records import Record
from .topics import Topic
from .trial import Trial

KINDS = {
    "lost": "should be in '{sink}' more often than they are",
    "duplicate": "are in '{sink}' more often than they should be",
    "foreign": "are in '{sink}', and nothing in '{source}' explains them",
}
Places = Mapping[Id, Sequence[Record]]


@dataclass(frozen=True)
class Compared:
    """Both sides of a comparison: ids that should be there and where those are that are."""

    trial: Trial
    source: Topic
    sink: Topic
    by: str
    wanted: Counter[Id]
    wanted_at: Places  # nothing where a function says what should be there
    found_at: Places

    def check(self) -> None:
        """Raises Anomaly if the multisets differ."""
        found = Counter({one: len(places) for one, places in self.found_at.items()})
        extra, lost = found - self.wanted, self.wanted - found
        foreign = Counter({one: n for one, n in extra.items() if one not in self.wanted})
        kinds = {"lost": lost, "duplicate": extra - foreign, "foreign": foreign}
        if not any(kinds.values()):
            return
        head = ", ".join(f"{ids.total()} {kind}" for kind, ids in kinds.items() if ids)
        lines = [
            f"{head}: '{self.sink.name}' is not what '{self.source.name}' should have become, "
            f"by {self.by}. {self.wanted.total()} records should be there, {found.total()} are."
        ]
        known = self._batches()
        for kind, ids in kinds.items():
            if ids:
                lines += self._told(kind, ids, known)
        raise Anomaly("\n".join([*lines, self.trial.report()]))

    def _told(
        self, kind: str, ids: Counter[Id], known: Mapping[int, checkpoint_log.Ends]
    ) -> list[str]:
        says = KINDS[kind].format(sink=self.sink.name, source=self.source.name)
        lines = [f"{kind}: {ids.total()} records {says}"]
        for one in list(ids)[:SHOWN]:
            places = self.found_at.get(one, ())
            there = f"{len(places)} times" + (f" ({some(map(at, places))})" if places else "")
            lines.append(
                f"  {shown(one)}  should be there {self.wanted[one]} times"
                f"{self._origin(one, known)}; is there {there}"
            )
        return [*lines, "  ..."] if len(ids) > SHOWN else lines

    def _origin(self, one: Id, known: Mapping[int, checkpoint_log.Ends]) -> str:
        places = self.wanted_at.get(one, ())
        if not places:
            return ""
        if not known:
            return f" (source {some(map(at, places))})"
        topic = self.source.real_name
        numbers = {
            checkpoint_log.batch_of(known, topic, place.partition, place.offset) for place in places
        }
        read = ", ".join(
            "no batch" if n is None else f"batch {n}" for n in sorted(numbers, key=str)
        )
        return f" (source {some(map(at, places))}, read by {read})"

    def _batches(self) -> dict[int, checkpoint_log.Ends]:
        for job in self.trial.jobs:
            if job.source is not None and job.source.real_name == self.source.real_name:
                return checkpoint_log.batches(job.checkpoint)
        return {}


def places(ids: Sequence[Id], records: Sequence[Record]) -> dict[Id, list[Record]]:
    """Where each id stands."""
    found: defaultdict[Id, list[Record]] = defaultdict(list)
    for one, record in zip(ids, records, strict=True):
        found[one].append(record)
    return dict(found)
