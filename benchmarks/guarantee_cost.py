"""What the guarantees cost the copy benchmark: exactly once, and `snapshots=true` on top of it.

    python -m benchmarks.guarantee_cost [--rounds 5] [--records N] [--sizes 100,1000]

Run it from the root of the repository. The copy of benchmarks/throughput.py by eo-kafka's own
guarantees and nothing else, in turns, in more rounds: a few percent are less than the spread of
three. A guarantee is paid for by the batch, so the table says how long batches took; `--records`
makes them longer.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from statistics import median

from benchmarks import report
from benchmarks.queries import AT_LEAST_ONCE, EXACTLY_ONCE, SNAPSHOTS, Runner
from benchmarks.session import benchmark_session, environment
from benchmarks.throughput import BATCHES, Measurement, large_workload
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it and print a table for each size of records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guarantee_cost")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds, after a warm-up")
    parser.add_argument("--records", type=int, help="in each topic; by default 400 MB of them")
    parser.add_argument("--sizes", default="100,1000", help="bytes a record, comma-separated")
    options = parser.parse_args(arguments)
    load = round(os.getloadavg()[0], 1)
    with (
        KafkaBroker(properties=BROKER_PROPERTIES) as broker,
        benchmark_session() as spark,
    ):
        topics = Topics(broker.bootstrap_servers)
        runner = Runner(spark, topics)
        for size in map(int, options.sizes.split(",")):
            workload = large_workload(size, options.records)
            topics.fill(workload)
            measured = _copy(runner, workload)
            for round_number in range(options.rounds + 1):
                measured.play(round_number)
            print(_table(measured), flush=True)
        facts = {**environment(spark, broker.version), "rounds": options.rounds}
    print(", ".join(f"{name} {value}" for name, value in {**facts, "load before": load}.items()))


def _copy(runner: Runner, workload: Workload) -> Measurement:
    return Measurement(
        f"copy {workload.size} B",
        f"Topic to topic, {workload.size}-byte records",
        (AT_LEAST_ONCE, EXACTLY_ONCE, SNAPSHOTS),
        lambda contender: runner.copy(contender, workload, BATCHES),
    )


def _table(measured: Measurement) -> str:
    rates = measured.rates()
    runs = measured.results[EXACTLY_ONCE.name]
    seconds = median(batch.seconds for run in runs for batch in report.steady(run))
    title = f"{measured.title}, batches of {seconds:.1f} s"
    return "\n\n".join(
        (
            report.throughput_table(title, rates, AT_LEAST_ONCE.name),
            report.cost_line(rates, SNAPSHOTS.name, EXACTLY_ONCE.name),
        )
    )


if __name__ == "__main__":
    sys.exit(main())
