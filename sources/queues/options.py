"""Declares and checks the options of a queue. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...clients.amqp import client
from ...clients.amqp.client import AmqpSettings
from ...clients.amqp.queue import PREFETCH_MAX
from ...core.offsets import LATEST
from ...core.options import KafkaSettings, Option, OptionReader, one_of, text, whole_number
from ...state.ledger.job import PREFIX, WEAK_REPLICATION
from ...state.ledger.job_topics import check_output, topic_name
from ..settings import declared
from . import message

POISON, KEPT = "{inbox}.poison", "{inbox}.kept"
MAX_SHARE_DELIVERIES = 4  # Kafka allows a limit of 10, of which half is for the poison topic
FAIL, DEAD_LETTER = "fail", "dead-letter"

QUEUE: Option[str | None] = Option(
    "queue",
    text,
    None,
    "The queue. It must be there: durable, not exclusive, not auto-delete, and no stream. It is "
    "never created and never altered. With `shareGroup`: the topic whose records the group hands "
    "out.",
)
SHARE_GROUP: Option[str | None] = Option(
    "shareGroup",
    text,
    None,
    "Instead of `url`: a share group of Kafka 4.2 or later, in the cluster of the inbox. A "
    "preview, as the client's part of it is. Its settings are looked at and never altered.",
)
INBOX: Option[str | None] = Option(
    "inbox",
    topic_name,
    None,
    "The topic that keeps the messages before they are acknowledged, and that the query reads. One "
    "queue and one job have it for themselves. One partition; created if it is missing.",
)
POISON_TOPIC: Option[str | None] = Option(
    "poisonTopic",
    topic_name,
    None,
    "Where messages go that are not given to the query: see `maxDeliveries` and `onMissingId`. "
    "Created if it is missing. Default: `<inbox>.poison`.",
)
ID = Option(
    "messageId",
    message.id_source,
    message.MESSAGE_ID,
    "What makes two deliveries the same message: AMQP's property `message-id`; `header:NAME`, a "
    "header of the message; or `body`, a SHA-256 of the body, by which two messages with the same "
    "body are one, and the second is dropped.",
)
ON_MISSING_ID = Option(
    "onMissingId",
    one_of(FAIL, DEAD_LETTER),
    FAIL,
    "What a message without an id does: `fail` stops the query and leaves the message in the "
    "queue, until that has happened `maxDeliveries` times; `dead-letter` sends it to the poison "
    "topic, where it may appear more than once.",
)
WINDOW = Option(
    "dedupWindow",
    whole_number(1, 100_000_000),
    100_000,
    "How many message ids are remembered, the newest ones. A message that is delivered again after "
    "more than so many others were kept is a new one, and so a repeat. A start reads so many "
    "records of the inbox; an id takes about 200 bytes of the driver's memory.",
)
MAX_DELIVERIES = Option(
    "maxDeliveries",
    whole_number(1),
    15,
    "A message that a quorum queue has delivered so often before goes to the poison topic. Less "
    "than the queue's `delivery-limit` (20 since RabbitMQ 4), at which RabbitMQ drops it itself: "
    "one that the queue was declared with is compared, a policy's cannot be seen. "
    "Classic queues count no deliveries. With `shareGroup` the default is 4, and half of "
    "the group's `share.delivery.count.limit`, at which Kafka drops it, is the most.",
)
PREFETCH = Option(
    "prefetch",
    whole_number(1, PREFETCH_MAX),
    1000,
    "How many messages are taken at a time, kept in one transaction and acknowledged together. "
    "They are in the driver's memory meanwhile. With `shareGroup` about so many: batches of "
    "producers are not divided.",
)
MAX_MESSAGES = Option(
    "maxMessagesPerTrigger",
    whole_number(1),
    10_000,
    "How many messages are taken before a batch is planned, at most. With `availableNow`: all that "
    "waited at the start.",
)
OPTIONS: tuple[Option[Any], ...] = (
    *(QUEUE, SHARE_GROUP, INBOX, POISON_TOPIC, ID, ON_MISSING_ID, WINDOW),
    *(MAX_DELIVERIES, PREFETCH, MAX_MESSAGES),
)
_BOTH = (PREFIX, WEAK_REPLICATION)  # of the sink's, too
_OURS = frozenset(one.key for one in (*OPTIONS, *client.OPTIONS, *_BOTH))
_LEVEL = "kafka.isolation.level"
_SET_BY_US = {
    **dict.fromkeys(
        (declared.SUBSCRIBE.name, declared.SUBSCRIBE_PATTERN.name, declared.ASSIGN.name),
        "the topic that is read is the inbox: option 'inbox' names it",
    ),
    declared.INCLUDE_HEADERS.name: "a message's headers are always there, in column 'headers'",
    **dict.fromkeys(
        (declared.STARTING_TIMESTAMP.name, declared.STARTING_BY_TIMESTAMP.name),
        "messages that were acknowledged and lie before that time would be lost",
    ),
}
_NOT_SHARED = {
    **dict.fromkeys(
        (one.name for one in client.OPTIONS),
        "a share group is in the cluster that 'kafka.bootstrap.servers' names",
    ),
    ID.name: "a record of Kafka is known by its topic, partition and offset",
    ON_MISSING_ID.name: "each record of Kafka has an offset, so none is without an id",
    WINDOW.name: "which offsets were kept is remembered exactly, and without a window",
}
_LOST_AT_START = (
    "Option 'startingOffsets' must be 'earliest' (the default) or offsets of the inbox: messages "
    "in it are acknowledged already, and a start anywhere else would lose them."
)


@dataclass(frozen=True)
class QueueOptions:
    """The options of the receiver, checked. Its repr shows no secrets."""

    amqp: AmqpSettings | None  # else a share group
    share_group: str
    kafka: KafkaSettings
    prefix: str
    allow_weak_replication: bool
    queue: str
    inbox: str
    poison_topic: str
    message_id: str
    fails_without_id: bool
    window: int
    max_deliveries: int
    prefetch: int
    max_messages: int
    patience_s: float | None  # for a RabbitMQ that is away, where it is given

    @property
    def place(self) -> str:
        """The server that has the queue."""
        return self.amqp.place if self.amqp else self.kafka.get("bootstrap.servers", "")

    @property
    def kept_topic(self) -> str:
        """Where is remembered what a share group has handed out."""
        return KEPT.format(inbox=self.inbox)

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> QueueOptions:
        """Read and check what concerns the queue, and what of the Kafka source's options does not
        go with one; raises OptionsError with every problem. Contacts nobody."""
        reader = OptionReader(given)
        reader.refuse(_SET_BY_US)
        for option in (QUEUE, INBOX):
            if option.name not in reader:
                reader.problem(f"Option '{option.name}' must be specified.")
        if "kafka.isolation.level" in reader and _level(given) != "read_committed":
            reader.problem(
                f"Option '{_LEVEL}' must be 'read_committed': the inbox holds what a receiver wrote"
                " that died before it acknowledged; those messages come once more."
            )
        start = reader.get(declared.STARTING_OFFSETS)
        is_exact = isinstance(start, dict) and LATEST not in start.values()
        if start not in (None, "earliest") and not is_exact:
            reader.problem(_LOST_AT_START)
        inbox = reader.get(INBOX) or ""
        is_shared = SHARE_GROUP.name in reader
        for name, reason in _NOT_SHARED.items() if is_shared else ():
            if name in reader:
                reader.problem(f"Options '{name}' and 'shareGroup' do not go together: {reason}.")
        given_ms = reader.get(declared.LOOKUP_TIMEOUT_MS)
        found = cls(
            amqp=None if is_shared else AmqpSettings.read(reader),
            share_group=reader.get(SHARE_GROUP) or "",
            kafka=reader.kafka({}),
            prefix=reader.get(PREFIX),
            allow_weak_replication=reader.get(WEAK_REPLICATION),
            queue=reader.get(QUEUE) or "",
            inbox=inbox,
            poison_topic=reader.get(POISON_TOPIC) or POISON.format(inbox=inbox),
            message_id=reader.get(ID),
            fails_without_id=reader.get(ON_MISSING_ID) == FAIL,
            window=reader.get(WINDOW),
            max_deliveries=MAX_SHARE_DELIVERIES
            if is_shared and MAX_DELIVERIES.name not in reader
            else reader.get(MAX_DELIVERIES),
            prefetch=reader.get(PREFETCH),
            max_messages=reader.get(MAX_MESSAGES),
            patience_s=given_ms and given_ms / 1000,
        )
        check_output(reader, "'inbox'", found.inbox)
        check_output(reader, "'poisonTopic'", reader.get(POISON_TOPIC))
        if found.poison_topic == inbox:
            reader.problem("Options 'poisonTopic' and 'inbox' must name different topics.")
        ours = (inbox, found.poison_topic, found.kept_topic)
        if is_shared and (found.queue in ours or found.poison_topic == found.kept_topic):
            reader.problem(
                f"Option 'queue' ('{found.queue}'), the inbox, the poison topic and the one that "
                f"remembers what was kept ('{found.kept_topic}') must be different topics."
            )
        if not is_shared and found.window < found.prefetch:
            reader.problem(
                f"Option 'dedupWindow' ({found.window}) must be at least 'prefetch' "
                f"({found.prefetch}): so many messages are delivered again after a crash."
            )
        reader.check_names(
            one.name for one in (*OPTIONS, *client.OPTIONS, *_BOTH, *declared.OPTIONS)
        )
        reader.finish()
        return found


def source_options(given: Mapping[str, str]) -> dict[str, str]:
    """The options of the Kafka source that reads the inbox."""
    refused = {name.lower() for name in _SET_BY_US}
    named = {name.lower(): value for name, value in given.items()}
    kept = {name: value for name, value in named.items() if name not in _OURS | refused}
    start = declared.STARTING_OFFSETS.key
    return {
        **kept,
        declared.SUBSCRIBE.key: named.get(INBOX.key) or "inbox",
        start: kept.get(start, "earliest"),
        declared.INCLUDE_HEADERS.key: "true",
    }


def _level(given: Mapping[str, str]) -> str:
    return next(value for name, value in given.items() if name.lower() == _LEVEL).strip().lower()
