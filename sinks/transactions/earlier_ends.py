"""Whether all that is older has ended where a task's rows go, under the id that it has taken."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.control_requests import Look, TopicPartition
from ...clients.kafka.lost_markers import Asker, settle
from ...clients.kafka.transactional_id import TransactionalIds
from ...core.transaction import Described, TransactionState


def is_not_aborted(found: Described) -> bool:
    """What is usual where the driver ends tasks' transactions: the last one was committed."""
    return found.state is not TransactionState.COMPLETE_ABORT


class EarlierEnds:
    """Of one task's attempt: what an earlier transaction of the same id has left open would share
    the end of this one (lost_markers.py).

    Looked for before the id is taken, unless what Kafka has under it `is_usual`: how that ended
    would be forgotten. And before the first row to each topic: another may have had the id between.
    `ledger`: a token goes there in any case. `raises_epoch`: the driver ends such transactions, by
    EndTxn of version 5.
    """

    def __init__(
        self,
        control: ControlPlane,
        job: TransactionalIds,
        ledger: str | None,
        *,
        is_usual: Callable[[Described], bool] = is_not_aborted,
        raises_epoch: bool,
    ) -> None:
        self._control, self._job, self._ledger = control, job, ledger
        self._is_usual, self._raises_epoch = is_usual, raises_epoch
        self._before: Described | None = None
        self._not_seen: frozenset[TopicPartition] = frozenset()

    def taking(self, before: Described, topics: Collection[str]) -> None:
        """`before`: what Kafka has under the id, which is taken next."""
        if self._before is None or self._before.transactional_id != before.transactional_id:
            self._before = before  # of what comes between two takes, nothing is of interest
        if not self._is_usual(before):
            ledger = {self._ledger} if self._ledger else set()
            self.settle(self._control.look(others={*topics, *ledger}))

    def settle(self, found: Look) -> None:
        """In all partitions of topics that were looked at, but for those without a leader."""
        asker = Asker(self._control, self._job, dict, self._before, self._raises_epoch)
        must = [at for at in found.leader_epochs if at[0] == self._ledger]
        self._not_seen |= settle(asker, found.leader_epochs, must)

    def not_seen(self, written: Collection[TopicPartition]) -> list[TopicPartition]:
        """Those that had no leader then, and were written to."""
        return sorted(self._not_seen.intersection(written))
