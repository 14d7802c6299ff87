"""What the first use of compiled loops costs a process, with nothing in the cache, and from it.

    python -m benchmarks.first_use [--rounds 5]

CPU seconds of all threads, from the first call to its result: importing numba, compiling or
loading. Decoders are waited for; in a worker that stays they are compiled in the background
(core/warm_up.py).
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import pyarrow as pa

from eo_kafka.tools.prepare.loops import USES


def command(name: str) -> list[str]:
    """What uses one for the first time, prints what it gave, and how long it took."""
    return [sys.executable, "-m", "benchmarks.first_use", "--one", name]


def environment(cache: str) -> dict[str, str]:
    """This process's, with `cache` as the user's cache folder."""
    env = {**os.environ, "XDG_CACHE_HOME": cache}
    env.pop("SPARK_REUSE_WORKER", None)
    return env


def _one(name: str) -> None:
    importlib.import_module("pyspark.sql.types")  # which a worker has, and what Arrow imports
    pa.array([b""])
    from eo_kafka.core import librdkafka

    began = time.process_time()
    reason = librdkafka.available()
    if reason is not None:
        sys.exit(reason)
    print(USES[name]())
    print(f"{time.process_time() - began:.2f}")


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", choices=USES, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.one:
        _one(arguments.one)
        return
    print("| loops | compiled, CPU s | from the cache, CPU s |\n|---|---|---|")
    for name in USES:
        pairs = []
        for _ in range(arguments.rounds):
            with tempfile.TemporaryDirectory() as cache:
                run = [
                    subprocess.run(
                        command(name), env=environment(cache), text=True, check=True,
                        stdout=subprocess.PIPE,
                    ).stdout.split()[-1]
                    for _ in range(2)
                ]  # fmt: skip
            pairs.append([float(one) for one in run])
        first, cached = (sorted(side) for side in zip(*pairs, strict=True))
        print(
            f"| {name} | {statistics.median(first):.1f} ({first[0]:.1f}-{first[-1]:.1f}) | "
            f"{statistics.median(cached):.2f} ({cached[0]:.2f}-{cached[-1]:.2f}) |"
        )


if __name__ == "__main__":
    main()
