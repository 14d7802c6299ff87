"""Copies topics with Flink SQL, one job after the other. Runs in Flink's own environment.

Each line of standard input is a job, a JSON object: topic, output, servers, guarantee, settings
(of the sink's producer). The answer to each is a line that begins with ANSWER, among what the JVM
has to say: "done", once the job has ended and its last checkpoint is committed, or what went wrong.
One JVM runs them all, so that what it compiled for one job is there for the next, as it is for the
queries of the Spark session.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment

ANSWER = "answer: "
CONNECTOR = {
    "connector": "kafka",
    "key.format": "raw",
    "key.fields": "k",
    "value.format": "raw",
    "value.fields-include": "EXCEPT_KEY",
}


def table(name: str, options: dict[str, str]) -> str:
    given = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    return f"CREATE TEMPORARY TABLE {name} (k BYTES, v BYTES) WITH ({given})"


def copy(tables: TableEnvironment, job: dict[str, Any]) -> None:
    """One bounded job. Returns when all of it is committed."""
    common = {**CONNECTOR, "properties.bootstrap.servers": job["servers"]}
    source = {
        **common,
        "topic": job["topic"],
        "scan.startup.mode": "earliest-offset",
        "scan.bounded.mode": "latest-offset",
    }
    sink = {
        **common,
        "topic": job["output"],
        "sink.delivery-guarantee": job["guarantee"],
        "sink.transactional-id-prefix": job["output"],
        **{f"properties.{name}": value for name, value in job["settings"].items()},
    }
    tables.execute_sql(table("source", source))
    tables.execute_sql(table("sink", sink))
    try:
        tables.execute_sql("INSERT INTO sink SELECT k, v FROM source").wait()
    finally:
        tables.execute_sql("DROP TEMPORARY TABLE source")
        tables.execute_sql("DROP TEMPORARY TABLE sink")


def main() -> None:
    """The configuration is the first argument, a JSON object of Flink's own names."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for name, value in json.loads(sys.argv[1]).items():
        tables.get_config().set(name, value)
    for line in sys.stdin:
        try:
            copy(tables, json.loads(line))
            print(f"{ANSWER}done", flush=True)
        except Exception as error:
            print(ANSWER + " ".join(str(error).split())[-1500:], flush=True)


if __name__ == "__main__":
    main()
