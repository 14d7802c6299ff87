"""Transaction requests to the cluster: the one file that uses kafka-python's private parts.

librdkafka neither ends another process's transaction nor describes or lists transactions, and knows
EndTxn up to version 1. kafka-python has the wire schemas of all of them, connections, TLS and SASL;
its public admin client covers ListTransactions and offsets. What it lacks (EndTxn, and
DescribeTransactions with an answer per id) goes through its connection manager; a test fails when
an upgrade changes that.

A `ControlPlane` keeps its connections; `shared` gives each process one per set of settings.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from eo_kafka.errors import EnvironmentRefused, OutcomeUnknown, cut
from eo_kafka.kafka_config import control_settings
from eo_kafka.transaction import Described, Identity, TransactionState

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 15_000
BOOTSTRAP_TIMEOUT_MS = 30_000
LOOKUP_TIMEOUT_S = 30.0
_shared: dict[tuple[tuple[str, str], ...], ControlPlane] = {}


def shared(settings: Mapping[str, str]) -> ControlPlane:
    """This process's control plane for these settings; connections are kept between batches."""
    key = tuple(sorted(settings.items()))
    if key not in _shared:
        _shared[key] = ControlPlane(settings)
    return _shared[key]


def forget(settings: Mapping[str, str]) -> None:
    """Drop the shared connections, after an error that may have been theirs."""
    plane = _shared.pop(tuple(sorted(settings.items())), None)
    if plane is not None:
        plane.close()


@dataclass(frozen=True)
class Look:
    """Answers to questions asked at once, each in the order of the questions."""

    described: dict[str, Described]
    ends: list[int]
    topic_ids: dict[str, str]


