"""The committed output against a batch computation over the same flights, row by row."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd
import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from flights import DELAYED_MINUTES, HOUR, airline_names

COUNTS = ("flights", "cancelled", "delayed", "minutes", "worst")
Key = tuple[str, str]  # carrier, hour
Row = dict[str, object]


@dataclass(frozen=True)
class Comparison:
    """Lost: windows that are not there. Duplicates: records beyond a window's first. Wrong:
    records with other contents than the batch computation's, or for windows it does not have."""

    windows: int
    records: int
    lost: int
    duplicates: int
    wrong: int

    @property
    def equal(self) -> bool:
        """Whether the output is exactly what it should be."""
        return self.lost == self.duplicates == self.wrong == 0


def compare(expected: dict[Key, Row], found: list[tuple[Key, Row]]) -> Comparison:
    """Count what differs."""
    copies = Counter(key for key, _ in found)
    return Comparison(
        windows=len(expected),
        records=len(found),
        lost=len(expected.keys() - copies.keys()),
        duplicates=len(found) - len(copies),
        wrong=sum(expected.get(key) != row for key, row in found),
    )


def computed(flights: pd.DataFrame) -> dict[Key, Row]:
    """The batch computation: what job.py's `delays` should come to, by pandas."""
    names = airline_names()
    hours = flights.assign(
        hour=flights["scheduled"].dt.floor("h"),
        cancelled=flights["delay"].isna(),
        delayed=(flights["delay"] > DELAYED_MINUTES).fillna(False),
    ).groupby(["carrier", "hour"])
    table = hours.agg(
        flights=("flight", "size"),
        cancelled=("cancelled", "sum"),
        delayed=("delayed", "sum"),
        worst=("delay", "max"),
    )
    table["minutes"] = hours["delay"].sum(min_count=1)  # no sum, if none departed
    windows: dict[Key, Row] = defaultdict(dict)
    for row in table.reset_index().to_dict("records"):
        carrier = row.pop("carrier")
        key = (carrier, row.pop("hour").strftime(HOUR))
        windows[key] = {"airline": names[carrier]}
        # Spark's JSON leaves out what is null.
        windows[key] |= {name: int(value) for name, value in row.items() if not pd.isna(value)}
    return dict(windows)


def committed(bootstrap_servers: str, topic: str) -> list[tuple[Key, Row]]:
    """The windows that a `read_committed` consumer sees, every record of them."""
    found = []
    for message in _messages(bootstrap_servers, topic):
        key = json.loads(message.key() or b"")
        found.append(((key["carrier"], key["hour"]), json.loads(message.value() or b"")))
    return found


def create_table(url: str, table: str) -> None:
    """An empty one. It has no key: a row that is written twice is there twice."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE {table} (carrier text, hour text, airline text, "
            + ", ".join(f"{name} bigint" for name in COUNTS)
            + ")"
        )


def stored(url: str, table: str) -> list[tuple[Key, Row]]:
    """The windows in a table, every row of them."""
    names = ("airline", *COUNTS)
    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT carrier, hour, {', '.join(names)} FROM {table}")
        return [
            (
                (carrier, hour),
                {of: one for of, one in zip(names, row, strict=True) if one is not None},
            )
            for carrier, hour, *row in rows
        ]


def _messages(bootstrap_servers: str, topic: str) -> Iterator[Message]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "compare",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        waiting = set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in waiting])
        while waiting:
            message = consumer.poll(60)
            if message is None:
                raise SystemExit(f"The broker sent nothing of '{topic}' for a minute.")
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
