"""The names of a job's topics and of its sink in them."""

from __future__ import annotations

import re

from ...core.options import OptionReader, text

OURS = "__eo_kafka."  # so begin the names of all topics that are eo-kafka's own
LEDGER_TOPIC = "__eo_kafka.{job}.ledger"
STATE_TOPIC = "__eo_kafka.{job}.state"
PLAN_TOPIC = "__eo_kafka.{job}.plan"  # what `eo-kafka explain --job` shows
CONTROL_TOPIC = "__eo_kafka.{job}.control"  # what is asked of a supervisor, and its answer
MAIN_SINK = "main"
# What an export or a view cannot be called: its topic would look like one of a job's own, of a job
# "<job>.export" or "<job>.view".
RESERVED = ("ledger", "state", "plan", "control")
LEDGER_NAME = re.compile(re.escape(LEDGER_TOPIC).replace(r"\{job\}", "(?P<job>.+)"))
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_PART = re.compile(r"[a-zA-Z0-9_-]+")
_TOPIC_MAX = 249  # Kafka's limit
_KAFKAS = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


def is_internal(topic: str) -> bool:
    """Whether Kafka or eo-kafka keeps its own books in the topic."""
    return topic in _KAFKAS or topic.startswith(OURS)


def check_output(reader: OptionReader, option: str, topic: str | None) -> None:
    """Note it in `reader` if the topic that `option` (in quotes) names is not for rows."""
    if topic is not None and is_internal(topic):
        reader.problem(
            f"Option {option} is '{topic}': there Kafka or eo-kafka keeps its own books, which "
            "other records would spoil. Name another topic."
        )


def topic_name(value: str) -> str:
    """The name of a topic. Raises ValueError with the end of a sentence."""
    name = text(value)
    if not _NAME.fullmatch(name) or len(name) > _TOPIC_MAX or name in (".", ".."):
        raise ValueError(
            "must be a topic name: letters, digits, '.', '_' and '-', at most 249 characters"
        )
    return name


def is_part(name: str) -> bool:
    """Whether an export or a view of a job may have this name. No dot: it would not be known where
    the job's name ends."""
    return _PART.fullmatch(name) is not None and name not in RESERVED


def job_name(value: str) -> str:
    """The name of a job. Raises ValueError with the end of a sentence."""
    name = text(value)
    if not _NAME.fullmatch(name) or len(LEDGER_TOPIC.format(job=name)) > _TOPIC_MAX:
        raise ValueError(
            "must be usable in a topic name: letters, digits, '.', '_' and '-', "
            f"at most {_TOPIC_MAX - len(LEDGER_TOPIC.format(job=''))} characters"
        )
    return name
