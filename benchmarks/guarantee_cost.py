"""What the guarantees cost the copy benchmark: exactly once, and `snapshots=true` on top of it.

    python -m benchmarks.guarantee_cost [--rounds 6] [--batches 9] [--records N] [--sizes 100,1000]

Run it from the root of the repository. The copy of benchmarks/throughput.py by eo-kafka's own
guarantees and nothing else, in turns, with more batches a query: a few percent are less than the
spread of three, and less than what the JVM gains in its first rounds. So three rounds warm up, and
a multiple of three counts: each contender comes first, second and third as often. A guarantee is
paid for by the batch, whatever is in it, so below each table stands how long batches took;
`--records` makes them longer.
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
from benchmarks.throughput import BATCHES, BYTES, Measurement, large_workload
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker

WARM_UP = 3
SMALLEST = 200_000  # records of a batch


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it and print a table for each size of records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guarantee_cost")
    parser.add_argument("--rounds", type=int, default=6, help="measured, after the warm-up")
    parser.add_argument("--batches", type=int, default=9, help="a query; two are left out")
    parser.add_argument("--records", type=int, help="in each batch; 80 MB or more by default")
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
            a_batch = options.records or max(SMALLEST, BYTES // BATCHES // size)
            workload = large_workload(size, a_batch * options.batches)
            topics.fill(workload)
            measured = _copy(runner, workload, options.batches)
            for round_number in (*[0] * WARM_UP, *range(1, options.rounds + 1)):
                measured.play(round_number)
            print(_table(measured), flush=True)
        facts = {**environment(spark, broker.version), "rounds": options.rounds}
    print(", ".join(f"{name} {value}" for name, value in {**facts, "load before": load}.items()))


def _copy(runner: Runner, workload: Workload, batches: int) -> Measurement:
    return Measurement(
        f"copy {workload.size} B",
        f"Topic to topic, {workload.size}-byte records",
        (AT_LEAST_ONCE, EXACTLY_ONCE, SNAPSHOTS),
        lambda contender: runner.copy(contender, workload, batches),
    )


def _table(measured: Measurement) -> str:
    rates = measured.rates()
    return "\n\n".join(
        (
            report.throughput_table(measured.title, rates, AT_LEAST_ONCE.name),
            report.cost_line(rates, SNAPSHOTS.name, EXACTLY_ONCE.name),
            _batch_line(measured),
        )
    )


def _batch_line(measured: Measurement) -> str:
    """How long a batch took, and how much longer than at least once: medians of all rounds."""
    took = {
        one.name: median(
            batch.seconds for run in measured.results[one.name] for batch in report.steady(run)
        )
        for one in measured.contenders
    }
    least = took[AT_LEAST_ONCE.name]
    return "; ".join(
        f"{name}: a batch in {seconds:.2f} s ({(seconds - least) * 1000:+.0f} ms)"
        for name, seconds in took.items()
    )


if __name__ == "__main__":
    sys.exit(main())
