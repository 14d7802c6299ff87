"""A query's plan, recorded for `eo-kafka explain --job`: the newest record of a topic of its own.

The ledger cannot hold it: it is read strictly, and an earlier version would refuse the record.
Nothing reads this topic but `explain`, and no step of the protocol knows of it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from ...clients.kafka.config import connection_settings, producer
from ...clients.kafka.topics import exists
from ...core.errors import EnvironmentRefused, EoKafkaError, OptionsError
from ...core.options import json_object
from ...state.ledger import compacted_topic
from ...state.ledger.job_topics import PLAN_TOPIC
from ...state.ledger.log_reader import read_records
from ...state.snapshots.search import SnapshotSearch
from .pipeline import Pipeline

_KEY, _VERSION, _WAIT_S = b"plan", 1, 30.0


def record(pipeline: Pipeline, options: Mapping[str, str]) -> str:
    """Write it, and create the topic if need be; the topic's name. `options` as given to the sink.
    Driver, once for each start of the query.

    Raises OptionsError without a job's name, EnvironmentRefused.
    """
    lower = {name.lower(): value for name, value in options.items()}
    job = lower.get("jobname") or lower.get("queryname")
    if not job:
        raise OptionsError(["A plan is recorded under the job's name: give option 'jobName'."])
    search = SnapshotSearch(job, options)
    topic = PLAN_TOPIC.format(job=search.job)
    compacted_topic.ensure_one(search.options, search.admin, topic, search.brokers)
    value = {"v": _VERSION, "madeMs": int(time.time() * 1000), "plan": pipeline.encode()}
    errors: list[Any] = []
    client = producer(connection_settings(search.options.kafka))
    client.produce(
        topic,
        json.dumps(value).encode(),
        _KEY,
        on_delivery=lambda error, _message: errors.append(error),
    )
    left = client.flush(_WAIT_S)
    if left or errors[0] is not None:
        why = errors[0].str() if errors else f"no answer within {_WAIT_S:.0f} s"
        raise EnvironmentRefused(
            f"The plan of job '{job}' was not recorded in topic '{topic}': {why}. The query itself "
            "is not concerned."
        )
    return topic


def recorded(job: str, options: Mapping[str, str]) -> tuple[Pipeline, int]:
    """The newest plan of a job, and when it was recorded, in ms. Creates nothing.

    Raises EoKafkaError if there is none or it cannot be read, OptionsError, EnvironmentRefused,
    ReadTimeout.
    """
    search = SnapshotSearch(job, options)
    topic = PLAN_TOPIC.format(job=search.job)
    none = (
        f"No plan of job '{job}' is recorded (topic '{topic}'). A program records it by "
        "eo_kafka.explain(query, record=True) after each start. Without that: eo-kafka explain "
        "my_app.pipeline:build"
    )
    if not exists(search.admin, topic):
        raise EoKafkaError(none)
    end = search.control.end_offset(topic, 0, committed=True)
    newest = None
    for _offset, key, value in read_records(search.options.kafka, topic, 0, 0, end):
        newest = value if key == _KEY else newest
    if newest is None:
        raise EoKafkaError(none)
    try:
        fields = json_object(newest.decode())
        if fields["v"] != _VERSION:
            raise ValueError(f"version {fields['v']!r} is not {_VERSION}")
        return Pipeline.decode(fields["plan"]), int(fields["madeMs"])
    except (KeyError, TypeError, ValueError) as error:
        raise EoKafkaError(
            f"The plan of job '{job}' in topic '{topic}' cannot be read ({error}). Another version "
            "of eo-kafka recorded it: start the query again, with this one."
        ) from None
