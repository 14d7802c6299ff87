"""The sink's options, their defaults and the sentences about wrong ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from eo_kafka.errors import OptionsError, cut
from eo_kafka.options import (
    KafkaSettings,
    Option,
    OptionReader,
    boolean,
    one_of,
    text,
    time_span_ms,
    whole_number,
)
from eo_kafka.sinks.map_staging import MapTarget
from eo_kafka.sinks.transactional_id import TransactionalIds
from eo_kafka.state.job_topics import (
    LEDGER_TOPIC,
    MAIN_SINK,
    STATE_TOPIC,
    job_name,
    topic_name,
)

EXACTLY_ONCE, AT_LEAST_ONCE, NONE = "exactly-once", "at-least-once", "none"
TWO_PHASE, IDEMPOTENT = "two-phase", "idempotent"
# The most that Kafka allows by default: a batch that takes longer can never commit, and a job that
# is down for longer repeats a batch (or repairs it), while read_committed readers wait this long.
DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000

TOPIC: Option[str | None] = Option(
    "topic", text, None, "Topic of all rows; without it each row names its own in column `topic`."
)
GUARANTEE = Option(
    "guarantee",
    one_of(EXACTLY_ONCE, AT_LEAST_ONCE, NONE),
    EXACTLY_ONCE,
    "What holds for the rows whatever dies: `exactly-once`, `at-least-once` or `none`.",
)
COMMIT = Option(
    "commit",
    one_of(TWO_PHASE, IDEMPOTENT),
    TWO_PHASE,
    "How exactly-once is kept: `two-phase`, a batch is visible as a whole, by the driver's "
    "decision; or `idempotent`, each task commits its own rows and a replay skips them, for plans "
    "that replay the same rows into the same partitions (others are found out and stop).",
)
JOB_NAME: Option[str | None] = Option(
    "jobName",
    job_name,
    None,
    "The stable name under which the ledger is kept. Default: the query name, else the query id.",
)
BATCH_ID: Option[int | None] = Option(
    "batchId",
    whole_number(0),
    None,
    "Batch writes only, with a `jobName`: the number of this write among the job's, higher than "
    "those before it. It is written once, however often it is tried.",
)
LEDGER: Option[str | None] = Option(
    "ledgerTopic", topic_name, None, "The job's ledger. Default: `__eo_kafka.<jobName>.ledger`."
)
SNAPSHOTS = Option(
    "snapshots",
    boolean,
    False,
    "Whether each decision takes a snapshot of the checkpoint with it, into the state topic, from "
    "which a job whose checkpoint is lost goes on. Needs a `jobName` or a query name.",
)
SNAPSHOT_INTERVAL = Option(
    "snapshotInterval",
    time_span_ms,
    0,
    "How long after a snapshot the next one is taken, such as `5 minutes` or `30 s`; 0: with every "
    "batch. In between decisions record the sources' offsets, which a reader with option `jobName` "
    "follows after a restore; 500 batches at most.",
)
STATE: Option[str | None] = Option(
    "stateTopic", topic_name, None, "The job's snapshots. Default: `__eo_kafka.<jobName>.state`."
)
PREFIX = Option(
    "transactionalIdPrefix", topic_name, "eo-kafka", "How the transactional ids of all jobs begin."
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    boolean,
    True,
    "Whether the query stops when a topic that it reads was deleted and made again since its last "
    "batch (as far as the sink's cluster has that topic); with false it goes on with a warning.",
)
WEAK_REPLICATION = Option(
    "allowWeakReplication",
    boolean,
    False,
    "Go on where the ledger or Kafka's own transaction log could lose an acknowledged decision.",
)
OPTIONS = (
    TOPIC,
    GUARANTEE,
    COMMIT,
    JOB_NAME,
    BATCH_ID,
    LEDGER,
    SNAPSHOTS,
    SNAPSHOT_INTERVAL,
    STATE,
    PREFIX,
    FAIL_ON_DATA_LOSS,
    WEAK_REPLICATION,
)

REFUSED_KAFKA = {
    "key.serializer": "keys are binary or string columns and are sent as they are",
    "value.serializer": "values are binary or string columns and are sent as they are",
    "transactional.id": "transactional ids are the connector's own; "
    "set 'transactionalIdPrefix' to tell jobs apart",
}
# (setting, values that keep the promise, what the others would do)
_NEEDS = (
    ("enable.idempotence", ("true",), "retries could repeat or reorder rows"),
    ("acks", ("all", "-1"), "an acknowledged row could be lost with its leader"),
    ("request.required.acks", ("all", "-1"), "an acknowledged row could be lost with its leader"),
)


@dataclass(frozen=True)
class SinkOptions:
    """The checked options of one sink. Pickled to the executors; its repr shows no secret."""

    kafka: KafkaSettings
    guarantee: str
    commit: str
    topic: str | None
    prefix: str
    job: str | None
    ledger_topic: str | None
    batch_id: int | None
    query_id: str | None
    allow_weak_replication: bool
    fail_on_data_loss: bool
    snapshots: bool
    snapshot_interval_ms: int
    state_topic: str | None
    checkpoint: str | None
    query_name: str | None
    sink: str = MAIN_SINK
    staging: MapTarget | None = None  # a map that the rows go into

    @classmethod
    def parse(cls, given: Mapping[str, str], streaming: bool) -> SinkOptions:
        """Check everything that can be checked without a broker.

        Runs in driver-side workers, for each `streamWriter()`. Raises OptionsError with all
        problems at once. The job's name is the option, else the query's name, else its id.
        """
        reader = OptionReader(given)
        kafka = reader.kafka(REFUSED_KAFKA)
        guarantee = reader.get(GUARANTEE)
        if guarantee != NONE:
            _check_needs(reader, kafka, guarantee)
        commit = reader.get(COMMIT)
        if commit == IDEMPOTENT and (guarantee != EXACTLY_ONCE or not streaming):
            reader.problem(
                "Option 'commit' is 'idempotent', which is a way of streaming writes with "
                "guarantee 'exactly-once' only. Take the option away."
            )
        if BATCH_ID.name in reader:
            _check_batch_id(reader, streaming, guarantee)
        query_id = _query_id(given.get("checkpointlocation")) if streaming else None
        job = reader.get(JOB_NAME)
        named = JOB_NAME.name in reader  # a wrong name has been told already
        if streaming and guarantee == EXACTLY_ONCE and not named:
            job = _default_job(reader, given, query_id)
        ledger = reader.get(LEDGER)
        if ledger is None and job is not None:
            ledger = LEDGER_TOPIC.format(job=job)
        topic = reader.get(TOPIC)
        named = named or bool(given.get("queryname"))
        snapshots = _snapshots(reader, streaming and guarantee == EXACTLY_ONCE and named)
        state = reader.get(STATE)
        if state is None and job is not None:
            state = STATE_TOPIC.format(job=job)
        _check_different(reader, {"topic": topic, "ledgerTopic": ledger, "stateTopic": state})
        options = cls(
            kafka=kafka,
            guarantee=guarantee,
            commit=commit,
            topic=topic,
            prefix=reader.get(PREFIX),
            job=job,
            ledger_topic=ledger,
            batch_id=reader.get(BATCH_ID),
            query_id=query_id,
            allow_weak_replication=reader.get(WEAK_REPLICATION),
            fail_on_data_loss=reader.get(FAIL_ON_DATA_LOSS),
            snapshots=snapshots,
            snapshot_interval_ms=reader.get(SNAPSHOT_INTERVAL),
            state_topic=state,
            checkpoint=given.get("checkpointlocation"),
            query_name=given.get("queryname"),
        )
        reader.check_names([option.name for option in OPTIONS])
        _check_client_settings(reader, kafka)
        reader.finish()
        return options

    @property
    def transaction_timeout_ms(self) -> int:
        """How long the broker waits for a batch, counted from its first row."""
        return int(self.kafka.get("transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS))

    @property
    def exactly_once(self) -> bool:
        """Whether rows go into transactions that the ledger keeps account of."""
        return self.guarantee == EXACTLY_ONCE

    @property
    def one_phase(self) -> bool:
        """Whether each task commits its own transaction."""
        return self.commit == IDEMPOTENT

    @property
    def target(self) -> str:
        """What the rows go to, in words; each decision records it."""
        topic = f"topic '{self.topic}'" if self.topic else "the topics that rows name"
        if self.staging is None:
            return topic
        also = f" and {topic}" if self.topic else ""
        return f"map '{cut(self.staging.map)}'{also}"

    @property
    def ids(self) -> TransactionalIds:
        """The job's transactional ids."""
        return TransactionalIds(self.prefix, self.job_and_ledger[0])

    @property
    def job_and_ledger(self) -> tuple[str, str]:
        """Both names; parsing made sure of them for an exactly-once stream."""
        if self.job is None or self.ledger_topic is None:
            raise OptionsError([_NO_JOB_NAME])
        return self.job, self.ledger_topic


