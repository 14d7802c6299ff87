"""Parses the Kafka source's options, those of the JVM connector, or says what is wrong. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...clients.kafka.option_checks import check_client_settings
from ...core.errors import OptionsError
from ...core.offsets import LATEST, TopicPartition
from ...core.options import KafkaSettings, Option, OptionReader
from ...state.ledger.job_topics import LEDGER_TOPIC
from ...state.ledger.succession import CONTINUE
from .declared import (
    ASSIGN,
    BY_TIMESTAMP_STRATEGY,
    ENDING_BY_TIMESTAMP,
    ENDING_OFFSETS,
    ENDING_TIMESTAMP,
    FAIL_ON_DATA_LOSS,
    GROUP_ID_PREFIX,
    INCLUDE_HEADERS,
    JOB_NAME,
    LEDGER,
    LOOKUP_TIMEOUT_MS,
    MAX_OFFSETS_PER_TRIGGER,
    MAX_PARTITIONS,
    MAX_RECORDS_PER_PARTITION,
    MAX_TRIGGER_DELAY_MS,
    MIN_OFFSETS_PER_TRIGGER,
    MIN_PARTITIONS,
    NUM_RETRIES,
    ON_RESET,
    OPTIONS,
    POLL_TIMEOUT_MS,
    REFUSED_KAFKA,
    RETRY_INTERVAL_MS,
    STARTING_BY_TIMESTAMP,
    STARTING_OFFSETS,
    STARTING_TIMESTAMP,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
)
from .limits import ByGroup, ByTime, ByTopic, Limit, batch_problems, problems_of
from .subscription import Subscription

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

_STRATEGIES = ("subscribe", "subscribePattern", "assign")
_STARTS = (STARTING_OFFSETS, STARTING_TIMESTAMP, STARTING_BY_TIMESTAMP)
_BY_PARTITION: tuple[Option[Any], ...] = (
    STARTING_OFFSETS,
    STARTING_BY_TIMESTAMP,
    ENDING_OFFSETS,
    ENDING_BY_TIMESTAMP,
)
_ENDINGS = {
    ENDING_OFFSETS.name: "offset",
    ENDING_TIMESTAMP.name: "timestamp",
    ENDING_BY_TIMESTAMP.name: "timestamp",
}
_GROUPS = {True: "spark-kafka-source", False: "spark-kafka-relation"}
_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


@dataclass(frozen=True)
class SourceOptions:
    """The options of one reader, checked. Pickled to the tasks; its repr shows no secrets."""

    kafka: KafkaSettings
    subscription: Subscription
    starting: Limit
    ending: Limit
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    fail_on_data_loss: bool
    poll_timeout_ms: int | None
    group_id_prefix: str
    num_retries: int
    retry_interval_ms: int
    lookup_timeout_ms: int | None
    ledger_topic: str | None
    continues: bool = False  # onReset=continue
    starts_by_default: bool = False  # no option says where a new query starts
    # Limits that name other partitions than are read. At a restart the checkpoint says where, also
    # of topics that are read since.
    misnamed: tuple[str, ...] = ()
    topics_given_by: str = "option 'subscribe'"  # for sentences
    # The column that says of a record why its timestamp or headers are null: they cannot be read.
    # Without it such a record is refused.
    unread: str | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], streaming: bool) -> SourceOptions:
        """Read and check `given`; raises OptionsError with every problem. Contacts nobody.

        What is wrong only in a batch is left to `check_batch`, because Spark asks for the schema
        before it is known whether the load is a stream.
        """
        reader = OptionReader(given)
        kafka = _kafka(reader)
        strategy = _strategy(reader)
        starting, ending = _starting(reader, streaming), _ending(reader)
        subscription = Subscription(
            reader.get(SUBSCRIBE), reader.get(SUBSCRIBE_PATTERN), reader.get(ASSIGN)
        )
        options = cls(
            kafka=kafka,
            subscription=subscription,
            starting=starting,
            ending=ending,
            max_offsets_per_trigger=reader.get(MAX_OFFSETS_PER_TRIGGER),
            min_offsets_per_trigger=reader.get(MIN_OFFSETS_PER_TRIGGER),
            max_trigger_delay_ms=reader.get(MAX_TRIGGER_DELAY_MS),
            min_partitions=reader.get(MIN_PARTITIONS),
            max_partitions=reader.get(MAX_PARTITIONS),
            max_records_per_partition=reader.get(MAX_RECORDS_PER_PARTITION),
            include_headers=reader.get(INCLUDE_HEADERS),
            fail_on_data_loss=reader.get(FAIL_ON_DATA_LOSS),
            poll_timeout_ms=reader.get(POLL_TIMEOUT_MS),
            group_id_prefix=reader.get(GROUP_ID_PREFIX) or _GROUPS[streaming],
            num_retries=reader.get(NUM_RETRIES),
            retry_interval_ms=reader.get(RETRY_INTERVAL_MS),
            lookup_timeout_ms=reader.get(LOOKUP_TIMEOUT_MS),
            ledger_topic=_ledger(reader),
            continues=reader.get(ON_RESET) == CONTINUE,
            starts_by_default=not any(option.name in reader for option in _STARTS),
            misnamed=tuple(
                sentence
                for option in _BY_PARTITION
                for sentence in problems_of(option.name, reader.get(option), subscription)
            ),
            topics_given_by=f"option '{strategy}'",
        )
        least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            reader.problem(
                f"The value of minOffsetsPerTrigger ({least}) is higher than the "
                f"maxOffsetsPerTrigger ({most})."
            )
        _check_tasks(options, reader)
        if options.continues and options.ledger_topic is None:
            reader.problem(
                "Option 'onReset' is 'continue', which needs the sink's 'jobName' here, too: a new "
                "query starts where that job has ended."
            )
        for name, word in _ENDINGS.items() if streaming else ():
            if name in reader:
                reader.problem(f"Option '{name}': ending {word} not valid in streaming queries.")
        reader.check_names(option.name for option in OPTIONS)
        reader.finish()
        return options

    def check_batch(self) -> None:
        """Raise OptionsError for what a stream may be told, but a batch may not."""
        if problems := [*self.misnamed, *batch_problems(self.starting, self.ending)]:
            raise OptionsError(problems)
        if self.max_offsets_per_trigger is not None:
            log.warning("maxOffsetsPerTrigger option ignored in batch queries")

    def check_start(self) -> None:
        """Raise OptionsError for what is wrong only where a stream is new."""
        if self.misnamed:
            raise OptionsError(self.misnamed)

    def starts_at_latest(self, partition: TopicPartition) -> bool:
        """Whether a partition that a new query finds starts where the first batch ends: at its
        newest offset, or where the group is."""
        given = self.starting
        if isinstance(given, ByTopic):
            if word := given.words.get(partition.topic):
                return word == "latest"
            given = dict(given.offsets)
        if isinstance(given, dict):
            return given.get(partition) == LATEST
        return given == "latest" or isinstance(given, ByGroup)

    @property
    def cuts(self) -> bool:
        """Whether options say how a batch is cut into tasks."""
        asked = (self.min_partitions, self.max_partitions, self.max_records_per_partition)
        return asked != (None, None, None)

    @property
    def read_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.kafka.get("isolation.level") == "read_committed"

    @property
    def servers(self) -> str:
        """The bootstrap servers, for messages."""
        return self.kafka["bootstrap.servers"]

    def schema(self) -> StructType:
        """The JVM connector's columns."""
        from pyspark.sql.types import (
            ArrayType,
            BinaryType,
            IntegerType,
            LongType,
            StringType,
            StructType,
            TimestampType,
        )

        columns = (
            StructType()
            .add("key", BinaryType())
            .add("value", BinaryType())
            .add("topic", StringType())
            .add("partition", IntegerType())
            .add("offset", LongType())
            .add("timestamp", TimestampType())
            .add("timestampType", IntegerType())
        )
        if self.include_headers:
            header = StructType().add("key", StringType()).add("value", BinaryType())
            columns = columns.add("headers", ArrayType(header))
        return columns


