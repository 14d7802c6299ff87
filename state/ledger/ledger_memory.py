"""Keeps what this process has read of a ledger, so that a batch reads new records only.

Of hundreds of decisions, the last few records are new.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core.options import KafkaSettings
from ...core.process import moment
from ...core.process.kept import Kept
from .ledger import DECISION_PARTITION, Folding, Ledger
from .log_reader import read_records

# A tombstone that nobody read in time is compacted away: long before that, all is read again.
MEMORY_S = 600.0


@dataclass
class _Memory:
    """What was read of a ledger, which is all that stands before `position`."""

    topic_id: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    position: int = 0
    read_at: float = 0.0  # moment.seconds(): a notebook's machine may sleep for days


_memories: Kept[_Memory] = Kept(limit=2, idle_s=MEMORY_S)


class LedgerMemory:
    """Reads the decisions of the ledger `topic`, each once."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._memory = _Memory()

    @property
    def ledger(self) -> Ledger:
        """As far as it was read."""
        return self._memory.ledger

    @property
    def position(self) -> int:
        """Up to where that is."""
        return self._memory.position

    def recall(self, topic_id: str, end: int) -> None:
        """Go on from what was read of this very topic, whose partition ends at `end`."""
        if topic_id and topic_id == self._memory.topic_id and self._memory.position <= end:
            return
        kept = _memories.take(self._key(topic_id))
        usable = kept and kept.position <= end and moment.seconds() - kept.read_at < MEMORY_S
        self._memory = kept if kept and usable else _Memory(topic_id, Ledger(topic_id=topic_id))

    def read_to(self, end: int) -> Ledger:
        """Bring `ledger` up to `end`, a position that is stable."""
        memory = self._memory
        if memory.position < end:
            found = read_records(
                self._settings, self._topic, DECISION_PARTITION, memory.position, end
            )
            folding, reached = Folding(memory.ledger), memory.position
            try:
                for offset, key, value in found:
                    folding.add(key, value)
                    reached = offset + 1
            finally:  # a read that breaks off has read what came before
                folding.finish()
                memory.position = reached
            memory.position = end
        memory.read_at = moment.seconds()
        return memory.ledger

    def keep(self) -> None:
        """For this process's next call."""
        if self._memory.topic_id:
            _memories.put(self._key(self._memory.topic_id), self._memory)

    def _key(self, topic_id: str) -> dict[str, str]:
        return {**self._settings, "ledger": self._topic, "topic id": topic_id}
