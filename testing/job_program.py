"""A driver: builds the user's query in a process of its own, and runs it. See job.py.

It says how it ended in its last line, `ENDED <reason>`, unless it was killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from ..tools.run.query_start import started
from ..tools.shared.job_function import job_function
from .driver import STARTED

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# With `-c`, what is imported is looked for where pytest runs first, and never in this folder.
COMMAND = "from eo_kafka.testing.job_program import main; main()"


def main() -> None:
    """Run the job that the one argument names, in JSON. Ends with the process that started it."""
    asked_to_stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_stop.set())
    threading.Thread(target=_end_with_the_test, daemon=True).start()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    words = json.loads(sys.argv[1])
    builder: Any = SparkSession.builder
    for name, value in words["spark"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        made = job_function(words["build"])(spark, words["config"])
        is_done = made is None and words["may_be_batch"]
        query = None if is_done else started(made, words["drain"])
        if query is not None:
            print(f"\n{STARTED}", flush=True)  # noqa: T201 - what Driver.has_started reads
        if query is not None and words["drain"]:
            _drain(query)
        elif query is not None:
            while not query.awaitTermination(1) and not asked_to_stop.is_set():
                pass
            query.stop()
    except Exception as error:
        print(f"\nENDED {error}", flush=True)  # noqa: T201 - what Driver.reason() reads
        raise
    print("\nENDED in order", flush=True)  # noqa: T201


def _drain(query: StreamingQuery) -> None:
    query.processAllAvailable()
    query.stop()
    error = query.exception()
    if error is not None:
        raise error


def _end_with_the_test() -> None:
    """Nobody would end us if the test itself were killed."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)
