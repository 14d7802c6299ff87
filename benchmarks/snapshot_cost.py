"""What `snapshots=true` costs the copy benchmark: the figure that decides its default.

    python -m benchmarks.snapshot_cost [--rounds 8] [--records 800000] [--sizes 100,1000]

Run it from the root of the repository. The copy of benchmarks/throughput.py, exactly once, with and
without snapshots and nothing else, in turns, in more rounds: a few percent are less than the spread
of three.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks import report
from benchmarks.queries import EXACTLY_ONCE, SNAPSHOTS, Runner
from benchmarks.session import CORES, benchmark_session, environment
from benchmarks.throughput import BATCHES, Measurement
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it and print a table for each size of records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshot_cost")
    parser.add_argument("--rounds", type=int, default=8, help="measured rounds, after a warm-up")
    parser.add_argument("--records", type=int, default=800_000, help="records in each topic")
    parser.add_argument("--sizes", default="100,1000", help="bytes a record, comma-separated")
    options = parser.parse_args(arguments)
    with (
        KafkaBroker(properties=BROKER_PROPERTIES) as broker,
        benchmark_session() as spark,
    ):
        topics = Topics(broker.bootstrap_servers)
        runner = Runner(spark, topics)
        for size in map(int, options.sizes.split(",")):
            workload = Workload(f"input-{size}", options.records, size, CORES)
            topics.fill(workload)
            measured = _copy(runner, workload)
            for round_number in range(options.rounds + 1):
                measured.play(round_number)
            rates = measured.rates()
            print(report.throughput_table(measured.title, rates, EXACTLY_ONCE.name), flush=True)
        facts = {**environment(spark, broker.version), "rounds": options.rounds}
    print(", ".join(f"{name} {value}" for name, value in facts.items()))


def _copy(runner: Runner, workload: Workload) -> Measurement:
    return Measurement(
        f"copy {workload.size} B",
        f"Topic to topic, {workload.size}-byte records",
        (EXACTLY_ONCE, SNAPSHOTS),
        lambda contender: runner.copy(contender, workload, BATCHES),
    )


if __name__ == "__main__":
    sys.exit(main())
