"""Asks a job's supervisor for something, and waits for its answer. Runs on any machine."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Callable, Collection
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from typing import Any

from ...clients.kafka.cluster import connect
from ...clients.kafka.config import connection_settings, consumer, producer
from ...clients.kafka.topics import TIMEOUT_S, exists
from ...core.errors import EnvironmentRefused, EoKafkaError
from ...state.ledger.job import Job
from . import words
from .seat import topic_of
from .words import Do, Told, UnknownWords, Wish

NOBODY_S = 15.0  # for a supervisor that is just being elected, where none is known
HOLDS = {
    Do.SUSPEND: "The next supervisor of it that starts is suspended.",
    Do.CANCEL: "The next supervisor of it that starts ends at once.",
    Do.RESUME: "The next supervisor of it that starts runs it.",
    Do.RESTART: "The next supervisor of it that starts runs it.",
}


def ask(job: Job, do: Do, snapshot: str, timeout_s: float, hear: Callable[[str], None]) -> Told:
    """Write the wish, and return the answer. `hear` is called with what is told meanwhile.

    Raises EoKafkaError: nobody answers, which says what holds then; EnvironmentRefused.
    """
    name, _ = job.job_and_ledger
    topic = topic_of(name)
    admin, _brokers = connect(job.kafka, TIMEOUT_S)
    if not exists(admin, topic):
        raise EoKafkaError(
            f"Job '{name}' has had no supervisor here that obeys (no topic '{topic}'): start it by "
            f"'eo-kafka run --job {name}'. Nothing was recorded."
        )
    reader = _reader(job, topic)
    try:
        wish = Wish(do.value, _me(), snapshot)
        _write(job, topic, wish)
        return _await(reader, admin, name, wish, timeout_s, hear)
    finally:
        reader.close()


def members(admin: Any, topics: Collection[str]) -> dict[str, list[str] | str]:
    """The supervisors that live, by control topic; or a sentence why that is not known."""
    from confluent_kafka import KafkaException

    found: dict[str, list[str] | str] = {}
    if not topics:
        return found
    for topic, future in admin.describe_consumer_groups(
        list(topics), request_timeout=TIMEOUT_S
    ).items():
        try:
            found[topic] = sorted(one.client_id for one in future.result(TIMEOUT_S).members)
        except KafkaException as error:
            found[topic] = f"Group '{topic}' is not seen: {error.args[0].str()}."
        except FutureTimeout:
            found[topic] = f"Group '{topic}' is not seen: no answer in {TIMEOUT_S:.0f} s."
    return found


def _me() -> str:
    with suppress(Exception):  # a container's user may have no name
        return words.printable(f"{getpass.getuser()}@{socket.gethostname()}")
    return socket.gethostname()


def _reader(job: Job, topic: str) -> Any:
    from confluent_kafka import TopicPartition

    settings = {"group.id": f"{topic}-asking", "enable.auto.commit": False}
    reader = consumer({**connection_settings(job.kafka), **settings})
    at = TopicPartition(topic, 0)
    at.offset = reader.get_watermark_offsets(at, timeout=TIMEOUT_S)[1]
    reader.assign([at])  # never joined
    return reader


def _write(job: Job, topic: str, wish: Wish) -> None:
    errors: list[Any] = []
    client = producer(connection_settings(job.kafka))
    client.produce(
        topic,
        words.encode(wish),
        words.WISH_KEY,
        0,
        on_delivery=lambda error, _message: errors.append(error),
    )
    left = client.flush(TIMEOUT_S)
    if left or errors[0] is not None:
        why = errors[0].str() if errors else f"no answer within {TIMEOUT_S:.0f} s"
        raise EnvironmentRefused(
            f"'{wish.do}' could not be written into topic '{topic}': {why}. The principal needs "
            "Write on it. If there was no answer, it may have been written all the same."
        )


def _await(
    reader: Any, admin: Any, job: str, wish: Wish, timeout_s: float, hear: Callable[[str], None]
) -> Told:
    began, is_heard, said = time.monotonic(), False, ""
    alive: list[str] | str = []
    looked = NOBODY_S / 3
    is_newest = False
    while (waited := time.monotonic() - began) < timeout_s:
        told = _next(reader)
        if isinstance(told, Wish):
            if is_newest and told.id != wish.id:
                raise EoKafkaError(_replaced(job, wish, told, said))
            is_newest = told.id == wish.id
        elif told is not None and told.wish == wish.id:
            is_heard = True
            if told.done:
                return told
            if told.said != said:
                said = told.said
                hear(f"{told.host}: {said}")
        if not is_heard and not alive and waited > looked:
            looked = waited + 1
            alive = members(admin, [topic_of(job)])[topic_of(job)]
            if not alive and waited > NOBODY_S:
                break
    holds = f"It is recorded, and holds. {HOLDS[Do(wish.do)]}"
    if is_heard:
        raise EoKafkaError(
            f"The supervisor of job '{job}' has heard '{wish.do}' and is not done with it after "
            f"{timeout_s:.0f} s ({said}). It goes on; ask by 'eo-kafka job list'."
        )
    if isinstance(alive, list) and alive:
        raise EoKafkaError(
            f"The supervisor of job '{job}' ({', '.join(alive)}) did not answer to '{wish.do}' "
            f"within {timeout_s:.0f} s: it may be stopped, or cut off from Kafka. {holds}"
        )
    unseen = f" {alive}" if isinstance(alive, str) else ""
    raise EoKafkaError(f"No supervisor of job '{job}' answers to '{wish.do}'.{unseen} {holds}")


def _replaced(job: str, wish: Wish, newer: Wish, said: str) -> str:
    heard = f"was heard ({said}), and not answered" if said else "was not answered"
    lost = f" Nothing is known to be exported as '{wish.snapshot}'." if wish.snapshot else ""
    return (
        f"'{newer.do}' was asked for by {newer.by} after '{wish.do}' of job '{job}', which "
        f"{heard}: '{wish.do}' does not hold any more.{lost} Ask each other, then 'eo-kafka job "
        "list'."
    )


def _next(reader: Any) -> Told | Wish | None:
    message = reader.poll(0.2)
    if message is None or message.error() is not None:
        return None
    with suppress(UnknownWords):
        if message.key() == words.TOLD_KEY:
            return words.decode_told(message.value() or b"")
        if message.key() == words.WISH_KEY:
            return words.decode_wish(message.value() or b"")
    return None
