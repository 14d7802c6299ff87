"""Kafka's requests about transactions: all use of kafka-python's private parts.

librdkafka neither ends another process's transaction nor describes or lists transactions, and knows
EndTxn up to version 1. kafka-python has the wire schemas of all of them, connections, TLS and SASL;
its public admin client covers ListTransactions. What it lacks (EndTxn, DescribeTransactions with an
answer per id, several questions at once) goes through its connection manager; a test fails when an
upgrade changes that.

Private are: _manager.run, .call_soon, .send, .broker_version_data and .cluster,
_find_coordinator_ids, _list_partition_offsets_request and _process_response,
_async_describe_features, _async_get_leader_for_partitions, _get_cluster_metadata, and in the
cluster its config and the cached _coordinators and _coordinator_brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import OutcomeUnknown
from ...core.transaction import NO_ANSWER, Described, Identity, TransactionState
from .topic_lists import check_known, ids_of

log = logging.getLogger(__name__)

# Kafka works on one request of a connection at a time, and an EndTxn waits for the replicas of the
# transaction log: over one connection, one after the other (docs/benchmarks/commit_round.md).
CONNECTIONS = 8
PER_CONNECTION = 4  # so many are not worth another handshake
# Of topic and number: the last stable offset (True), high watermark (False) or beginning (None).
End = tuple[str, int, bool | None]
TopicPartition = tuple[str, int]
LEADERLESS = -2
_FENCED_LEADER_EPOCH = 74


@dataclass(frozen=True)
class Look:
    """Answers to questions asked at once, each in the order of the questions."""

    described: dict[str, Described]
    ends: list[int]
    topic_ids: dict[str, str]
    # The finalized levels of features; 0 where the broker has none, or it was not asked for.
    transaction_version: int
    share_version: int = 0
    # Of all partitions of the topics that any question was about; LEADERLESS without a leader.
    leader_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def end_txn_version(self) -> int:
        """5 fences the writer's epoch, so a zombie cannot write again; older brokers know 3."""
        return 5 if self.transaction_version >= 2 else 3


