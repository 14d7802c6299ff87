"""Creates topics, and says what happened where that fails or nobody answers."""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from ...core.errors import EnvironmentRefused

TIMEOUT_S = 30.0
ATTEMPTS = 3


def create(admin: Any, topic: Any, advice: str) -> bool:
    """Create a `NewTopic`. Driver, or a command.

    Args:
        admin: An AdminClient.
        topic: What to create. Its name and number of partitions are in what is raised.
        advice: A sentence: what to do where the brokers refuse.

    Returns:
        Whether it was created by this call; False if it was there. A broker that does not say what
        became of an attempt is asked again: what is there then counts as created.

    Raises:
        EnvironmentRefused: The brokers refuse, or nobody says whether they did it.
    """
    from confluent_kafka import KafkaError, KafkaException

    unknown = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
    attempt = 1
    while True:
        try:
            admin.create_topics([topic])[topic.topic].result(TIMEOUT_S)
        except FutureTimeout:
            is_known = False
            problem = (
                f"Nobody said within {TIMEOUT_S:.0f} s whether topic '{topic.topic}' was created. "
                "Try again when Kafka answers."
            )
        except KafkaException as raised:
            error = raised.args[0]
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return attempt > 1
            is_known = not (error.retriable() or error.code() in unknown)
            problem = f"Topic '{topic.topic}' could not be created: {error.str()}. {advice}"
        else:
            return True
        if is_known or attempt == ATTEMPTS:
            raise EnvironmentRefused(problem)
        attempt += 1
