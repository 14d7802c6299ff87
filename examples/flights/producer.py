"""Plays the flights into a topic, in the order of event time. A process of its own.

The partitions are filled in step: flights go round them one by one, and a day is acknowledged
before the next one begins. So one partition is never more than a day ahead of another, and none
of its flights is late for a watermark that waits two days. (Event time is in the values. Kafka's
own timestamps say now: a broker deletes what looks older than its retention.)

After the last flight the clock goes on ticking, or the watermark would never close the last
windows. A tick looks like a flight of a carrier that no airline has.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable, Iterator

import pandas as pd
from confluent_kafka import Producer
from flights import HOUR, flights

CLOCK = "clock"
CLOCK_DAYS = 3  # longer than the watermark waits


def main() -> None:
    arguments = _arguments()
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 20,
        }
    )
    table = flights(arguments.limit)
    seconds_each = arguments.seconds / len(table)
    partitions = itertools.cycle(range(arguments.partitions))
    begin, sent = time.monotonic(), 0
    for events in days(table):
        send(producer, arguments.topic, events, partitions)
        sent += len(events)
        time.sleep(max(0.0, begin + sent * seconds_each - time.monotonic()))
    for tick in ticks(table["scheduled"].iloc[-1]):
        send(producer, arguments.topic, [tick] * arguments.partitions, partitions)


def days(table: pd.DataFrame) -> Iterator[list[str]]:
    """The flights as JSON, a list for each day."""
    for _, day in table.groupby(table["scheduled"].dt.floor("D"), sort=False):
        yield [
            json.dumps(
                {
                    "carrier": row.carrier,
                    "flight": row.flight,
                    "origin": row.origin,
                    "dest": row.dest,
                    "scheduled": row.scheduled.strftime(HOUR),
                    "delay": None if pd.isna(row.delay) else int(row.delay),
                }
            )
            for row in day.itertuples()
        ]


def ticks(last: pd.Timestamp) -> Iterator[str]:
    """The hours after the last flight, as events."""
    for hour in pd.date_range(last.ceil("h"), periods=CLOCK_DAYS * 24, freq="h"):
        yield json.dumps({"carrier": CLOCK, "scheduled": hour.strftime(HOUR)})


def send(producer: Producer, topic: str, events: Iterable[str], partitions: Iterator[int]) -> None:
    """Write the events, one to each partition in turn; return when all are acknowledged."""
    failures: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    for event in events:
        producer.produce(topic, event, partition=next(partitions), on_delivery=delivered)
    unsent = producer.flush(60)
    if failures or unsent:
        raise SystemExit(f"The broker did not take {unsent + len(failures)} events: {failures[:3]}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    parser.add_argument("--seconds", type=float, required=True, help="how long to play")
    return parser.parse_args()


if __name__ == "__main__":
    main()