class TransactionRequests:
    """Requests over the connections of a KafkaAdminClient, whose loop runs the coroutines: `run`
    them. They raise kafka-python's errors, and OutcomeUnknown for an answer that is none."""

    def __init__(self, admin: Any, servers: str) -> None:
        self._admin, self._servers = admin, servers

    def run(self, coroutine: Callable[..., Any], *args: Any) -> Any:
        """What the coroutine returns, or raises."""
        return self._admin._manager.run(coroutine, *args)

    def offered(self) -> dict[int, tuple[int, int]]:
        """The requests that the broker offers that was met first, as it said then: key -> least
        and greatest version."""
        return dict(self._admin._manager.broker_version_data.api_versions)

    def refresh(self) -> None:
        """Look again where the brokers are, soon."""
        self._admin._manager.cluster.request_update()

    async def look(
        self,
        ids: list[str],
        ends: list[End],
        topics: list[str],
        version: bool,
        others: Collection[str] = (),
    ) -> Look:
        """`describe`, the ends of partitions, the ids of topics and the transactions' version, at
        once: each request costs the broker's turn on the connection, and Python about 1 ms. Of
        `others`, topics that we may have no right to see, those that are seen."""
        soon, admin = self._admin._manager.call_soon, self._admin
        described = soon(self.describe, ids) if ids else None
        features = soon(admin._async_describe_features) if version else None
        named = {*topics, *(topic for topic, *_ in ends)}
        asked = sorted(named.union(others))
        rows = (await admin._get_cluster_metadata(asked))["topics"] if asked else []
        check_known(row for row in rows if row["name"] in named)
        offsets = await self._ends(rows, ends)
        found = (await features) if features else {}
        return Look(
            described=(await described) if described else {},
            ends=[offsets[end] for end in ends],
            topic_ids={name: i for name, i in ids_of(rows).items() if name in {*topics, *others}},
            transaction_version=_version(found, "transaction.version"),
            share_version=_version(found, "share.version"),
            leader_epochs={
                (topic["name"], one["partition_index"]): (
                    one["leader_epoch"] if one["leader_id"] >= 0 else LEADERLESS
                )
                for topic in rows
                for one in topic["partitions"]
            },
        )

    async def _ends(self, rows: Iterable[Mapping[str, Any]], ends: list[End]) -> dict[End, int]:
        """The end of each partition, asked of its leader by `rows`, an answer about topics."""
        from kafka.admin import OffsetSpec
        from kafka.structs import TopicPartition

        leaders = _leaders(rows, [(topic, number) for topic, number, _ in ends])
        asked: dict[tuple[int, bool | None], dict[Any, Any]] = {}
        for topic, number, committed in ends:
            questions = asked.setdefault((leaders[topic, number], committed), {})
            spec = OffsetSpec.EARLIEST if committed is None else OffsetSpec.LATEST
            questions[TopicPartition(topic, number)] = spec
        sent = {
            (leader, committed): self._admin._manager.send(
                self._admin._list_partition_offsets_request(questions, int(committed is True)),
                node_id=leader,
            )
            for (leader, committed), questions in asked.items()
        }
        found = {}
        for (_, committed), future in sent.items():
            answers = self._admin._list_partition_offsets_process_response(await future)
            found.update({(*at, committed): answer.offset for at, answer in answers.items()})
        for end in ends:
            if found.get(end, -1) < 0:  # one that is not known must not look like an empty ledger
                raise OutcomeUnknown(f"{self._servers} does not know the end of {end[0]}-{end[1]}.")
        return found

    async def epoch_ends(
        self, asked: Mapping[tuple[str, int], tuple[int, int]]
    ) -> dict[tuple[str, int], int]:
        """Where records of a leader epoch, and of all before, end in the log of each partition now;
        -1 if that is not known. Asked with an epoch that the leader has reached: so it is not one
        that is cut off."""
        from kafka import errors
        from kafka.protocol.consumer.offsets import OffsetForLeaderEpochRequest as Request

        rows = (await self._admin._get_cluster_metadata(sorted({at[0] for at in asked})))["topics"]
        check_known(rows)
        leaders = _leaders(rows, asked)
        by_leader: dict[int, dict[str, list[Any]]] = {}
        for (topic, number), (epoch, reached) in asked.items():
            question = Request.OffsetForLeaderTopic.OffsetForLeaderPartition(
                partition=number, current_leader_epoch=reached, leader_epoch=epoch
            )
            of_leader = by_leader.setdefault(leaders[topic, number], {})
            of_leader.setdefault(topic, []).append(question)
        sent = [
            self._admin._manager.send(
                Request(
                    replica_id=-1,  # a client
                    topics=[
                        Request.OffsetForLeaderTopic(topic=topic, partitions=questions)
                        for topic, questions in of_leader.items()
                    ],
                ),
                node_id=leader,
            )
            for leader, of_leader in by_leader.items()
        ]
        topics = [topic for future in sent for topic in (await future).topics]
        found: dict[tuple[str, int], int] = {}
        ends = [((one.topic, row.partition), row) for one in topics for row in one.partitions]
        for at, row in ends:
            if row.error_code == _FENCED_LEADER_EPOCH:  # a later leader knows as well
                found |= await self.epoch_ends({at: (asked[at][0], -1)})
            elif row.error_code:
                raise errors.for_code(row.error_code)(f"{at[0]}-{at[1]}")
            else:
                found[at] = row.end_offset
        return found

    async def coordinators(self, ids: list[str]) -> dict[str, list[str]]:
        """kafka-python's name of each coordinator -> the ids that are its."""
        from kafka.protocol.metadata import CoordinatorType

        by_id = await self._admin._find_coordinator_ids(ids, key_type=CoordinatorType.TRANSACTION)
        by_node: dict[str, list[str]] = {}
        for transactional_id in ids:
            by_node.setdefault(by_id[transactional_id], []).append(transactional_id)
        return by_node

    def _forget_coordinators(self, ids: Iterable[str]) -> None:
        from kafka.protocol.metadata import CoordinatorType

        cached = self._admin._manager.cluster._coordinators
        for transactional_id in ids:
            cached.pop((CoordinatorType.TRANSACTION, transactional_id), None)

    async def describe(self, ids: list[str]) -> dict[str, Described]:
        """The coordinators' view of each id."""
        from kafka import errors
        from kafka.protocol.admin.transactions import DescribeTransactionsRequest

        try:
            sent = [
                self._admin._manager.send(
                    DescribeTransactionsRequest(transactional_ids=of_node), node_id=node
                )
                for node, of_node in (await self.coordinators(ids)).items()
            ]
            found = {}
            for future in sent:
                for row in (await future).transaction_states:
                    name, error = row.transactional_id, errors.for_code(row.error_code)
                    if error is errors.NoError:
                        found[name] = _described(row)
                    elif row.error_code == 105:  # TRANSACTIONAL_ID_NOT_FOUND
                        found[name] = Described(name, TransactionState.MISSING)
                    else:
                        raise error(f"DescribeTransactions of {name}")
        except errors.KafkaError:
            self._forget_coordinators(ids)
            raise
        if found.keys() != set(ids):
            raise OutcomeUnknown(
                f"{self._servers} described {len(found)} of the {len(set(ids))} transactional ids "
                "asked for, or others."
            )
        return found

    async def end(self, wanted: list[Identity], commit: bool, version: int) -> dict[str, str]:
        """An EndTxn for each, sent at once. Kafka's error names by id; NO_ANSWER: none came. Raises
        AuthorizationError if the coordinators may not be asked for."""
        from kafka import errors
        from kafka.protocol.producer.transaction import EndTxnRequest

        answers = {identity.transactional_id: NO_ANSWER for identity in wanted}
        try:
            nodes = self._spread(await self.coordinators(list(answers)))
        except errors.AuthorizationError:
            raise
        except errors.KafkaError:
            self._forget_coordinators(answers)
            return answers
        sent = {
            identity.transactional_id: self._admin._manager.send(
                EndTxnRequest(
                    transactional_id=identity.transactional_id,
                    producer_id=identity.producer_id,
                    producer_epoch=identity.epoch,
                    committed=commit,
                    min_version=version,
                    max_version=version,
                ),
                node_id=nodes[identity.transactional_id],
            )
            for identity in wanted
        }
        for name, future in sent.items():
            try:
                answers[name] = _error_name((await future).error_code)
            except (errors.KafkaError, OSError) as error:
                log.debug("EndTxn of %s got no answer: %s", name, error)
                if isinstance(error, errors.UnsupportedVersionError):  # and none ever comes
                    answers[name] = str(error.message)
        self._forget_coordinators(
            name for name, answer in answers.items() if answer in (NO_ANSWER, "NOT_COORDINATOR")
        )
        return answers

    def _spread(self, by_node: Mapping[str, list[str]]) -> dict[str, str]:
        """Over which connection each id is ended: several to a coordinator that has many."""
        found = {}
        for node, ids in by_node.items():
            lanes = min(CONNECTIONS, -(-len(ids) // PER_CONNECTION))
            names = [self._connection(node, number) for number in range(lanes)]
            found.update({name: names[at % lanes] for at, name in enumerate(ids)})
        return found

    def _connection(self, node: str, number: int) -> str:
        """kafka-python keeps a connection to each name of a broker: another name, another one."""
        if number == 0:
            return node
        cluster = self._admin._manager.cluster
        known = cluster.broker_metadata(node)
        name = f"{node}-{number}"
        cluster._coordinator_brokers[name] = type(known)(name, known.host, known.port, known.rack)
        return name


def create_nothing(admin: Any) -> None:
    """A KafkaAdminClient asks of no topic by itself; if one ever does, none shall be made by it."""
    admin._manager.cluster.config["allow_auto_create_topics"] = False


def _error_name(code: int) -> str:
    from kafka import errors

    return "NONE" if code == 0 else str(errors.for_code(code).message)


def _leaders(
    rows: Iterable[Mapping[str, Any]], wanted: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    """The leader of each partition, by an answer about topics. Raises if one has none."""
    from kafka import errors

    found = {
        (topic["name"], partition["partition_index"]): int(partition["leader_id"])
        for topic in rows
        for partition in topic["partitions"]
    }
    for topic, number in wanted:
        leader = found.get((topic, number))
        if leader is None:
            raise errors.UnknownTopicOrPartitionError(f"{topic}-{number}")
        if leader < 0:
            raise errors.LeaderNotAvailableError(f"{topic}-{number}")
    return found


def _version(features: Mapping[str, Mapping[str, Any]], name: str) -> int:
    finalized = features.get(name, {}).get("finalized")
    return int(finalized[1]) if finalized else 0


def _described(row: Any) -> Described:
    return Described(
        transactional_id=row.transactional_id,
        state=TransactionState(row.transaction_state),
        producer_id=row.producer_id,
        epoch=row.producer_epoch,
        timeout_ms=row.transaction_timeout_ms,
        start_ms=row.transaction_start_time_ms,
        partitions=frozenset(
            (topic.topic, partition) for topic in row.topics for partition in topic.partitions
        ),
    )
