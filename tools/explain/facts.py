"""What each source, step and sink of a query does after a crash: a table. No I/O.

Rows of Kafka, maps, folders and foreachBatch were tried: test_explain_crashes.py, test_explain.py
and the tests that docs/guarantees.md names. Those of `rate`, `socket`, `console` and `memory` are
as Spark documents them. Whatever else there is says that it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from ...core.maps import KAFKA as IN_A_TOPIC
from ...sinks.maps.backend import Backend, backend_of
from ...sinks.options import AT_LEAST_ONCE, IDEMPOTENT, NONE, TWO_PHASE
from ...sources.queues.options import SHARE_GROUP, WINDOW
from .pipeline import End


class Guarantee(IntEnum):
    """What holds of the sink's rows, the weakest first."""

    NONE = 0
    NOT_KNOWN = 1
    AT_LEAST_ONCE = 2
    EXACTLY_ONCE = 3

    @property
    def word(self) -> str:
        """As `--require` takes it."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True)
class Fact:
    """`word` sorts it, `allows` is the most that a query with it guarantees. `effect`: what comes
    of it. `remedy` says what would raise the guarantee; `needs` what it takes for granted."""

    word: str
    allows: Guarantee
    sentence: str
    remedy: str = ""
    needs: str = ""
    effect: str = ""


EXACT, AT_LEAST = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE
NOTHING, UNKNOWN = Guarantee.NONE, Guarantee.NOT_KNOWN
KAFKA = ("eo-kafka", "kafka")
OURS = ("eo-files", "eo-kafka", "eo-map", "eo-postgres", "eo-target")
BESIDE = ("eo-files", "eo-postgres", "eo-target")  # no transaction of Kafka's without a topic
QUEUE = "eo-queue"
BY_OFFSETS = (*KAFKA, *OURS, QUEUE)  # the ledger names what a batch of these has read
FILES = ("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml")
WRITES_AGAIN = "written again"  # a sink whose replay of a batch is written in addition
SKIPS = "skips"  # one that writes a batch once and skips its replay
PUTS = "puts"  # one that overwrites by key

REPLAYABLE, NOT_REPLAYABLE = "replayable", "not replayable"
TRANSACTIONAL, IDEMPOTENT_SINK, NEITHER, NOT_KNOWN = (
    *("transactional", "idempotent", "neither", "not known"),
)


def source_fact(source: End) -> Fact:
    """What a stream's source does when a batch runs again."""
    if source.format in KAFKA or source.format == "eo-map":
        return _kafka_source(source)
    if source.format == QUEUE:
        return _queue(source)
    if source.format in ("rate", "rate-micro-batch"):
        return Fact(REPLAYABLE, EXACT, "an offset always stands for the same rows")
    if source.format in FILES:
        return _files(source)
    if source.format == "socket":
        return Fact(
            NOT_REPLAYABLE,
            NOTHING,
            "what was received and not yet written is lost with the driver",
            "Put the records into Kafka first.",
        )
    return Fact(
        NOT_KNOWN,
        UNKNOWN,
        f"whether source '{source.format}' reads the same rows again was not tried",
        "Prove it by a test that kills it (docs/testing.md), or read from Kafka.",
    )


def _files(source: End) -> Fact:
    passed_over = {
        "ignoreMissingFiles": "files that are gone before they were read",
        "ignoreCorruptFiles": "files that cannot be read, or what is left of them,",
    }
    for option, what in passed_over.items():
        if source.says(option) == "true":
            text = f"{option}=true: {what} are passed over, with a warning"
            remedy = f"Take {option}=true away: the query then stops instead."
            return Fact(REPLAYABLE, NOTHING, text, remedy)
    if source.format in ("csv", "json", "xml") and source.says("mode") == "dropmalformed":
        return Fact(
            REPLAYABLE,
            NOTHING,
            "mode=DROPMALFORMED: rows that cannot be parsed are dropped without a word",
            "Set mode=FAILFAST: the query then stops instead.",
        )
    return Fact(
        REPLAYABLE,
        EXACT,
        "the checkpoint lists the files of each batch",
        needs="Files stay as they are until their batch is done.",
    )


