"""A job, as its ledger and its snapshots know it: its name, its topics, its transactional ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...clients.kafka.option_checks import check_client_settings, check_different, check_needs
from ...clients.kafka.transactional_id import TransactionalIds
from ...core.errors import OptionsError
from ...core.options import KAFKA_PREFIX, KafkaSettings, Option, OptionReader, boolean
from .job_topics import LEDGER_TOPIC, MAIN_SINK, STATE_TOPIC, job_name, topic_name

EXACTLY_ONCE = "exactly-once"
JOB_NAME: Option[str | None] = Option(
    "jobName",
    job_name,
    None,
    "The job's stable name, which its ledger bears. Default: the query's name, else its id.",
)
LEDGER: Option[str | None] = Option(
    "ledgerTopic", topic_name, None, "The job's ledger. Default: `__eo_kafka.<jobName>.ledger`."
)
STATE: Option[str | None] = Option(
    "stateTopic",
    topic_name,
    None,
    "The job's snapshots, and no other job's. Default: `__eo_kafka.<jobName>.state`.",
)
PREFIX = Option(
    "transactionalIdPrefix", topic_name, "eo-kafka", "Prefix of all the job's transactional ids."
)
WEAK_REPLICATION = Option(
    "allowWeakReplication",
    boolean,
    False,
    "Whether to run where the ledger or Kafka's transaction log is replicated so weakly that an "
    "acknowledged decision could be lost.",
)
_OF_JOB = (LEDGER, STATE, PREFIX, WEAK_REPLICATION)

REFUSED_KAFKA = {
    "key.serializer": "keys are binary or string columns and are sent as they are",
    "value.serializer": "values are binary or string columns and are sent as they are",
    "transactional.id": "transactional ids are the connector's own; "
    "set 'transactionalIdPrefix' to tell jobs apart",
}


NO_JOB_NAME = (
    "Exactly-once needs a stable name to keep the job's ledger under, and neither a query name nor "
    "a readable checkpoint is known here: set option 'jobName' (or queryName)."
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """Where a job's ledger and its snapshots are, and under which ids they are written. Its repr
    shows no secret."""

    kafka: KafkaSettings
    prefix: str
    job: str | None
    ledger_topic: str | None
    state_topic: str | None
    snapshots: bool
    allow_weak_replication: bool
    sink: str = MAIN_SINK

    @property
    def ids(self) -> TransactionalIds:
        """The job's transactional ids."""
        return TransactionalIds(self.prefix, self.job_and_ledger[0])

    @property
    def reset_command(self) -> str:
        """The command that gives this job's ledger up, and no other one."""
        job, ledger = self.job_and_ledger
        named = f" --ledger-topic {ledger}" if ledger != LEDGER_TOPIC.format(job=job) else ""
        if self.prefix != PREFIX.default:
            named += f" --transactional-id-prefix {self.prefix}"
        return f"eo-kafka job reset {job}{named} --bootstrap-servers ..."

    @property
    def job_and_ledger(self) -> tuple[str, str]:
        """Both names; parsing made sure of them for an exactly-once stream."""
        if self.job is None or self.ledger_topic is None:
            raise OptionsError([NO_JOB_NAME])
        return self.job, self.ledger_topic


def read_topics(reader: OptionReader, job: str | None) -> tuple[str | None, str | None]:
    """Ledger and state topic: as the options say, else by the job's name."""
    ledger, state = reader.get(LEDGER), reader.get(STATE)
    if job is not None:
        ledger = ledger or LEDGER_TOPIC.format(job=job)
        state = state or STATE_TOPIC.format(job=job)
    return ledger, state


def of_job(job: str, options: Mapping[str, str]) -> dict[str, str]:
    """What of a sink's options concerns the connection and the topics of `job`."""
    ours = {option.key for option in _OF_JOB}
    given = {
        name: value
        for name, value in options.items()
        if name.lower().startswith(KAFKA_PREFIX) or name.lower() in ours
    }
    return {**given, JOB_NAME.name: job}


def read_job(job: str, options: Mapping[str, str]) -> Job:
    """`job`, by options as given to its sink; what does not concern it is ignored. Contacts nobody.
    Raises OptionsError."""
    reader = OptionReader(of_job(job, options))
    kafka = reader.kafka(REFUSED_KAFKA)
    check_needs(reader, kafka, EXACTLY_ONCE)
    name = reader.get(JOB_NAME)
    ledger, state = read_topics(reader, name)
    check_different(reader, {"ledgerTopic": ledger, "stateTopic": state})
    found = Job(
        kafka=kafka,
        prefix=reader.get(PREFIX),
        job=name,
        ledger_topic=ledger,
        state_topic=state,
        snapshots=False,
        allow_weak_replication=reader.get(WEAK_REPLICATION),
    )
    check_client_settings(reader, kafka)
    reader.finish()
    return found
