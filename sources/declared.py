"""The options of a reader: what each is called, how it is read, what it does. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from eo_kafka.offsets import TopicPartition
from eo_kafka.options import Option, boolean, one_of, setting_ms, text, whole_number
from eo_kafka.sources.limits import Limit, milliseconds, offset_limit, start_limit, times
from eo_kafka.sources.subscription import assignment, pattern, topic_list
from eo_kafka.state.ledger.job_topics import job_name, topic_name

SUBSCRIBE: Option[tuple[str, ...]] = Option(
    "subscribe", topic_list, (), "Topics to read, separated by commas."
)
SUBSCRIBE_PATTERN: Option[str | None] = Option(
    "subscribePattern",
    pattern,
    None,
    "In its place: a regular expression; topics with a match anywhere in their names are read, "
    "but for Kafka's own and ours.",
)
ASSIGN: Option[frozenset[TopicPartition]] = Option(
    "assign",
    assignment,
    frozenset(),
    'In its place: the partitions to read, as JSON: `{"topicA":[0,1]}`. Those that do not exist '
    "are passed over.",
)
STARTING_OFFSETS: Option[Limit | None] = Option(
    "startingOffsets",
    start_limit,
    None,
    "Where a new query starts: earliest, latest, or JSON with an offset for every partition "
    '(-2 earliest, -1 latest), or a word for a topic: `{"topicA":{"0":23},"topicB":"latest"}`; '
    "or `group:ID`: where that consumer group is, and the earliest offset of a partition in which "
    "it has committed nothing. Default: latest for a stream, earliest for a batch.",
)
ENDING_OFFSETS: Option[Limit] = Option(
    "endingOffsets", offset_limit, "latest", "Batch only: where the read ends, latest or JSON."
)
STARTING_TIMESTAMP: Option[int | None] = Option(
    "startingTimestamp",
    milliseconds,
    None,
    "Where a new query starts: at the first record of each partition that is not older, in "
    "milliseconds since 1970. Goes before `startingOffsetsByTimestamp` and `startingOffsets`.",
)
STARTING_BY_TIMESTAMP: Option[Mapping[TopicPartition, int] | None] = Option(
    "startingOffsetsByTimestamp",
    times,
    None,
    'The same with a time for every partition: `{"topicA":{"0":1000,"1":1000}}`. Goes before '
    "`startingOffsets`.",
)
BY_TIMESTAMP_STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    one_of("error", "latest"),
    "error",
    "What if a partition has no record as new as that: fail, or start at its newest offset.",
)
ENDING_TIMESTAMP: Option[int | None] = Option(
    "endingTimestamp",
    milliseconds,
    None,
    "Batch only: where the read ends, before the first record that is not older; the newest offset "
    "if there is none. Goes before `endingOffsetsByTimestamp` and `endingOffsets`.",
)
ENDING_BY_TIMESTAMP: Option[Mapping[TopicPartition, int] | None] = Option(
    "endingOffsetsByTimestamp",
    times,
    None,
    "Batch only: the same with a time for every partition.",
)
MAX_OFFSETS_PER_TRIGGER: Option[int | None] = Option(
    "maxOffsetsPerTrigger",
    whole_number(1),
    None,
    "Streams only: about how many offsets a batch may span, over all partitions.",
)
MIN_OFFSETS_PER_TRIGGER: Option[int | None] = Option(
    "minOffsetsPerTrigger",
    whole_number(1),
    None,
    "Streams only: a batch waits for so many new offsets, over all partitions; the first one does "
    "not, and a run that ends by itself (`availableNow`, `once`) neither.",
)
MAX_TRIGGER_DELAY_MS = Option(
    "maxTriggerDelay",
    setting_ms,
    15 * 60_000,
    "Streams only: for at most so long, such as `15m` (the default, in milliseconds).",
)
MIN_PARTITIONS: Option[int | None] = Option(
    "minPartitions",
    whole_number(1),
    None,
    "About how many tasks a batch has at least: large topic partitions are cut into several.",
)
MAX_PARTITIONS: Option[int | None] = Option(
    "maxPartitions",
    whole_number(1),
    None,
    "How many tasks a batch has at most: each reads several topic partitions, one after the other. "
    "For topics with many more partitions than the cluster has cores.",
)
MAX_RECORDS_PER_PARTITION: Option[int | None] = Option(
    "maxRecordsPerPartition",
    whole_number(1),
    None,
    "How many offsets a task spans at most: topic partitions with more are cut.",
)
JOB_NAME: Option[str | None] = Option(
    "jobName",
    job_name,
    None,
    "Streams only: the job (the sink's `jobName`) whose recorded batch ends are followed after a "
    "restore, and whose recorded topic ids tell that a topic was deleted and made again between "
    "two runs; needed where the sink has a `snapshotInterval`.",
)
LEDGER: Option[str | None] = Option(
    "ledgerTopic",
    topic_name,
    None,
    "Streams only: that job's ledger. Default: `__eo_kafka.<jobName>.ledger`.",
)
INCLUDE_HEADERS = Option("includeHeaders", boolean, False, "Adds the column `headers`.")
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    boolean,
    True,
    "Whether the query fails when records it still needed are gone, or warns and goes on.",
)
POLL_TIMEOUT_MS = Option(
    "kafkaConsumer.pollTimeoutMs",
    whole_number(1),
    120_000,
    "How long a task waits for progress before it fails, in milliseconds.",
)
GROUP_ID_PREFIX: Option[str | None] = Option(
    "groupIdPrefix",
    text,
    None,
    "Start of the consumers' group ids. Default: spark-kafka-source for a stream, "
    "spark-kafka-relation for a batch.",
)
NUM_RETRIES = Option(
    "fetchOffset.numRetries", whole_number(1), 3, "How often the driver asks for offsets."
)
RETRY_INTERVAL_MS = Option(
    "fetchOffset.retryIntervalMs", whole_number(0), 1000, "Wait between those, in milliseconds."
)
LOOKUP_TIMEOUT_MS = Option(
    "fetchOffset.timeoutMs",
    whole_number(1),
    30_000,
    "How long the driver waits for the brokers in one planning step, in milliseconds.",
)

OPTIONS = (
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    ASSIGN,
    STARTING_OFFSETS,
    ENDING_OFFSETS,
    STARTING_TIMESTAMP,
    STARTING_BY_TIMESTAMP,
    BY_TIMESTAMP_STRATEGY,
    ENDING_TIMESTAMP,
    ENDING_BY_TIMESTAMP,
    MAX_OFFSETS_PER_TRIGGER,
    MIN_OFFSETS_PER_TRIGGER,
    MAX_TRIGGER_DELAY_MS,
    MIN_PARTITIONS,
    MAX_PARTITIONS,
    MAX_RECORDS_PER_PARTITION,
    JOB_NAME,
    LEDGER,
    INCLUDE_HEADERS,
    FAIL_ON_DATA_LOSS,
    POLL_TIMEOUT_MS,
    GROUP_ID_PREFIX,
    NUM_RETRIES,
    RETRY_INTERVAL_MS,
    LOOKUP_TIMEOUT_MS,
)

REFUSED_KAFKA = {
    "auto.offset.reset": "set the source option 'startingOffsets' to say where a new query "
    "starts; after that the query's checkpoint says where to read, never the consumer",
    "key.deserializer": "keys arrive as bytes; convert them with DataFrame operations",
    "value.deserializer": "values arrive as bytes; convert them with DataFrame operations",
    "enable.auto.commit": "the query's checkpoint holds the offsets",
    "enable.auto.offset.store": "the query's checkpoint holds the offsets",
    "enable.partition.eof": "the reader needs these events to find the end of a range",
    "interceptor.classes": "interceptors can change records",
    "plugin.library.paths": "plug-ins can change records",
}
