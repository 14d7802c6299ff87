"""What reading a compacted topic as a map costs beside the Kafka source on the same records.

    python -m benchmarks.map_topic [--records 500000] [--rounds 5]

Run it from the root of the repository. Values are JSON of 100 bytes, keys are text, one partition,
each key twice. In each round, in turns: the Kafka source's reader, a map's changes as text, a map's
entries as text, all in one process, on its own Kafka; so the ratios are of one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.core.offsets import OffsetRange, TopicPartition
from eo_kafka.sources.maps.topic_options import TopicMapOptions
from eo_kafka.sources.maps.topic_position import now_ms
from eo_kafka.sources.maps.topic_reader import ChangesTask, plan_entries, read_changes, read_entries
from eo_kafka.sources.reader import read_range

MAP = "bench"


def main() -> None:
    arguments = _arguments()
    records = arguments.records
    with KafkaBroker() as kafka:
        _fill(kafka.bootstrap_servers, records)
        given = {
            "backend": "kafka",
            "map": MAP,
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
        }
        options = TopicMapOptions.parse(given, streaming=False)
        whole = OffsetRange(TopicPartition(MAP, 0), 0, records)
        changes = ChangesTask(whole, now_ms() + 10**9)
        (entries,) = plan_entries(options)
        ways: dict[str, tuple[Callable[[], int], int]] = {
            "Kafka source": (
                lambda: sum(one.num_rows for one in read_range(options.source, whole)),
                records,
            ),
            "changes of a map": (
                lambda: sum(one.num_rows for one in read_changes(options, changes)),
                records,
            ),
            "entries of a map": (
                lambda: sum(one.num_rows for one in read_entries(options, entries)),
                (records + 1) // 2,
            ),
        }
        _report(ways, records, arguments.rounds)


def _report(ways: dict[str, tuple[Callable[[], int], int]], records: int, rounds: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, (way, rows) in ways.items():
            begin = time.perf_counter()
            assert way() == rows, name
            if turn:  # the first one warms up
                rates[name].append(records / (time.perf_counter() - begin))
    source, *maps = ways
    for name in ways:
        print(f"{name:18} {median(rates[name]):10,.0f} records a second")
    for name in maps:
        ratios = sorted(one / of for one, of in zip(rates[name], rates[source], strict=True))
        print(
            f"{name} / {source}: {median(ratios):.2f} "
            f"(from {ratios[0]:.2f} to {ratios[-1]:.2f} in {rounds} rounds)"
        )


def _fill(servers: str, records: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    # Never compacted while it is measured
    config = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
    admin.create_topics([NewTopic(MAP, 1, config=config)])[MAP].result(30)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20})
    pad = "x" * 71
    for number in range(records):
        value = f'{{"id": {number:9}, "text": "{pad}"}}'
        while True:
            try:
                producer.produce(MAP, value, f"key-{number // 2}")
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(60) == 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


if __name__ == "__main__":
    main()