def _queue(source: End) -> Fact:
    found = _kafka_source(source)
    if found.allows is not EXACT:
        return found
    acknowledging = replace(found, word="acknowledging")
    weak = _weak(source)
    kept = (
        "messages are in the inbox, a topic, before they are acknowledged; a batch that runs again "
        "reads the inbox; "
    )
    if source.says(SHARE_GROUP.name):
        return replace(
            acknowledging,
            sentence=kept + "an offset that was kept is dropped when it is delivered again",
            needs="The inbox keeps messages until they are read. The share group has "
            f"share.isolation.level=read_committed, and share.auto.offset.reset=earliest.{weak}",
        )
    window = source.says(WINDOW.name, str(WINDOW.default))
    return replace(
        acknowledging,
        sentence=kept + f"an id that is among the last {window} is dropped",
        needs="The inbox keeps messages until they are read. None is delivered or sent again after "
        f"{window} others (option 'dedupWindow'): it would be a repeat.{weak}",
    )


def _weak(end: End) -> str:
    """What a topic of the job's own that may be replicated weakly takes for granted."""
    if end.says("allowWeakReplication") != "true":
        return ""
    return (
        " No broker loses what it has acknowledged: allowWeakReplication=true lets the job's own "
        "topics, or Kafka's transaction log, be replicated so weakly that it can."
    )


def _kafka_source(source: End) -> Fact:
    if source.says("failOnDataLoss") == "false":
        return Fact(
            REPLAYABLE,
            NOTHING,
            "failOnDataLoss=false: records that are gone before they were read are passed over, "
            "with a warning",
            "Take failOnDataLoss=false away: the query then stops instead.",
        )
    level = source.says("kafka.isolation.level")
    default = "read_uncommitted" if source.format == "kafka" else "read_committed"
    needs = (
        "Kafka keeps records until they are read, and compacts none away before a batch and its "
        "replay (cleanup.policy=compact: by min.compaction.lag.ms)."
    )
    if source.format in KAFKA and (level or default) == "read_uncommitted":
        needs += (
            " What is read is not taken back by its writer: this source also reads transactions "
            "that were aborted (kafka.isolation.level=read_committed does not)."
        )
    return Fact(REPLAYABLE, EXACT, "a batch that runs again reads the same offsets", needs=needs)


def sink_way(sink: End) -> str:
    """What becomes of the rows of a batch that runs again."""
    if sink.format in FILES:
        return SKIPS
    if sink.format == "eo-map" and backend_of(sink.options) is Backend.IMAP:
        return PUTS
    if sink.format in OURS and sink.says("guarantee") not in (AT_LEAST_ONCE, NONE):
        return SKIPS
    return WRITES_AGAIN


def is_one_phase(sink: End | None) -> bool:
    """Whether tasks commit on their own (`commit=idempotent` into a topic)."""
    if sink is None or sink_way(sink) != SKIPS or sink.format not in OURS:
        return False
    return sink.says("commit", TWO_PHASE) == IDEMPOTENT


def sink_fact(sink: End) -> Fact:
    """What a sink does with a batch that runs again."""
    if sink.format in OURS:
        return _our_sink(sink)
    if sink.format in FILES:
        return Fact(
            IDEMPOTENT_SINK,
            EXACT,
            "a batch that is in the folder's _spark_metadata is skipped when it runs again",
            needs="Readers read the folder with Spark, which follows _spark_metadata: others also "
            "see files of attempts that failed.",
        )
    found = _FOREIGN.get(sink.format)
    if found:
        return found
    return Fact(
        NOT_KNOWN,
        UNKNOWN,
        f"what sink '{sink.format}' does with a batch that runs again was not tried",
        'Prove it by a test that kills it (docs/testing.md), or write with format("eo-kafka").',
    )


