"""What a person is told of messages that cannot be kept, and stop the query. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import EnvironmentRefused, EoKafkaError, SourceError
from .message import Message
from .options import QueueOptions
from .topic import MAX_MESSAGE_BYTES, MOST_BYTES

_BESIDE_BODY = 1 << 20  # key and headers, and more than they may have


def size_of(one: Message) -> int:
    """Of its body."""
    return len(one.value or b"")


def stopped(
    options: QueueOptions, nameless: Sequence[Message], held: Sequence[Message], *, is_last: bool
) -> EoKafkaError:
    """Of those without an id, and those that are too large (`held`; `is_last`: for the poison
    topic, too). None is acknowledged."""
    too_large = _too_large(options, held, is_last) if held else ""
    if not nameless:
        return EnvironmentRefused(too_large)
    said = nameless[0].said
    return SourceError(
        f"A message of queue '{options.queue}' has no id: option 'messageId' is "
        f"'{options.message_id}', and it has none there (exchange '{said['exchange']}', routing "
        f"key '{said['routingKey']}', {size_of(nameless[0])} bytes). Without one nobody can tell "
        "whether it was delivered before. It was not acknowledged; of what came with it all that "
        "can be kept is kept. Let the publisher set one; or name another source of ids in "
        f"'messageId'; or set 'onMissingId' to 'dead-letter'. {_fate(options)} {too_large}"
    )


def _too_large(options: QueueOptions, held: Sequence[Message], is_last: bool) -> str:
    smallest, largest = min(held, key=size_of), max(held, key=size_of)
    name = smallest.said.get("id") or (smallest.id or b"").decode(errors="backslashreplace")
    topic = options.poison_topic if is_last else options.inbox
    needed = max(MAX_MESSAGE_BYTES, min(MOST_BYTES, size_of(largest) + _BESIDE_BODY))
    queue, has = options.queue, f"has {size_of(smallest):,} bytes"
    what = (
        f"Message '{name}' of queue '{queue}' {has}, more than can be kept in topic '{topic}'"
        if len(held) == 1
        else f"{len(held)} messages of queue '{queue}' are larger than can be kept in topic "
        f"'{topic}', or no smaller than some that are: '{name}', the smallest, {has}"
    )
    advice = (
        "Raise the topic's limit: kafka-configs.sh --bootstrap-server ... --alter --topic "
        f"{topic} --add-config max.message.bytes={needed}. "
    )
    ours = (
        f"Of more than {MOST_BYTES >> 20} MiB, with key and headers, eo-queue writes none as a "
        "whole, whatever the topic takes: where deliveries are not counted, as in a classic queue,"
        " take it out with RabbitMQ's own tools. "
    )
    return (
        f"{what}. Nothing of that was acknowledged; of what came with it all that can be kept is "
        "kept. "
        + (advice if size_of(smallest) < MOST_BYTES else "")
        + (ours if size_of(largest) + _BESIDE_BODY > MOST_BYTES else "")
        + (
            "Each start counts as a delivery, where they are counted. Their keys or headers are "
            "too large, so they cannot be cut, and at the queue's own limit of deliveries they are "
            "dropped: do it before the next start."
            if is_last
            else _fate(options)
        )
    )


def _fate(options: QueueOptions) -> str:
    return (
        "It goes back into the queue, and each start counts as a delivery, where they are counted:"
        f" after {options.max_deliveries} (maxDeliveries) it goes to '{options.poison_topic}', in "
        "parts if it must; unless the queue's own limit is lower, as by a policy, at which it is "
        "dropped."
    )
