"""The ends of a job's transactions, before its coordinator writes on (lost_markers.py).

Once an id is taken again, or used again, Kafka tells no more how its last transaction ended; and
what was left out of that one would share the end of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.control_requests import TopicPartition
from ...clients.kafka.lost_markers import Asker, settle
from ...core.transaction import Identity
from .job import Job
from .ledger import Ledger
from .topics import TOKEN_PARTITION


class Markers:
    """Lives on the driver, for one call of Spark's.

    `outputs`: topics that transactions of the job write to, beside the ledger; `committed`: those
    of the batch at hand that its tasks have committed by themselves.
    """

    def __init__(
        self,
        options: Job,
        control: ControlPlane,
        outputs: Collection[str],
        committed: Collection[Identity],
    ) -> None:
        self.outputs = set(outputs)
        self._control, self._ids = control, options.ids
        # What the coordinator's own transactions write to, and must have ended before the next
        _, self._ledger = options.job_and_ledger
        self._own = {self._ledger, options.state_topic}
        self._waits = bool(committed)  # DONE is next
        # Those of the batch at hand: whether they are known to have committed.
        self.named = dict.fromkeys(committed, True)
        self._epochs: Mapping[TopicPartition, int] = {}

    def look_also(self, outputs: Collection[str]) -> None:
        """At other topics."""
        if not self.outputs.issuperset(outputs):
            self.outputs.update(outputs)
            self._epochs = {}

    def saw(self, leader_epochs: Mapping[TopicPartition, int]) -> None:
        """What was told since the last append, of the ledger and all `outputs`: asked once."""
        self._epochs = leader_epochs

    def settle(
        self, read: Callable[[], Ledger], also: Collection[TopicPartition] | None = ()
    ) -> frozenset[TopicPartition]:
        """Write what is missing: of decisions first, for these say what became of the others;
        `read` is called then. A leader is waited for in the ledger, the state topic and `also`
        (None: everywhere). Returns the others that have none; raises what lost_markers does."""
        epochs, self._epochs = self._epochs, {}
        if not epochs:
            epochs = self._control.look(topics=[self._ledger], others=self.outputs).leader_epochs
        own = {at: epoch for at, epoch in epochs.items() if at[0] in self._own}
        mine = {at: epoch for at, epoch in own.items() if at != (self._ledger, TOKEN_PARTITION)}
        settle(Asker(self._control, self._ids), mine)
        asker = Asker(self._control, self._ids, lambda: {**read().decided(), **self.named})
        must = None if self._waits or also is None else {*also, *own}
        return settle(asker, epochs, must)
