"""What is open on partitions, and who wrote there, as their leaders say; the markers that end it.

DescribeProducers, ListTransactions by producer, WriteTxnMarkers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ...core.errors import EnvironmentRefused, OutcomeUnknown
from .control_requests import TopicPartition
from .every_broker import STEM, list_transactions

if TYPE_CHECKING:
    from .control_plane import ControlPlane


class Open(NamedTuple):
    """A transaction that a partition's leader holds for open."""

    topic: str
    partition: int
    producer_id: int
    epoch: int
    start: int  # the offset of its first record
    coordinator_epoch: int  # of who ended this producer's last transaction there

    @property
    def at(self) -> TopicPartition:
        """Where."""
        return self.topic, self.partition


class Missing(NamedTuple):
    """One that has ended. `epoch` is that of its marker, and `commit` how it ended."""

    where: Open
    transactional_id: str
    epoch: int
    commit: bool


def open_producers(control: ControlPlane, places: Iterable[TopicPartition]) -> list[Open]:
    """The transactions that are open on partitions, as their leaders say. Needs Read on the
    topics."""
    return [
        Open(
            *(at.topic, at.partition, one.producer_id, one.producer_epoch),
            *(one.current_transaction_start_offset, one.coordinator_epoch),
        )
        for at, state in _states(control, places).items()
        for one in state.active_producers
        if one.current_transaction_start_offset >= 0
    ]


def last_writer(control: ControlPlane, at: TopicPartition) -> str:
    """The transactional id that wrote to a partition last; empty where that is not told: nobody did
    for a day (producer.id.expiration.ms), the principal may not Read the topic or Describe the id,
    its coordinator is away, or the brokers lack the request."""
    try:
        (state,) = _states(control, [at]).values()
        written = {one.last_timestamp: one.producer_id for one in state.active_producers}
        newest = [written[max(written)]] if written else []
        names = ids_of_producers(control, newest, may_lack=True)
    except (EnvironmentRefused, OutcomeUnknown):
        return ""
    return next(iter(names.values()), "")


def _states(control: ControlPlane, places: Iterable[TopicPartition]) -> Any:
    from kafka.structs import TopicPartition as Place

    return control.call(control.admin.describe_producers, [Place(*at) for at in places])


def ids_of_producers(
    control: ControlPlane,
    producers: Collection[int],
    *,
    may_lack: bool = False,
    stem: str = STEM,
) -> dict[int, str]:
    """The transactional ids of producers, as all coordinators say; none for one that has none, or
    whose id the principal may not Describe (hidden_ids.py), or, with `may_lack`, whose coordinator
    is away: otherwise OutcomeUnknown."""
    if not producers:
        return {}
    wanted = sorted(producers)
    rows = control.ask(list_transactions, control.admin, (), None, stem, wanted, may_lack)
    return {row.producer_id: row.transactional_id for row in rows if row.transactional_id}


async def write_markers(admin: Any, missing: list[Missing]) -> None:
    """Each to its partition's leader. Written twice, one does no harm. Private parts of
    kafka-python that this uses: see control_requests.py."""
    from kafka import errors
    from kafka.protocol.producer.transaction import WriteTxnMarkersRequest
    from kafka.structs import TopicPartition as Place

    marker = WriteTxnMarkersRequest.WritableTxnMarker
    leaders = await admin._async_get_leader_for_partitions([Place(*x.where.at) for x in missing])
    for leader, places in leaders.items():
        markers = [
            marker(
                producer_id=one.where.producer_id,
                producer_epoch=one.epoch,
                transaction_result=one.commit,
                topics=[
                    marker.WritableTxnMarkerTopic(
                        name=one.where.topic, partition_indexes=[one.where.partition]
                    )
                ],
                coordinator_epoch=one.where.coordinator_epoch,
            )
            for one in missing
            if Place(*one.where.at) in places
        ]
        answer = await admin._manager.send(WriteTxnMarkersRequest(markers=markers), node_id=leader)
        codes = {
            partition.error_code
            for written in answer.markers
            for topic in written.topics
            for partition in topic.partitions
        }
        for code in codes - {0}:
            raise errors.for_code(code)("WriteTxnMarkers")