class ControlPlane:
    """Requests about transactions.

    Look-ups are retried for up to LOOKUP_TIMEOUT_S and then raise OutcomeUnknown. `end` is one
    round, not retried: where no answer arrived it says "NETWORK", and the caller decides.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        from kafka.admin import KafkaAdminClient

        self._servers = settings.get("bootstrap.servers", "")
        control = control_settings(settings)
        try:
            self._admin: Any = KafkaAdminClient(
                **control,
                request_timeout_ms=REQUEST_TIMEOUT_MS,
                bootstrap_timeout_ms=BOOTSTRAP_TIMEOUT_MS,
                max_in_flight_requests_per_connection=1000,  # EndTxn for all tasks in one round
            )
        except Exception as error:
            raise EnvironmentRefused(
                f"No Kafka broker at {self._servers} could be reached for the commit "
                f"({type(error).__name__}). Check kafka.bootstrap.servers and security settings."
            ) from None

    def close(self) -> None:
        """Close all connections."""
        self._admin.close()

    def transaction_version(self) -> int:
        """The finalized level of `transaction.version`; 0 where the broker has no such feature."""
        features = self._call(self._admin.describe_features)
        finalized = features.get("transaction.version", {}).get("finalized")
        return int(finalized[1]) if finalized else 0

    def end_txn_version(self) -> int:
        """5 fences the writer's epoch, so a zombie cannot write again; older brokers know 3."""
        return 5 if self.transaction_version() >= 2 else 3

    def describe(self, ids: Iterable[str]) -> dict[str, Described]:
        """The coordinators' view of each id. Raises OutcomeUnknown if one does not answer."""
        wanted = list(ids)
        if not wanted:
            return {}
        found: dict[str, Described] = self._run(self._describe, wanted)
        return found

    def describe_one(self, transactional_id: str) -> Described:
        """The coordinator's view of one id. Raises OutcomeUnknown if it does not answer."""
        return self.describe([transactional_id])[transactional_id]

    def end(self, identities: Iterable[Identity], commit: bool, version: int) -> dict[str, str]:
        """Send one EndTxn for each, all at once. Answers Kafka's error names, by id."""
        wanted = list(identities)
        if not wanted:
            return {}
        answers: dict[str, str] = self._run(self._end, wanted, commit, version)
        return answers

    def open_transactions(self, pattern: str, matches: Callable[[str], bool]) -> list[Described]:
        """Ongoing transactions whose id matches. Every broker is asked; this is for cleaning up,
        and safety never rests on it."""
        from kafka.errors import UnsupportedVersionError

        try:
            listings = self._call(
                self._admin.list_transactions,
                state_filters=["Ongoing"],
                transactional_id_pattern=pattern,
            )
        except UnsupportedVersionError:
            listings = self._call(self._admin.list_transactions, state_filters=["Ongoing"])
        ids = {row.transactional_id for rows in listings.values() for row in rows or ()}
        described = self.describe(sorted(name for name in ids if name and matches(name)))
        return [found for found in described.values() if found.state is TransactionState.ONGOING]

    def topic_ids(self, names: Iterable[str]) -> dict[str, str]:
        """The ids of those topics that exist. One that was deleted and made again has another."""
        wanted = sorted(set(names))
        found = self._call(self._admin.describe_topics, wanted) if wanted else []
        return _topic_ids(found)

    def end_offset(self, topic: str, partition: int, committed: bool) -> int:
        """The partition's last stable offset (`committed`) or its high watermark."""
        at, level = _end(topic, partition, committed)
        found = self._call(self._admin.list_partition_offsets, at, isolation_level=level)
        return self._offset(found, topic, partition)

    def look(
        self,
        ids: Iterable[str] = (),
        ends: Iterable[tuple[str, int, bool]] = (),
        topics: Iterable[str] = (),
    ) -> Look:
        """What `describe`, `end_offset` and `topic_ids` answer, all asked at once: nothing may
        hang on which was answered first. Raises what each would raise."""
        found: Look = self._run(self._look, list(ids), list(ends), sorted(set(topics)))
        return found

    def _offset(self, found: Mapping[Any, Any], topic: str, partition: int) -> int:
        offset = int(found[(topic, partition)].offset) if (topic, partition) in found else -1
        if offset < 0:  # an end that is not known must not look like an empty ledger
            raise OutcomeUnknown(f"{self._servers} does not know the end of {topic}-{partition}.")
        return offset

    def _call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        import tenacity

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(OutcomeUnknown),
            stop=tenacity.stop_after_delay(LOOKUP_TIMEOUT_S),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
            reraise=True,
        )
        return retrying(self._once, method, *args, **kwargs)

    def _once(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        from kafka.errors import BrokerResponseError, KafkaError, UnsupportedVersionError

        try:
            return method(*args, **kwargs)
        except UnsupportedVersionError:
            raise
        except BrokerResponseError as error:
            if error.retriable:
                raise OutcomeUnknown(f"{self._servers} answered {type(error).__name__}.") from error
            raise EnvironmentRefused(
                f"{self._servers} refused {method.__name__}: {type(error).__name__}."
            ) from error
        except (KafkaError, OSError) as error:
            # It may not have heard yet that a broker is back.
            self._admin._manager.cluster.request_update()
            raise OutcomeUnknown(
                f"{self._servers} did not answer {method.__name__} ({type(error).__name__})."
            ) from error
        except (ValueError, TypeError, LookupError, AttributeError, struct.error) as error:
            raise OutcomeUnknown(
                f"{self._servers} answered {method.__name__} with something that cannot be read "
                f"({type(error).__name__}: {cut(error)})."
            ) from error

    # What follows is private to kafka-python: _manager.run, .call_soon, .send and .cluster,
    # _find_coordinator_ids, _async_list_partition_offsets, _get_cluster_metadata, and the
    # coordinators cached in cluster._coordinators.

    def _run(self, coroutine: Callable[..., Any], *args: Any) -> Any:
        return self._call(self._admin._manager.run, coroutine, *args)

    async def _look(
        self, ids: list[str], ends: list[tuple[str, int, bool]], topics: list[str]
    ) -> Look:
        soon, admin = self._admin._manager.call_soon, self._admin
        described = soon(self._describe, ids) if ids else None
        asked = [soon(admin._async_list_partition_offsets, *_end(*end)) for end in ends]
        metadata = soon(admin._get_cluster_metadata, topics) if topics else None
        return Look(
            described=(await described) if described else {},
            ends=[
                self._offset(await future, topic, partition)
                for future, (topic, partition, _) in zip(asked, ends, strict=True)
            ],
            topic_ids=_topic_ids((await metadata)["topics"]) if metadata else {},
        )

    async def _coordinators(self, ids: list[str]) -> dict[str, list[str]]:
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

    async def _describe(self, ids: list[str]) -> dict[str, Described]:
        from kafka import errors
        from kafka.protocol.admin.transactions import DescribeTransactionsRequest

        try:
            sent = [
                self._admin._manager.send(
                    DescribeTransactionsRequest(transactional_ids=of_node), node_id=node
                )
                for node, of_node in (await self._coordinators(ids)).items()
            ]
            found = {}
            for future in sent:
                for row in (await future).transaction_states:
                    error = errors.for_code(row.error_code)
                    if error is errors.NoError:
                        found[row.transactional_id] = _described(row)
                    elif row.error_code == 105:  # TRANSACTIONAL_ID_NOT_FOUND
                        found[row.transactional_id] = Described(
                            row.transactional_id, TransactionState.MISSING
                        )
                    else:
                        raise error(f"DescribeTransactions of {row.transactional_id}")
        except errors.KafkaError:
            self._forget_coordinators(ids)
            raise
        if found.keys() != set(ids):
            raise OutcomeUnknown(
                f"{self._servers} described {len(found)} of the {len(set(ids))} transactional ids "
                "asked for, or others."
            )
        return found

    async def _end(self, wanted: list[Identity], commit: bool, version: int) -> dict[str, str]:
        from kafka import errors
        from kafka.protocol.producer.transaction import EndTxnRequest

        answers = {identity.transactional_id: "NETWORK" for identity in wanted}
        try:
            by_node = await self._coordinators(list(answers))
        except errors.KafkaError:
            self._forget_coordinators(answers)
            return answers
        nodes = {name: node for node, of_node in by_node.items() for name in of_node}
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
        self._forget_coordinators(
            name for name, answer in answers.items() if answer in ("NETWORK", "NOT_COORDINATOR")
        )
        return answers


def _error_name(code: int) -> str:
    from kafka import errors

    return "NONE" if code == 0 else str(errors.for_code(code).message)


def _end(topic: str, partition: int, committed: bool) -> tuple[dict[Any, Any], str]:
    """A question for an end, as kafka-python is asked."""
    from kafka.admin import OffsetSpec
    from kafka.structs import TopicPartition

    isolation = "read_committed" if committed else "read_uncommitted"
    return {TopicPartition(topic, partition): OffsetSpec.LATEST}, isolation


def _topic_ids(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    return {row["name"]: str(row["topic_id"]) for row in rows if row["error_code"] == 0}


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
