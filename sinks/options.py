"""Declares and parses the sink's options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..clients.kafka.option_checks import (
    ALLOWED_BY_BROKERS,
    LONGEST_TIMEOUT_MS,
    check_client_settings,
    check_different,
    check_needs,
    check_timeouts,
    timeout_ms,
)
from ..core.errors import CheckpointError, CheckpointUnreadable
from ..core.options import (
    Option,
    OptionReader,
    boolean,
    one_of,
    text,
    time_span_ms,
    whole_number,
)
from ..state.ledger.job import (
    EXACTLY_ONCE,
    JOB_NAME,
    LEDGER,
    PREFIX,
    REFUSED_KAFKA,
    STATE,
    WEAK_REPLICATION,
    Job,
    read_topics,
)
from ..state.ledger.job_topics import check_output
from ..state.ledger.succession import CONTINUE, ON_RESET, STOP
from . import new_topics
from .default_job import default_job
from .new_topics import NewTopics
from .staged import StagedTarget

BATCH_WRITES = "batch writes of "  # with the job's name: the owner where there is no query
AT_LEAST_ONCE, NONE = "at-least-once", "none"
TWO_PHASE, IDEMPOTENT = "two-phase", "idempotent"
# The most that Kafka allows by default: a batch that takes longer can never commit, and a job that
# is down for longer repeats a batch (or repairs it), while read_committed readers wait this long.
DEFAULT_TRANSACTION_TIMEOUT_MS = 900_000
ANSWER_TIMEOUT_S = 900.0

UPDATE_MODE = (
    "Spark refuses outputMode('update') for Python sinks: use append, or "
    ".foreachBatch(eo_kafka.foreach_batch({'jobName': ..., 'topic': ..., ...})), which writes each "
    "batch once in any mode"
)

TOPIC: Option[str | None] = Option(
    "topic", text, None, "Topic of all rows. Without it each row names its own in column `topic`."
)
GUARANTEE = Option(
    "guarantee",
    one_of(EXACTLY_ONCE, AT_LEAST_ONCE, NONE),
    EXACTLY_ONCE,
    "What holds whatever dies: `exactly-once`, `at-least-once` or `none`.",
)
COMMIT = Option(
    "commit",
    one_of(TWO_PHASE, IDEMPOTENT),
    TWO_PHASE,
    "How exactly-once is kept. `two-phase`: the driver decides, and a batch becomes visible as a "
    "whole. `idempotent`: each task commits its own rows and a replay skips them; for queries "
    "whose tasks have the same rows in a replay (the query stops if they differ).",
)
BATCH_ID: Option[int | None] = Option(
    "batchId",
    whole_number(0),
    None,
    "Batch writes only, with a `jobName`: the number of this write, higher than those of the "
    "job's earlier writes. Each number is written once, however often it is tried.",
)
SNAPSHOTS = Option(
    "snapshots",
    boolean,
    False,
    "Whether each decision includes a snapshot of the checkpoint, in the state topic. A job whose"
    " checkpoint is lost goes on from there. Needs a `jobName` or a query name.",
)
SNAPSHOT_INTERVAL = Option(
    "snapshotInterval",
    time_span_ms,
    0,
    "How long after a snapshot the next one is taken, such as `5 minutes` or `30 s`; 0 takes one "
    "with every batch. The first batch that a start decides takes one, too. Batches in between "
    "(500 at most) only record their sources' offsets; after a restore, a source with option "
    "`jobName` repeats them.",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    boolean,
    True,
    "Whether the query stops when an input topic was deleted and created again since the last "
    "batch (as far as the sink's cluster has that topic), when the ledger lacks batches that the "
    "checkpoint has passed, or when rows of a decided batch are not in the output. With `false` it "
    "warns and goes on, and what is missing stays missing: set it until one batch is written.",
)
TRANSACTION_TIMEOUT: Option[int | None] = Option(
    "transactionTimeout",
    timeout_ms,
    None,
    "How long a transaction may be open, from a batch's first row to its commit, outages "
    "included: a time such as `30 minutes`, or `max`, the longest that all brokers allow "
    "(`transaction.max.timeout.ms`). Default: `kafka.transaction.timeout.ms` if given, else `15 "
    "minutes`.",
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
    ON_RESET,
    TRANSACTION_TIMEOUT,
    WEAK_REPLICATION,
    *new_topics.OPTIONS,
)


@dataclass(frozen=True, kw_only=True)
class SinkOptions(Job):
    """The checked options of one sink: of its job, and of how rows are written. Pickled to the
    executors; its repr shows no secret."""

    guarantee: str
    commit: str
    topic: str | None
    batch_id: int | None
    query_id: str | None
    fail_on_data_loss: bool
    on_reset: str
    snapshot_interval_ms: int
    checkpoint: str | None = field(repr=False)  # a URL, perhaps with a password
    query_name: str | None
    staging: StagedTarget | None = None  # where rows wait for the decision: a map
    timeout_ms: int | None = None  # option transactionTimeout
    dead_letter_topic: str | None = None  # of the rows, if they say so
    new_topics: NewTopics | None = None  # option createTopics
    job_of_flow: bool = False  # the job's name is made of where its pipeline is
    may_pass_batches: bool = False  # a function of foreachBatch need not write each one

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
            check_needs(reader, kafka, guarantee)
        commit = reader.get(COMMIT)
        if commit == IDEMPOTENT and (guarantee != EXACTLY_ONCE or not streaming):
            reader.problem(
                "Option 'commit' is 'idempotent', which is a way of streaming writes with "
                "guarantee 'exactly-once' only. Take the option away."
            )
        if BATCH_ID.name in reader:
            _check_batch_id(reader, streaming, guarantee)
        keeps_ledger = streaming and guarantee == EXACTLY_ONCE
        known = len(reader.problems)
        query_id = _query_id(reader, given.get("checkpointlocation")) if keeps_ledger else None
        job, of_flow = reader.get(JOB_NAME), False
        # A name that is wrong, or could not be read, has been told already
        named = JOB_NAME.name in reader
        if keeps_ledger and not named and len(reader.problems) == known:
            job, of_flow = default_job(reader, given, query_id)
        ledger, state = read_topics(reader, job)
        topic = reader.get(TOPIC)
        named = named or bool(given.get("queryname"))
        snapshots = _snapshots(reader, keeps_ledger and named)
        check_different(reader, {"topic": topic, "ledgerTopic": ledger, "stateTopic": state})
        if topic not in (ledger, state):  # else that has been told
            check_output(reader, "'topic' (of an eo-map: 'map')", topic)
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
            on_reset=_on_reset(reader, keeps_ledger, commit),
            snapshots=snapshots,
            snapshot_interval_ms=reader.get(SNAPSHOT_INTERVAL),
            state_topic=state,
            checkpoint=given.get("checkpointlocation"),
            query_name=given.get("queryname"),
            timeout_ms=reader.get(TRANSACTION_TIMEOUT),
            new_topics=new_topics.read(reader, topic),
            job_of_flow=of_flow,
        )
        reader.check_names([option.name for option in OPTIONS], besides=new_topics.PREFIX)
        if TRANSACTION_TIMEOUT.name in reader and "transaction.timeout.ms" in kafka:
            reader.problem(
                f"Options '{TRANSACTION_TIMEOUT.name}' and 'kafka.transaction.timeout.ms' say the "
                "same: take one of them away."
            )
        _check_client(reader, options)
        reader.finish()
        return options

    @property
    def transaction_timeout_ms(self) -> int:
        """How long the broker waits for a batch, counted from its first row."""
        if self.timeout_ms is None:
            return int(self.kafka.get("transaction.timeout.ms", DEFAULT_TRANSACTION_TIMEOUT_MS))
        return self.timeout_ms or LONGEST_TIMEOUT_MS

    @property
    def answer_timeout_s(self) -> float:
        """How long a task waits for a broker's answer, however long its transaction may be."""
        return min(self.transaction_timeout_ms / 1000, ANSWER_TIMEOUT_S)

    @property
    def timeout_text(self) -> str:
        """`transaction_timeout_ms` for errors."""
        return "max" if self.timeout_ms == ALLOWED_BY_BROKERS else f"{self.transaction_timeout_ms}"

    @property
    def exactly_once(self) -> bool:
        """Whether rows go into transactions that the ledger keeps account of."""
        return self.guarantee == EXACTLY_ONCE

    @property
    def own_topics(self) -> frozenset[str]:
        """Those that no row may go to, whatever their names are."""
        return frozenset(name for name in (self.ledger_topic, self.state_topic) if name)

    @property
    def outputs(self) -> frozenset[str]:
        """Topics that the job's transactions write to, beside its ledger and those rows name."""
        named = (self.topic, self.dead_letter_topic, self.state_topic)
        return frozenset(name for name in named if name)

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
        return f"{self.staging.name}{also}"


