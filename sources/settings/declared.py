"""Declares the options of the Kafka source. No I/O."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.offsets import TopicPartition
from ...core.options import Option, boolean, one_of, setting_ms, text, whole_number
from ...state.ledger.job_topics import job_name, topic_name
from ...state.ledger.succession import CONTINUE, NEW_JOB, STOP
from .limits import Limit, milliseconds, offset_limit, start_limit, times
from .subscription import assignment, pattern, topic_list

SUBSCRIBE: Option[tuple[str, ...]] = Option(
    "subscribe", topic_list, (), "Topics to read, separated by commas."
)
SUBSCRIBE_PATTERN: Option[str | None] = Option(
    "subscribePattern",
    pattern,
    None,
    "Instead of `subscribe`: a Python regular expression. Reads every topic in whose name it "
    "matches anywhere, except Kafka's internal topics and eo-kafka's own.",
)
ASSIGN: Option[frozenset[TopicPartition]] = Option(
    "assign",
    assignment,
    frozenset(),
    'Instead of `subscribe`: the partitions to read, as JSON: `{"topicA":[0,1]}`. The '
    "topics must exist; partitions that do not are skipped.",
)
STARTING_OFFSETS: Option[Limit | None] = Option(
    "startingOffsets",
    start_limit,
    None,
    "Where a new query starts: `earliest`, `latest`, or JSON with an offset for every partition "
    '(-2 earliest, -1 latest) or a word for a topic: `{"topicA":{"0":23},"topicB":"latest"}`. Or '
    "`group:ID`: where that consumer group is, and at the earliest offset of partitions where it "
    "committed nothing; refused if it has committed nothing of what is read. Default: latest for a "
    "stream, earliest for a batch.",
)
ENDING_OFFSETS: Option[Limit] = Option(
    "endingOffsets",
    offset_limit,
    "latest",
    "Batch only: where the read ends, `latest` or JSON as for `startingOffsets`.",
)
STARTING_TIMESTAMP: Option[int | None] = Option(
    "startingTimestamp",
    milliseconds,
    None,
    "Where a new query starts: at each partition's first record that is not older than this, in "
    "milliseconds since 1970. Takes precedence over `startingOffsetsByTimestamp` and "
    "`startingOffsets`.",
)
STARTING_BY_TIMESTAMP: Option[Mapping[TopicPartition, int] | None] = Option(
    "startingOffsetsByTimestamp",
    times,
    None,
    'Like `startingTimestamp`, with a time for every partition: `{"topicA":{"0":1000,"1":1000}}`.'
    " Takes precedence over `startingOffsets`.",
)
BY_TIMESTAMP_STRATEGY = Option(
    "startingOffsetsByTimestampStrategy",
    one_of("error", "latest"),
    "error",
    "What to do if a partition has no record as new as that: `error` fails, `latest` starts at "
    "its newest offset.",
)
ENDING_TIMESTAMP: Option[int | None] = Option(
    "endingTimestamp",
    milliseconds,
    None,
    "Batch only: where the read ends, before each partition's first record that is not older than"
    " this, in milliseconds since 1970; at its newest offset if there is none. Takes precedence "
    "over `endingOffsetsByTimestamp` and `endingOffsets`.",
)
ENDING_BY_TIMESTAMP: Option[Mapping[TopicPartition, int] | None] = Option(
    "endingOffsetsByTimestamp",
    times,
    None,
    "Batch only: like `endingTimestamp`, with a time for every partition. Takes precedence over "
    "`endingOffsets`.",
)
MAX_OFFSETS_PER_TRIGGER: Option[int | None] = Option(
    "maxOffsetsPerTrigger",
    whole_number(1),
    None,
    "Streams only: about how many offsets a batch spans at most, over all partitions.",
)
MIN_OFFSETS_PER_TRIGGER: Option[int | None] = Option(
    "minOffsetsPerTrigger",
    whole_number(1),
    None,
    "Streams only: a batch waits until there are this many new offsets, over all partitions. The "
    "first batch does not wait, nor does a run that ends by itself (`availableNow`, `once`).",
)
MAX_TRIGGER_DELAY_MS = Option(
    "maxTriggerDelay",
    setting_ms,
    15 * 60_000,
    "Streams only: how long a batch waits for `minOffsetsPerTrigger` at most, in milliseconds or "
    "as a time such as `15m`.",
)
MIN_PARTITIONS: Option[int | None] = Option(
    "minPartitions",
    whole_number(1),
    None,
    "About how many tasks a batch has at least: large topic partitions are split.",
)
MAX_PARTITIONS: Option[int | None] = Option(
    "maxPartitions",
    whole_number(1),
    None,
    "How many tasks a batch has at most: a task then reads several topic partitions, one after "
    "the other. Without this option, `minPartitions` and `maxRecordsPerPartition`, a stream that "
    "has more partitions than four times the tasks that Spark has run at once has four times as "
    "many tasks as that. To give each partition a task, set the number of partitions.",
)
MAX_RECORDS_PER_PARTITION: Option[int | None] = Option(
    "maxRecordsPerPartition",
    whole_number(1),
    None,
    "How many offsets a task spans at most: larger topic partitions are split.",
)
JOB_NAME: Option[str | None] = Option(
    "jobName",
    job_name,
    None,
    "Streams only: the sink's `jobName`. After a restore the source then repeats the batches that"
    " this job recorded. Required if the sink has a `snapshotInterval`, and if it has "
    "`commit=idempotent` and the query keeps state.",
)
ON_RESET = Option(
    "onReset",
    one_of(STOP, NEW_JOB, CONTINUE),
    STOP,
    "Streams only: the sink's `onReset`. With `continue`, and the `jobName`, a new query starts "
    "where that job has ended, if it has written a batch, and not by `startingOffsets`.",
)
LEDGER: Option[str | None] = Option(
    "ledgerTopic",
    topic_name,
    None,
    "Streams only: the ledger of that job. Default: `__eo_kafka.<jobName>.ledger`.",
)
INCLUDE_HEADERS = Option("includeHeaders", boolean, False, "Adds the column `headers`.")
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    boolean,
    True,
    "Whether the query fails when records it still needs are gone. With `false` it warns and goes"
    " on; a partition that was gone and comes back is read from its beginning, some of it perhaps"
    " for the second time.",
)
POLL_TIMEOUT_MS: Option[int | None] = Option(
    "kafkaConsumer.pollTimeoutMs",
    whole_number(1),
    None,
    "How long a task waits without progress before it fails, in milliseconds. Default: 120000, and "
    "300000 while a broker is away.",
)
GROUP_ID_PREFIX: Option[str | None] = Option(
    "groupIdPrefix",
    text,
    None,
    "Prefix of the consumers' group ids. Default: `spark-kafka-source` for a stream, "
    "`spark-kafka-relation` for a batch.",
)
NUM_RETRIES = Option(
    "fetchOffset.numRetries",
    whole_number(1),
    3,
    "How often the driver tries to get offsets. An outage is waited for (`fetchOffset.timeoutMs`).",
)
RETRY_INTERVAL_MS = Option(
    "fetchOffset.retryIntervalMs",
    whole_number(0),
    1000,
    "How long it waits between two tries, in milliseconds.",
)
LOOKUP_TIMEOUT_MS: Option[int | None] = Option(
    "fetchOffset.timeoutMs",
    whole_number(1),
    None,
    "How long the driver waits for the brokers in one planning step, in milliseconds. Default: "
    "30000 for the first batch, and 300000 after it.",
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
    ON_RESET,
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
