"""Runs statements of Flink SQL from topic to topic, one job after the other. In Flink's own
environment.

Each line of standard input is a job, a JSON object: topic, output, servers, guarantee, settings
(of the sink's producer); the options of both tables and more of the sink's, and the columns that
are `read` and `written`; and the `query` over table `source`. The answer to each is a line that
begins with ANSWER, among what the JVM has to say: "done", once the job has ended and its last
checkpoint is committed, or what went wrong. A job with an `interval` of checkpoints has no end:
"done" is said when it runs, and again to the line {"cancel": true}, when it was cancelled.
One JVM runs them all, so that what it compiled for one job is there for the next, as it is for the
queries of the Spark session.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError
from pyflink.table import EnvironmentSettings, TableEnvironment, TableResult

ANSWER = "answer: "


def table(name: str, columns: str, options: dict[str, str]) -> str:
    given = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TEMPORARY TABLE {name} ({columns}) WITH ({given})"


def started(tables: TableEnvironment, job: dict[str, Any]) -> TableResult:
    servers = {"properties.bootstrap.servers": job["servers"]}
    common = {"connector": "kafka", **servers, **job["options"]}
    source = {**common, "topic": job["topic"], "scan.startup.mode": "earliest-offset"}
    if "interval" in job:
        tables.get_config().set("execution.checkpointing.interval", job["interval"])
    else:
        source["scan.bounded.mode"] = "latest-offset"
    sink = {
        **common,
        **job["sink_options"],
        "topic": job["output"],
        "sink.delivery-guarantee": job["guarantee"],
        "sink.transactional-id-prefix": job["output"],
        **{f"properties.{name}": value for name, value in job["settings"].items()},
    }
    tables.execute_sql(table("source", job["read"], source))
    tables.execute_sql(table("sink", job["written"], sink))
    try:
        return tables.execute_sql(f"INSERT INTO sink {job['query']}")
    finally:
        tables.execute_sql("DROP TEMPORARY TABLE source")
        tables.execute_sql("DROP TEMPORARY TABLE sink")


def await_status(result: TableResult, name: str) -> None:
    client = result.get_job_client()
    until = time.monotonic() + 60
    while (status := client.get_job_status().result().name) != name:
        if time.monotonic() > until:
            raise TimeoutError(f"the job is {status}, not {name}")
        time.sleep(0.05)


def obey(tables: TableEnvironment, request: dict[str, Any], running: list[TableResult]) -> None:
    if "cancel" in request:
        result = running.pop()
        result.get_job_client().cancel().result()
        with suppress(Py4JError):  # the cluster of a job ends with it, and is not there to answer
            await_status(result, "CANCELED")
        return
    result = started(tables, request)
    if "interval" in request:
        await_status(result, "RUNNING")
        running.append(result)
    else:
        result.wait()


def main() -> None:
    """The configuration is the first argument, a JSON object of Flink's own names."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in json.loads(sys.argv[1]).items():
        tables.get_config().set(name, value)
    running: list[TableResult] = []
    for line in sys.stdin:
        try:
            obey(tables, json.loads(line), running)
            print(f"{ANSWER}done", flush=True)
        except Exception as error:
            print(ANSWER + " ".join(str(error).split())[-1500:], flush=True)


if __name__ == "__main__":
    main()