def _check_client(reader: OptionReader, options: SinkOptions) -> None:
    check_client_settings(reader, options.kafka)
    if options.exactly_once and options.kafka.get("transaction.timeout.ms", "0").isdecimal():
        check_timeouts(reader, options.kafka, options.transaction_timeout_ms)


def _on_reset(reader: OptionReader, keeps_ledger: bool, commit: str) -> str:
    found = reader.get(ON_RESET)
    if found != STOP and not keeps_ledger:
        reader.problem(
            f"Option 'onReset' is '{found}', which is for streaming writes with guarantee "
            "'exactly-once': others have no ledger that a new checkpoint could meet."
        )
    elif found == CONTINUE and commit == IDEMPOTENT:
        # Tasks would have committed before the driver can compare where the query starts.
        reader.problem(
            "Option 'onReset' is 'continue', which 'commit' 'idempotent' does not allow: take "
            "'two-phase'."
        )
    return found


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


def _query_id(reader: OptionReader, checkpoint: str | None) -> str | None:
    if not checkpoint:
        return None
    from ..state.snapshots.query_id import read_query_id

    try:
        return read_query_id(checkpoint)
    except CheckpointUnreadable:
        raise  # no option is wrong, and the next start may find it
    except CheckpointError as error:
        reader.problem(str(error))
        return None