def _check_tasks(options: SourceOptions, reader: OptionReader) -> None:
    least, most = options.min_partitions, options.max_partitions
    if most is None:
        return
    if least is not None and least > most:
        reader.problem(
            f"The value of minPartitions ({least}) is higher than the maxPartitions ({most})."
        )
    if options.max_records_per_partition is not None:
        reader.problem(
            "Options 'maxPartitions' and 'maxRecordsPerPartition' contradict each other: few tasks "
            "may have to read many records. Give one of them."
        )


def _kafka(reader: OptionReader) -> KafkaSettings:
    accepted = dict(reader.kafka(REFUSED_KAFKA))
    level = accepted.setdefault("isolation.level", _ISOLATION_LEVELS[0])
    if level not in _ISOLATION_LEVELS:
        reader.problem(
            f"Kafka option 'isolation.level' must be one of {', '.join(_ISOLATION_LEVELS)}; "
            f"it is '{level}'."
        )
        del accepted["isolation.level"]
    check_client_settings(reader, accepted)
    if "group.id" in accepted:
        log.warning(
            "Kafka option 'kafka.group.id' is set: queries that share a group id disturb each "
            "other's quotas and authorizations, and 'groupIdPrefix' is ignored."
        )
    return KafkaSettings(accepted)


def _ledger(reader: OptionReader) -> str | None:
    """The ledger whose recorded ends are followed, if any."""
    job, topic = reader.get(JOB_NAME), reader.get(LEDGER)
    return topic or (LEDGER_TOPIC.format(job=job) if job else None)


def _starting(reader: OptionReader, streaming: bool) -> Limit:
    """The one of the three that counts; what is wrong with the others is said all the same."""
    offsets = reader.get(STARTING_OFFSETS)
    if offsets is None:
        offsets = "latest" if streaming else "earliest"
    by_time = reader.get(STARTING_TIMESTAMP), reader.get(STARTING_BY_TIMESTAMP)
    return _by_time(*by_time, or_latest=reader.get(BY_TIMESTAMP_STRATEGY) == "latest") or offsets


def _ending(reader: OptionReader) -> Limit:
    offsets = reader.get(ENDING_OFFSETS)
    by_time = reader.get(ENDING_TIMESTAMP), reader.get(ENDING_BY_TIMESTAMP)
    return _by_time(*by_time, or_latest=True) or offsets


def _by_time(
    of_all: int | None, of_each: Mapping[TopicPartition, int] | None, *, or_latest: bool
) -> ByTime | None:
    if of_all is None and of_each is None:
        return None
    return ByTime(of_all, of_each or {}, or_latest)


def _strategy(reader: OptionReader) -> str:
    """The option that names what is read."""
    given = [name for name in _STRATEGIES if name in reader]
    words = ", ".join(_STRATEGIES)
    if not given:
        reader.problem(f"One of the following options must be specified for Kafka source: {words}.")
    elif len(given) > 1:
        reader.problem(
            f"Only one of the following options can be specified for Kafka source: {words}."
        )
    return given[0] if given else SUBSCRIBE.name
