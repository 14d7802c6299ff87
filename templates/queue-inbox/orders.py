"""The queue: declared, and published into as a careful program does."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pika

from rows import Made


def publish(url: str, queue: str, made: Iterable[Made]) -> None:
    """Each message is confirmed before the next one."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(queue, durable=True)
        for _, key, order in made:
            properties = pika.BasicProperties(message_id=key, delivery_mode=2)
            channel.basic_publish("", queue, json.dumps(order).encode(), properties)
    finally:
        connection.close()


def waiting(url: str, queue: str) -> int:
    """How many messages are in it."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        found = connection.channel().queue_declare(queue, passive=True)
        return int(found.method.message_count)
    finally:
        connection.close()
