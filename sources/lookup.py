"""Asks brokers which partitions exist and where they begin and end.

Every answer is bounded in time by the option `fetchOffset.timeoutMs`. `OffsetLookup` holds a
client; it lives in Spark's source process, in a task for late-bound batch ranges and after data
loss, and travels between processes without the client.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..clients.kafka import config
from ..clients.kafka.first_contact import nobody_listens
from ..clients.kafka.topics import settings_of
from ..core.errors import ReadTimeout, SourceError, UnknownTopic
from ..core.offsets import Offsets, Position, TopicPartition, names
from ..core.patience import served
from . import lookup_errors
from .lookup_client import LookupClient
from .settings.limits import Word
from .settings.options import SourceOptions
from .settings.timeouts import Trials, lookup_timeout_s

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

T = TypeVar("T")
log = logging.getLogger(__name__)

NO_OFFSET = -1  # the broker's answer where no record is as new as asked for
_POLL_S = 0.1


class Topics(NamedTuple):
    """What is read: all its partitions, and the id of each topic (none before Kafka 2.8)."""

    partitions: set[TopicPartition]
    ids: dict[str, str]


class Ends(NamedTuple):
    """Where partitions end, and the epochs of the leaders that say so, where they say them."""

    offsets: dict[TopicPartition, int]
    epochs: dict[TopicPartition, int]


class OffsetLookup:
    """Partitions and offsets of the subscribed topics, as the consumers will see them.

    `latest` is the last stable offset under read_committed, so that a batch never ends behind
    records its tasks may not read yet.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client = LookupClient(options)
        self._told_of_none = False

    def __reduce__(self) -> tuple[type[OffsetLookup], tuple[SourceOptions]]:
        return type(self), (self._options,)

    def partitions(self) -> set[TopicPartition]:
        """Every partition that is read. Raises SourceError for an unknown topic that is named."""
        return self.look().partitions

    def look(self) -> Topics:
        """Every partition that is read, and the ids of their topics. Raises as `partitions`."""
        subscription = self._options.subscription
        self.check_first_contact()
        named = {at.topic for at in subscription.assigned} | set(subscription.topics)
        if not named:
            found = subscription.wanted(self._all())
            if not found and not self._told_of_none:
                self._told_of_none = True
                log.warning(
                    "Option 'subscribePattern' is '%s', which finds no topic on the cluster at "
                    "'%s' that the principal may describe. One that comes later is read.",
                    *(subscription.pattern, self._options.servers),
                )
            try:
                return Topics(found, self.ids({at.topic for at in found}))
            except UnknownTopic:  # deleted since it was listed
                found = subscription.wanted(self._all())
                return Topics(found, self.ids({at.topic for at in found}))
        described = self._described(named)
        partitions = {
            TopicPartition(topic, partition.id)
            for topic, description in described.items()
            for partition in description.partitions
        }
        return Topics(subscription.wanted(partitions), config.topic_ids(described))

    def check_first_contact(self) -> None:
        """Driver, before all else. Raises ReadTimeout if nothing has ever listened there."""
        if problem := nobody_listens(self._options.servers, lookup_timeout_s(self._options)):
            raise ReadTimeout(problem)

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics: one that was deleted and made again has another. Raises UnknownTopic,
        and as `partitions`."""
        return config.topic_ids(self._described(topics))

    def _described(self, topics: Iterable[str]) -> dict[str, Any]:
        from confluent_kafka import TopicCollection

        names = sorted(topics)
        if not names:
            return {}
        return self._ask(
            lambda timeout: self._client.admin().describe_topics(
                TopicCollection(names), request_timeout=timeout
            ),
            lambda topic: f"topic '{topic}'",
        )

    def _all(self) -> set[TopicPartition]:
        """Every partition that the principal may describe."""
        from confluent_kafka import KafkaException

        self._client.begin()
        trials = Trials(self._options)
        while True:
            try:
                found = self._client.admin().list_topics(timeout=trials.next_s)
            except KafkaException as error:
                self._client.check()
                if not self._may_ask_again(trials, error.args[0]):
                    raise self._refused("topics", error.args[0]) from None
                self.close()
                trials.pause()
            else:
                self._client.was_let_in = True
                return {
                    TopicPartition(name, number)
                    for name, topic in found.topics.items()
                    for number in topic.partitions
                }

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each partition that is still in its log."""
        return self._offsets(partitions, lambda _: "earliest").offsets

    def latest(
        self, partitions: Collection[TopicPartition], known: Offsets | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last one that may be read now, of each partition. As `ends`."""
        return self.ends(partitions, Position(known or {})).offsets

    def ends(self, partitions: Collection[TopicPartition], known: Position) -> Ends:
        """The same, and the leaders' epochs.

        An answer below a `known` offset may be a broker's that has just become leader
        (KAFKA-7703): it is asked again a few times, then believed. Or who came that far read more
        than may be read now, and an open transaction is before it: then it is the known offset.

        A leader of an older epoch than a known one is cut off from the others, and does not know
        it: it is never believed. Raises ReadTimeout if no other is found.
        """
        deadline = time.monotonic() + lookup_timeout_s(self._options)
        epochs = {at: known.epochs[at] for at in known.offsets if at in known.epochs}
        attempt, told = 1, ""
        while True:
            found = self._offsets(partitions, lambda _: "latest")
            old = [at for at in found.epochs if found.epochs[at] < epochs.get(at, 0)]
            behind = [at for at, end in found.offsets.items() if end < known.offsets.get(at, 0)]
            if self._options.read_committed and not old:
                written = self.written(behind)
                ahead = {at: known.offsets[at] for at in behind if written[at] >= known.offsets[at]}
                found.offsets.update(ahead)
                behind = [at for at in behind if at not in ahead]
            if not old and (not behind or attempt >= self._options.num_retries):
                return found
            if told != names({*old, *behind}):
                told = names({*old, *behind})
                log.warning("latest offsets went backwards for %s; asking again", told)
            if old:
                if time.monotonic() > deadline:
                    raise lookup_errors.led_by_old(self._options, old)
                self.close()  # the next client may hear of the new leader
            time.sleep(max(self._options.retry_interval_ms / 1000, _POLL_S if old else 0))
            attempt += 1

    def written(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, whether or not it may be read."""
        return self._offsets(partitions, lambda _: "latest", stable=False).offsets

    def topic_settings(self, topic: str) -> dict[str, str]:
        """The settings of a topic that is known to exist; none if they may not be seen."""
        return settings_of(self._client.admin(), topic)

    def close(self) -> None:
        """Drop the client; a later question makes a new one."""
        self._client.close()

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset of each partition whose record is not older than its time, in
        milliseconds since 1970; None if there is no such record."""
        found = self._offsets(times, lambda at: times[at], NO_OFFSET)
        return {at: None if offset == NO_OFFSET else offset for at, offset in found.offsets.items()}

    def committed(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where a consumer group has committed that it is, of the partitions where it has."""
        import confluent_kafka

        wanted = [confluent_kafka.TopicPartition(*at) for at in sorted(partitions)]
        question = confluent_kafka.ConsumerGroupTopicPartitions(group, wanted)
        answers = self._ask(
            # What a transaction commits that is not ended yet is where the group may be.
            lambda timeout: self._client.admin().list_consumer_group_offsets(
                [question], require_stable=True, request_timeout=timeout
            ),
            lambda name: f"consumer group '{name}'",
            lambda found: next((one.error for one in found.topic_partitions if one.error), None),
        )
        found = answers[group].topic_partitions
        return {TopicPartition(at.topic, at.partition): at.offset for at in found if at.offset >= 0}

    def _offsets(
        self,
        partitions: Collection[TopicPartition],
        of: Callable[[TopicPartition], Word | int],
        lowest: int = 0,
        stable: bool = True,
    ) -> Ends:
        """The offsets that `of` asks for, by word or by time. If not `stable`, of all records."""
        if not partitions:
            return Ends({}, {})
        import confluent_kafka
        from confluent_kafka import KafkaError, admin

        silence = KafkaError(KafkaError._TIMED_OUT)

        def spec(wanted: Word | int) -> Any:
            if isinstance(wanted, int):
                return admin.OffsetSpec.for_timestamp(wanted)
            return getattr(admin.OffsetSpec, wanted)()

        level = confluent_kafka.IsolationLevel
        committed = stable and self._options.read_committed
        isolation = level.READ_COMMITTED if committed else level.READ_UNCOMMITTED
        question = {confluent_kafka.TopicPartition(*at): spec(of(at)) for at in partitions}
        answers = self._ask(
            lambda timeout: self._client.admin().list_offsets(
                question, isolation_level=isolation, request_timeout=timeout
            ),
            lambda at: f"partition {at.topic}-{at.partition}",
            # Of a partition whose leader does not answer in time, the client says -1001, and no
            # error: as the end of a batch it would be read again from there.
            problem=lambda found: None if found.offset >= lowest else silence,
            topics={at.topic for at in partitions},
        )
        served(config.contact(self._options.kafka))  # by the leaders, who are who is waited for
        told = {TopicPartition(at.topic, at.partition): one for at, one in answers.items()}
        return Ends(
            {at: one.offset for at, one in told.items()},
            {at: one.leader_epoch for at, one in told.items() if one.leader_epoch is not None},
        )

    def _ask(
        self,
        send: Callable[[float], Mapping[T, Future[Any]]],
        subject: Callable[[T], str],
        problem: Callable[[Any], KafkaError | None] = lambda found: None,
        topics: Collection[str] = (),
    ) -> dict[T, Any]:
        """Send and wait; again after an error that may pass, all within the time limit.

        An unknown topic may pass as well: a new one is not known to every broker at once. `topics`
        are those of the partitions that are asked for: one that is gone has no leaders, either.
        """
        self._client.begin()
        trials, told = Trials(self._options), ""
        while True:
            futures = send(trials.next_s)
            answers, failed = self._answers(futures, trials.deadline, problem)
            self._client.was_let_in |= bool(answers)
            if not failed:
                return answers
            about, error = failed.popitem()
            if lookup_errors.is_of_old_metadata(error) or lookup_errors.is_silence(error):
                self.close()
            if lookup_errors.is_without_leader(error):
                self._described(topics)
            if not self._may_ask_again(trials, error):
                raise self._refused(subject(about), error)
            if told != error.str():  # an outage says the same again and again
                self._client.tell(subject(about), error)
                told = error.str()
            trials.pause()

    def _may_ask_again(self, trials: Trials, error: KafkaError) -> bool:
        is_outage = lookup_errors.is_outage(error) or self._client.is_shut_out
        return trials.may_go_on(is_outage) and not lookup_errors.is_denied(error)

    def _answers(
        self,
        futures: Mapping[T, Future[Any]],
        deadline: float,
        problem: Callable[[Any], KafkaError | None],
    ) -> tuple[dict[T, Any], dict[T, KafkaError]]:
        from confluent_kafka import KafkaException

        answers: dict[T, Any] = {}
        failed: dict[T, KafkaError] = {}
        for about, future in futures.items():
            try:
                found = self._wait(future, deadline)
            except KafkaException as failure:
                failed[about] = failure.args[0]
                continue
            if (error := problem(found)) is None:
                answers[about] = found
            else:
                failed[about] = error
        return answers, failed

    def _wait(self, future: Future[Any], deadline: float) -> Any:
        while True:
            self._client.check()
            try:
                return future.result(_POLL_S)
            except FutureTimeout:
                if time.monotonic() > deadline:
                    raise self._unreachable() from None

    def _unreachable(self) -> ReadTimeout:
        return lookup_errors.unreachable(self._options, self._client.last_error)

    def _refused(self, subject: str, error: KafkaError) -> SourceError:
        if lookup_errors.is_silence(error) or self._client.is_shut_out:
            return self._unreachable()
        return lookup_errors.refused(self._options, subject, error)
