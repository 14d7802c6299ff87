"""The options of a reader: what each is called, how it is read, what it does. No I/O."""

from __future__ import annotations

from typing import Literal, TypeAlias

from eo_kafka.offsets import EARLIEST, TopicPartition, decode
from eo_kafka.options import Option, boolean, text, whole_number
from eo_kafka.state.job_topics import job_name, topic_name

Limit: TypeAlias = Literal["earliest", "latest"] | dict[TopicPartition, int]


def topic_list(value: str) -> tuple[str, ...]:
    """Topics separated by commas, each named once."""
    topics = dict.fromkeys(topic for topic in map(str.strip, value.split(",")) if topic)
    if not topics:
        raise ValueError("names no topics to subscribe to")
    return tuple(topics)


def offset_limit(value: str) -> Limit:
    """`earliest`, `latest`, or offsets as JSON."""
    word = value.strip().lower()
    if word == "earliest":
        return "earliest"
    if word == "latest":
        return "latest"
    if not word.startswith("{"):
        raise ValueError('must be earliest, latest or JSON like {"topicA":{"0":23,"1":-1}}')
    return decode(value, lowest=EARLIEST)


SUBSCRIBE: Option[tuple[str, ...]] = Option(
    "subscribe", topic_list, (), "Topics to read, separated by commas."
)
STARTING_OFFSETS: Option[Limit | None] = Option(
    "startingOffsets",
    offset_limit,
    None,
    "Where a new query starts: earliest, latest, or JSON with an offset for every partition "
    "(-2 earliest, -1 latest). Default: latest for a stream, earliest for a batch.",
)
ENDING_OFFSETS: Option[Limit] = Option(
    "endingOffsets", offset_limit, "latest", "Batch only: where the read ends, latest or JSON."
)
MAX_OFFSETS_PER_TRIGGER: Option[int | None] = Option(
    "maxOffsetsPerTrigger",
    whole_number(1),
    None,
    "Streams only: about how many offsets a batch may span, over all partitions.",
)
JOB_NAME: Option[str | None] = Option(
    "jobName",
    job_name,
    None,
    "Streams only: the job (the sink's `jobName`) whose recorded batch ends are followed after a "
    "restore; needed where the sink has a `snapshotInterval`.",
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
GROUP_ID_PREFIX = Option(
    "groupIdPrefix", text, "spark-kafka-source", "Start of the consumers' group ids."
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
    STARTING_OFFSETS,
    ENDING_OFFSETS,
    MAX_OFFSETS_PER_TRIGGER,
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

NOT_YET = {
    "assign": "use 'subscribe'",
    "subscribePattern": "use 'subscribe'",
    "startingTimestamp": "use 'startingOffsets'",
    "startingOffsetsByTimestamp": "use 'startingOffsets'",
    "startingOffsetsByTimestampStrategy": "use 'startingOffsets'",
    "endingTimestamp": "use 'endingOffsets'",
    "endingOffsetsByTimestamp": "use 'endingOffsets'",
    "minOffsetsPerTrigger": "use a longer processing-time trigger",
    "maxTriggerDelay": "use a processing-time trigger",
    "minPartitions": "each topic partition is one task; repartition() after the read",
    "maxRecordsPerPartition": "each topic partition is one task; use 'maxOffsetsPerTrigger'",
}

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
