"""A member of a share group (KIP-932) that acknowledges by itself; and what a group must be like.

librdkafka calls its share consumer a preview. What was found out about it, and about Kafka 4.3:

- A member gets partitions with its second heartbeat, after some seconds; nothing says that it has.
- A poll hands over whole batches as producers wrote them: more than `max.poll.records`.
- Until all of a poll are acknowledged the next one raises. One that brings nothing may have left a
  fetch on its way: what that brings is handed over by the next poll.
- `close` gives back what is not acknowledged. That counts as a delivery.
- Acknowledgements that a broker's death takes away are not sent again; the records come again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from ...core.errors import EnvironmentRefused, EoKafkaError, ReadTimeout, SourceError, Unreachable
from . import config, control_plane, topics
from .config import connection_settings, quick_connect

log = logging.getLogger(__name__)

# Without a record for so long, a look at the group ends. One that comes meanwhile ends it at once.
QUIET_S = 0.5
_FETCH_WAIT_MS = 100
_COMMIT_TIMEOUT_S = 30.0
_IDLE_S = 240.0  # max.poll.interval.ms is five minutes; a member that is older has left
_HEARTBEAT_MS = 5000
_BEHIND_S = 20.0  # where records are expected
# In which a cluster makes the topic that its share groups need, for the first of them.
_FIRST_GROUP_S, _STATE_TOPIC = 60.0, "__share_group_state"
_ISOLATION, _RESET = "share.isolation.level", "share.auto.offset.reset"
_ATTEMPTS, _HEARTBEAT = "share.delivery.count.limit", "share.heartbeat.interval.ms"
_ALTER = (
    "kafka-configs.sh --bootstrap-server ... --alter --entity-type groups --entity-name {group} "
    "--add-config {setting}"
)


class ShareGroup:
    """One member. Joins when it is first asked for records. Lives in the process that plans the
    query. Raises EnvironmentRefused, ReadTimeout, SourceError."""

    def __init__(self, settings: Mapping[str, str], topic: str, group: str, at_once: int) -> None:
        self._settings, self._topic, self._group = settings, topic, group
        self._at_once = at_once
        self._control = control_plane.shared(settings)
        self._consumer: Any = None
        self._told: list[Any] = []  # what the client said of its own
        self._topic_id = ""
        self._used = self._joined = 0.0
        self._is_new, self._is_first = True, False  # our member; the cluster's group
        self._heartbeat_s = _HEARTBEAT_MS / 1000

    def check(self, admin: Any, most_deliveries: int) -> None:
        """Refuse what would lose or invent messages; tell what happens to those that are there. The
        group's settings are never altered."""
        if self._control.look(version=True).share_version < 1:
            raise EnvironmentRefused(
                f"{self._settings.get('bootstrap.servers')} has no share groups: they need Kafka "
                "4.2 or later, and its feature share.version, which is switched on by "
                "kafka-features.sh --bootstrap-server ... upgrade --feature share.version=1. "
                "Nothing was taken."
            )
        from confluent_kafka.admin import ResourceType

        found = topics.settings_of(admin, self._group, ResourceType.GROUP)
        if _ISOLATION not in found:
            log.warning(
                "The settings of share group '%s' could not be seen: if %s is not read_committed, "
                "records of aborted transactions come out as messages; if %s is not earliest, "
                "records are passed over. The principal needs DescribeConfigs on the group.",
                *(self._group, _ISOLATION, _RESET),
            )
        if found.get(_ISOLATION, "read_committed") != "read_committed":
            raise EnvironmentRefused(
                f"Share group '{self._group}' has {_ISOLATION}={found[_ISOLATION]}: records of "
                "transactions that were aborted would come out as messages. Nothing was taken. "
                + self._advice(f"{_ISOLATION}=read_committed")
            )
        self._check_limit(found.get(_ATTEMPTS), admin, most_deliveries)
        if (reset := found.get(_RESET, "earliest")) != "earliest":
            log.warning(
                "Share group '%s' has %s=%s: of a partition that it has never looked at, also one "
                "that is added later, it does not hand out all records that are there already. "
                "They never come to this query, and nothing else says so. %s",
                *(self._group, _RESET, reset, self._advice(f"{_RESET}=earliest")),
            )
        self._heartbeat_s = int(found.get(_HEARTBEAT, _HEARTBEAT_MS)) / 1000

    def _check_limit(self, of_group: str | None, admin: Any, most_deliveries: int) -> None:
        """Refuse one that leaves a record few deliveries in which it can go to the poison topic:
        who dies in all of them loses it. Before Kafka 4.3 only brokers have the setting."""
        from confluent_kafka.admin import ResourceType

        limits = [of_group]
        if of_group is None:
            limits = [
                topics.settings_of(admin, str(one), ResourceType.BROKER).get(f"group.{_ATTEMPTS}")
                for one in topics.metadata(admin).brokers
            ]
        known = [int(one) for one in limits if one is not None]
        if not known:
            log.warning(
                "After how many deliveries Kafka drops a record of share group '%s' is not known: "
                "the principal needs DescribeConfigs on the group, or before Kafka 4.3 on the "
                "cluster. It must be %d, twice 'maxDeliveries', or more. %s",
                *(self._group, 2 * most_deliveries, self._advice(f"{_ATTEMPTS}=10")),
            )
        elif min(known) < 2 * most_deliveries:
            advice = (
                f"Or let the brokers have group.{_ATTEMPTS}=10, and restart them."
                if of_group is None
                else "It can be 10. " + self._advice(f"{_ATTEMPTS}=10")
            )
            raise EnvironmentRefused(
                f"Option 'maxDeliveries' is {most_deliveries}, and share group '{self._group}' has "
                f"{_ATTEMPTS}={min(known)}: after so many deliveries Kafka drops a record without a"
                " word. Those after 'maxDeliveries' are for the way to the poison topic, and a "
                "driver that dies in each of them loses it. Nothing was taken. Set 'maxDeliveries'"
                f" to half of the limit or less. {advice}"
            )

    def _advice(self, setting: str) -> str:
        return f"Set it by {_ALTER.format(group=self._group, setting=setting)}"

    def topic_id(self) -> str:
        """The topic's id now. Raises EnvironmentRefused where there is none."""
        found = self._control.topic_ids([self._topic]).get(self._topic)
        if found is None:
            raise EnvironmentRefused(
                f"There is no topic '{self._topic}', which option 'queue' names for share group "
                f"'{self._group}'. eo-queue creates none: create it, or correct the option."
            )
        return found

    def partitions(self, admin: Any) -> list[int]:
        """The numbers of the topic's partitions."""
        try:
            return list(topics.partitions_of(admin, self._topic))
        except Unreachable as error:
            raise ReadTimeout(str(error)) from None

    def begins(self, admin: Any, numbers: Iterable[int]) -> dict[int, int]:
        """The first offset that is left of each partition."""
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        earliest: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(self._topic, number): earliest for number in numbers}
        answers = admin.list_offsets(asked, request_timeout=topics.TIMEOUT_S)
        try:
            return {at.partition: int(one.result().offset) for at, one in answers.items()}
        except KafkaException as error:
            raise self._explained(error.args[0]) from None

    def take(self, is_behind: bool) -> tuple[str, list[Any]]:
        """The topic's id, and records of it, in the order of their offsets in each partition. All
        of them must be acknowledged, or the member dropped, before the next call. `is_behind`:
        records are expected, so the first ones after joining are waited for."""
        if self._consumer is not None and time.monotonic() - self._used > _IDLE_S:
            self.drop()
        until = time.monotonic() + QUIET_S
        while True:
            if self._consumer is None:
                self._join()
            if self._is_new:
                until = max(until, self._joined + self._patience_s(is_behind))
            found = self._polled(max(0.0, until - time.monotonic()))
            self._used = time.monotonic()
            if not found and self._is_new and is_behind:
                log.warning(
                    "Share group '%s' handed out nothing of '%s' in the %.0f s since this query "
                    "joined it, and the inbox lacks offsets that are there. They are other "
                    "members', or markers of transactions; or Kafka was not ready, and they come "
                    "later: with availableNow in the next run.",
                    *(self._group, self._topic, self._used - self._joined),
                )
            self._is_new = False
            if not found:
                return self._topic_id, []
            # The member is younger than this id. If the id is still the same, the records are its.
            if self.topic_id() == self._topic_id:
                return self._topic_id, found
            log.warning("Topic '%s' was deleted and made again.", self._topic)
            self.drop()

    def _join(self) -> None:
        from confluent_kafka import KafkaException

        self._topic_id = self.topic_id()
        with suppress(EnvironmentRefused):  # who may not see it waits as for a later group
            self._is_first = not self._control.topic_ids([_STATE_TOPIC])
        self._told.clear()
        try:
            self._consumer = config.share_consumer(
                {
                    **quick_connect(self._settings),
                    **connection_settings(self._settings),
                    "group.id": self._group,
                    "share.acknowledgement.mode": "explicit",
                    "max.poll.records": str(self._at_once),
                    "fetch.wait.max.ms": str(_FETCH_WAIT_MS),
                    "check.crcs": "true",  # a changed byte is an error, and no message
                    "error_cb": self._told.append,
                }
            )
            self._consumer.subscribe([self._topic])
        except KafkaException as error:
            raise self._explained(error.args[0]) from None
        self._joined, self._is_new = time.monotonic(), True

    def _patience_s(self, is_behind: bool) -> float:
        """Partitions come with the second heartbeat."""
        more = _FIRST_GROUP_S if self._is_first else _BEHIND_S
        return 2.5 * self._heartbeat_s + (more if is_behind else 1.0)

    def _polled(self, timeout_s: float) -> list[Any]:
        from confluent_kafka import KafkaException

        until = time.monotonic() + timeout_s
        while True:
            try:
                found = list(self._consumer.poll(max(0.01, min(1.0, until - time.monotonic()))))
            except KafkaException as error:
                raise self._explained(error.args[0]) from None
            if refusals := [one for one in self._told if self._is_refusal(one)]:
                raise self._explained(refusals[0])
            self._told.clear()
            if unreadable := [one for one in found if one.error() is not None]:
                raise self._unreadable(unreadable[0])
            if found or time.monotonic() >= until:
                return sorted(found, key=lambda one: (one.partition(), one.offset()))

    def acknowledge(self, places: Iterable[tuple[int, int]]) -> None:
        """Accept partitions and offsets of the last `take`. What of it does not arrive is delivered
        again, and that is logged. Raises EnvironmentRefused if the group may not be used."""
        from confluent_kafka import KafkaError, KafkaException

        try:
            for partition, offset in places:
                self._consumer.acknowledge_offset(self._topic, partition, offset)
            answers = self._consumer.commit_sync(_COMMIT_TIMEOUT_S)
        except KafkaException as error:
            self.drop()
            answers = {None: error}
        failed = {at: one.args[0] for at, one in answers.items() if one is not None}
        if refusals := [one for one in failed.values() if self._is_refusal(one)]:
            raise self._explained(refusals[0])
        if not failed:
            return
        is_late = any(one.code() == KafkaError.INVALID_RECORD_STATE for one in failed.values())
        log.warning(
            "Acknowledgements of share group '%s' failed in %d partitions (%s). The messages are "
            "in the inbox; when they are delivered again they are dropped.%s",
            *(self._group, len(failed), next(iter(failed.values())).str()),
            " Their locks had ended: another member of the group may have got them, too."
            if is_late
            else "",
        )

    def drop(self) -> None:
        """Leave. What is not acknowledged is handed out again at once, and that counts."""
        consumer, self._consumer = self._consumer, None
        with suppress(Exception):
            if consumer is not None:
                consumer.close()

    def _is_refusal(self, error: Any) -> bool:
        from confluent_kafka import KafkaError

        return error.code() in (
            *(KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.TOPIC_AUTHORIZATION_FAILED),
            *(KafkaError.UNSUPPORTED_VERSION, KafkaError.GROUP_MAX_SIZE_REACHED),
            *(KafkaError.INCONSISTENT_GROUP_PROTOCOL, KafkaError.GROUP_ID_NOT_FOUND),
        )

    def _explained(self, error: Any) -> EoKafkaError:
        place = self._settings.get("bootstrap.servers")
        if self._is_refusal(error):
            return EnvironmentRefused(
                f"{place} does not let this principal take records of '{self._topic}' as share "
                f"group '{self._group}': {error.str()}. It needs Read on both, and the name must "
                "not be a group's of another kind. Nothing was kept. Correct it and start again."
            )
        return ReadTimeout(
            f"No records of '{self._topic}' from {place} for share group '{self._group}' "
            f"({error.str()}). Start again when Kafka is up: what was not acknowledged is delivered"
            " again."
        )

    def _unreadable(self, one: Any) -> EoKafkaError:
        error, offset = one.error(), one.offset()
        if self._is_refusal(error) or offset is None or offset < 0:
            return self._explained(error)
        return SourceError(
            f"The record of {self._topic}-{one.partition()} at offset {offset} cannot be read"
            f" ({error.str()}). Nothing of what came with it was kept or acknowledged. Do "
            "something about it soon: each start counts as a delivery, and after "
            f"{_ATTEMPTS} of them Kafka drops it; if its checksum is wrong, Kafka's client may "
            "have rejected it, and it does not come again. It stays in the topic at that offset."
        )