_NO_JOB_NAME = (
    "Exactly-once needs a stable name to keep the job's ledger under, and neither a query name nor "
    "a readable checkpoint is known here: set option 'jobName' (or queryName)."
)


def _default_job(
    reader: OptionReader, given: Mapping[str, str], query_id: str | None
) -> str | None:
    name = given.get("queryname") or query_id
    if name is None:
        reader.problem(_NO_JOB_NAME)
        return None
    try:
        return job_name(name)
    except ValueError as error:
        reader.problem(f"The query name stands in for option 'jobName', which {error}: '{name}'.")
        return None


def _check_batch_id(reader: OptionReader, streaming: bool, guarantee: str) -> None:
    reader.get(BATCH_ID)
    if streaming:
        reader.problem(
            "Option 'batchId' is for batch writes: a stream's batches have numbers already."
        )
    elif guarantee != EXACTLY_ONCE or JOB_NAME.name not in reader:
        reader.problem(
            "Option 'batchId' says which of a job's writes this is, so that it is written once: it "
            "needs a 'jobName' and guarantee 'exactly-once'."
        )


def _snapshots(reader: OptionReader, possible: bool) -> bool:
    """Whether snapshots are taken."""
    snapshots = reader.get(SNAPSHOTS)
    if snapshots and not possible:
        reader.problem(
            "Option 'snapshots' is true, which needs a streaming write with guarantee "
            "'exactly-once' and a 'jobName' (or queryName) to find them by."
        )
    if SNAPSHOT_INTERVAL.name in reader and not snapshots:
        reader.problem(
            "Option 'snapshotInterval' says how often snapshots are taken, and option 'snapshots' "
            "is not true: set it, or take the interval away."
        )
    return snapshots