def _given_up(sink: End, keeps_ledger: bool) -> Fact | None:
    """What an option gives up, if one does."""
    if sink.says("guarantee") == NONE:
        return Fact(
            NEITHER,
            NOTHING,
            "guarantee=none: refused rows are a warning only, and a batch that runs again is "
            "written again",
            "Take guarantee=none away.",
        )
    if sink.says("guarantee") == AT_LEAST_ONCE:
        return Fact(
            NEITHER,
            AT_LEAST,
            "guarantee=at-least-once: a batch that runs again is written again",
            "Take guarantee=at-least-once away.",
        )
    if keeps_ledger and sink.says("failOnDataLoss") == "false":
        return Fact(
            NEITHER,
            NOTHING,
            "failOnDataLoss=false: where rows are lost (of an input, of what was written or was "
            "decided) it goes on without them, with a warning",
            "Take failOnDataLoss=false away: the query then stops instead.",
        )
    return None


def _our_sink(sink: End) -> Fact:
    is_put = sink_way(sink) == PUTS
    keeps_ledger = not is_put or sink.says("commit") == TWO_PHASE
    if given_up := _given_up(sink, keeps_ledger):
        return given_up
    readers = "Readers of the output use isolation.level=read_committed."
    time = "A batch fits into transactionTimeout, from its first row to its commit."
    weak = _weak(sink) if keeps_ledger else ""
    if is_put:
        return Fact(
            IDEMPOTENT_SINK,
            EXACT,
            "rows are put by key: a batch that runs again leaves the same map",
            needs="A key's rows of one batch are in one task. Readers bear entries of a batch that "
            f"is not finished (commit=two-phase shows none).{weak}",
        )
    if is_one_phase(sink):
        return Fact(
            TRANSACTIONAL,
            EXACT,
            "commit=idempotent: each task commits its rows, and a replay skips them",
            needs=f"{readers} {time}{weak}",
        )
    is_map = sink.format == "eo-map" and sink.says("backend") != IN_A_TOPIC
    needs = time if is_map else f"{readers} {time}"
    if sink.format == "eo-postgres" and not sink.says("topic"):
        needs = "Rows of a key, if option 'keys' is set, are in one task."
        if sink.says("commit") == TWO_PHASE:
            needs += " Readers bear that tasks' rows become visible one task after the other."
    if sink.format == "eo-files" and not sink.says("topic"):
        needs = (
            "Readers honour the manifest (format('eo-files')), or read a directory: in an object "
            "store others may see a part of the newest batch for a moment."
        )
    if sink.format == "eo-target":
        needs = "The target keeps what eo_kafka.targets.Target promises: try it by check_target."
    return Fact(
        TRANSACTIONAL,
        EXACT,
        "rows become visible by one decision a batch, which is skipped when it runs again",
        needs=needs + weak,
    )


_KAFKA_SINK = Fact(
    NEITHER,
    AT_LEAST,
    "Spark's own Kafka sink has no transactions: a batch that runs again is written again",
    'Write with format("eo-kafka"): the options stay.',
)
_FOR_TRYING = "it is for trying things out: rows are gone with the driver, or shown again"
_FOREIGN = {
    "kafka": _KAFKA_SINK,
    "console": Fact(NEITHER, NOTHING, _FOR_TRYING, 'Write with format("eo-kafka").'),
    "memory": Fact(NEITHER, NOTHING, _FOR_TRYING, 'Write with format("eo-kafka").'),
    "noop": Fact(NEITHER, NOTHING, "it writes nothing", 'Write with format("eo-kafka").'),
    "foreach": Fact(
        NOT_KNOWN,
        UNKNOWN,
        "your code of foreach is not read; Spark calls it again for rows of a batch that runs "
        "again",
        'Write with format("eo-kafka").',
    ),
    "foreachbatch": Fact(
        NOT_KNOWN,
        UNKNOWN,
        "your function of foreachBatch is not read; Spark calls it again for a batch that was "
        "interrupted, and what it had written then is written twice",
        "Write with eo_kafka.foreach_batch, and nowhere else in that function.",
    ),
}


def around(name: str) -> Fact:
    """A user's function that calls what `eo_kafka.foreach_batch` returned."""
    return Fact(
        NOT_KNOWN,
        UNKNOWN,
        "your function around eo_kafka.foreach_batch is not read: it must write each row by that "
        "one call, and write nowhere else",
        f"If it does, say so: --trust {name}.",
    )
