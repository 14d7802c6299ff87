"""The job's settings with their types, and how it reads and writes topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, get_type_hints

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

KAFKA = "kafka."
TRUE = {"true": True, "false": False}
S = TypeVar("S", bound="Job")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every job has. `kafka` are client settings, such as `kafka.security.protocol`."""

    bootstrap_servers: str
    source: str
    sink: str
    checkpoint: str
    job_name: str
    snapshots: bool = True
    kafka: Mapping[str, str] = field(default_factory=dict)


def typed(kind: type[S], config: Mapping[str, str]) -> S:
    """Settings of text with their types. Raises ValueError, which tells all that is wrong."""
    types, problems = get_type_hints(kind), []
    found: dict[str, Any] = {}
    known = {one.name: one for one in fields(kind) if one.name != "kafka"}
    for name, one in known.items():
        if name not in config:
            if one.default is MISSING:
                problems.append(f"'{name}' is missing")
            continue
        if not config[name] and one.default is MISSING:
            problems.append(f"'{name}' is empty")
            continue
        try:
            found[name] = _value(types[name], config[name])
        except (KeyError, ValueError):
            expected = {int: "a whole number", bool: "true or false"}.get(types[name], "a number")
            problems.append(f"'{name}' is '{config[name]}', and must be {expected}")
    problems += [f"'{n}' is unknown" for n in config if n not in known and not n.startswith(KAFKA)]
    if problems:
        raise ValueError(f"The job's settings: {'; '.join(problems)}.")
    return kind(**found, kafka={n: text for n, text in config.items() if n.startswith(KAFKA)})


def read(spark: SparkSession, job: Job, topic: str, schema: str, **options: str) -> DataFrame:
    """A topic of JSON as columns: those of `schema`, and the record's key as text."""
    stream = spark.readStream.format("eo-kafka")
    return stream.options(**{**source(job, topic, schema), **options}).load()


def source(job: Job, topic: str, schema: str) -> dict[str, str]:
    """The source's options, also for `spark.read`."""
    return {
        **kafka(job),
        "subscribe": topic,
        "startingOffsets": "earliest",
        "key.format": "string",
        "value.format": "json",
        **({"value.schema": schema} if schema else {}),
    }


def write(rows: DataFrame, job: Job, **to: str) -> DataStreamWriter:
    """The query, not started: columns `key` and `value`, exactly once. A `value` that is a struct
    becomes JSON. `to`: options of the sink, and `format` where it is not eo-kafka."""
    options = {"format": "eo-kafka", **sink(job), **to}
    return (
        rows.writeStream.format(options.pop("format"))
        .options(**options)
        .option("checkpointLocation", job.checkpoint)
        .queryName(job.job_name)
    )


def sink(job: Job) -> dict[str, str]:
    """The sink's options, also for `eo_kafka.foreach_batch`."""
    snapshots = str(job.snapshots).lower()
    named = {"jobName": job.job_name, "snapshots": snapshots, "value.format": "json"}
    return {**kafka(job), **named}


def kafka(job: Job) -> dict[str, str]:
    """How Kafka is reached."""
    return {"kafka.bootstrap.servers": job.bootstrap_servers, **job.kafka}


def _value(kind: Any, text: str) -> object:
    return TRUE[text.lower()] if kind is bool else kind(text)