def _check_different(reader: OptionReader, topics: Mapping[str, str | None]) -> None:
    given = [name for name in topics.values() if name is not None]
    for name in sorted({name for name in given if given.count(name) > 1}):
        options = [option for option, topic in topics.items() if topic == name]
        reader.problem(f"Options '{options[0]}' and '{options[1]}' are both '{name}'.")


def _check_needs(reader: OptionReader, kafka: KafkaSettings, guarantee: str) -> None:
    for name, allowed, consequence in _NEEDS:
        value = kafka.get(name)
        if value is not None and value.strip().lower() not in allowed:
            reader.problem(
                f"Option 'kafka.{name}' is '{value}', but guarantee '{guarantee}' needs "
                f"'{allowed[0]}': {consequence}. Take the option away or choose a weaker guarantee."
            )


def _check_client_settings(reader: OptionReader, kafka: KafkaSettings) -> None:
    from eo_kafka.librdkafka import setting_problems

    for sentence in setting_problems(kafka):
        reader.problem(sentence)


def _query_id(checkpoint: str | None) -> str | None:
    """The id Spark wrote into `<checkpoint>/metadata`, if it can be read from here."""
    if not checkpoint:
        return None
    try:
        return str(json.loads(_read_text(checkpoint.rstrip("/") + "/metadata"))["id"])
    except Exception:  # not there, not reachable from this process, not Spark's: all mean unknown
        return None


def _read_text(location: str) -> str:
    parsed = urlparse(location)
    if parsed.scheme in ("", "file"):
        return Path(unquote(parsed.path) if parsed.scheme else location).read_text()
    from pyarrow import fs

    system, path = fs.FileSystem.from_uri(location)
    with system.open_input_stream(path) as stream:
        return bytes(stream.read()).decode()
