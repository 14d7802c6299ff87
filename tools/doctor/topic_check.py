"""What `eo-kafka doctor` checks of topics: those that a job writes to, and all that are its own.

Looks only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from ...clients.kafka.topics import TIMEOUT_S, exists, partitions_of, settings_of
from ...core.errors import EoKafkaError
from ...sinks.options import SinkOptions
from ...sinks.protocol.preflight import forgets_letters
from ...state import view
from ...state.ledger import topic_settings
from ...state.ledger import topics as ledger_topic
from ...state.ledger.job_topics import CONTROL_TOPIC, OURS, PLAN_TOPIC
from ...state.ledger.unused_topic import is_unused
from ...state.snapshots import export
from ..transactions.search import TransactionSearch
from .machine_check import Finding, Level

LETTERS = "dead letter topic"
_SENT_TOGETHER = 1_000_000 + 4096  # librdkafka's batch.size, and what is around the records
_OF_A_TASK = 250


def checks(
    options: SinkOptions, admin: Any, brokers: int
) -> Iterator[tuple[str, Callable[[], list[Finding]]]]:
    """A subject and what looks at it, for each topic that the options name, and for each of the
    job's own that is there."""
    for subject, topic in (("output topic", options.topic), (LETTERS, options.dead_letter_topic)):
        if topic is not None:
            yield subject, partial(_output, admin, subject, topic, brokers)
            yield subject, partial(_hung, options, subject, topic)
    if options.job is None:
        return
    seen = admin.list_topics(timeout=TIMEOUT_S).topics
    own = ledger_topic.own_topics(replace(options, snapshots=True))
    for subject, (topic, partitions) in zip(("ledger", "state topic"), own, strict=True):
        if subject == "ledger" or topic in seen:
            yield subject, partial(_own_topic, admin, subject, topic, partitions, brokers)
        else:  # a job without snapshots has no right on it, which asking for it by name takes
            yield subject, partial(_no_state_topic, topic)
    yield "ledger", partial(_ledger_says, options)
    for topic in sorted(seen):
        if name := export.name_in(topic, options.job):
            subject = f"export '{name}'"
        elif name := view.name_in(topic, options.job):
            subject = f"view '{name}'"
        elif topic == PLAN_TOPIC.format(job=options.job):
            subject = "recorded plan"
        elif topic == CONTROL_TOPIC.format(job=options.job):
            subject = "control topic"
        else:
            continue
        yield subject, partial(_kept, admin, subject, topic, 1, brokers)


def _output(admin: Any, subject: str, topic: str, brokers: int) -> list[Finding]:
    if not exists(admin, topic):
        text = f"topic '{topic}' does not exist; create it before the query starts"
        return [Finding(Level.PROBLEM, subject, text)]
    partitions = partitions_of(admin, topic)
    config = settings_of(admin, topic)
    replicas = min(len(partition.replicas) for partition in partitions.values())
    in_sync = int(config.get("min.insync.replicas", replicas))
    shape = f"'{topic}', {len(partitions)} partition(s), {replicas} replica(s), "
    shape += f"min.insync.replicas={in_sync}" if config else "configuration not visible"
    problems = []
    if brokers > 1 and (replicas < 2 or in_sync <= replicas // 2):
        problems.append("an acknowledged row can be lost with one broker")
    if config.get("unclean.leader.election.enable") == "true":
        problems.append("unclean leader elections lose acknowledged rows")
    if not config:
        problems.append("grant DescribeConfigs on it to have it checked")
    elif subject == LETTERS and (forgets := forgets_letters(config)):
        return [Finding(Level.PROBLEM, subject, f"'{topic}' {forgets}")]
    elif "compact" in config.get("cleanup.policy", ""):
        problems.append("it is compacted: rows without a key are refused, older rows of a key go")
    text = f"{shape}{': ' if problems else ''}{'; '.join(problems)}"
    found = Finding(Level.WARNING if problems else Level.OK, subject, text)
    waiting = _waiting(subject, topic, partitions, config)
    return [found, *waiting, _permissions(admin, topic, {"DESCRIBE", "WRITE"}, subject)]


def _hung(options: SinkOptions, subject: str, topic: str) -> list[Finding]:
    """Transactions that no coordinator will end: a mirror that was cut in the middle of one has
    them, or Kafka left their ends out. Those who read what a job writes wait for ever."""
    hung: dict[tuple[str, str], set[int]] = {}
    try:
        with closing(TransactionSearch(options.kafka, {})) as search:
            for one in search.on_topic(topic):
                if (one.hung or one.not_all) and (why := one.needs_attention(0)):
                    partitions = {number for _, number in one.described.partitions}
                    hung.setdefault((one.not_all, why), set()).update(partitions)
    except EoKafkaError as error:
        text = f"whether a transaction hangs on '{topic}' was not looked at: {error}"
        return [Finding(Level.NOTE, subject, text)]
    return [
        Finding(
            Level.WARNING,
            subject,
            f"'{topic}': a transaction on partitions {sorted(numbers)} is {why}",
        )
        if not_all
        else Finding(
            Level.PROBLEM,
            subject,
            f"'{topic}': a transaction hangs on partitions {sorted(numbers)}: it is open, and its "
            "coordinator does not know of it, so that read_committed readers wait for ever. "
            f"'eo-kafka txn list --topic {topic}' shows it. It is {why}",
        )
        for (not_all, why), numbers in hung.items()
    ]


def _waiting(
    subject: str, topic: str, partitions: Mapping[int, Any], config: Mapping[str, str]
) -> list[Finding]:
    """The partitions that take no record now, as settings that are right do not show."""
    least = int(config.get("min.insync.replicas", 1))
    numbers = [
        number
        for number, one in sorted(partitions.items())
        if one.leader < 0 or len(one.isrs) < min(least, len(one.replicas))
    ]
    if not numbers:
        return []
    text = (
        f"'{topic}': partitions {numbers} have no leader, or fewer replicas in sync than "
        f"min.insync.replicas={least}: batches fail until their brokers are back"
    )
    return [Finding(Level.PROBLEM, subject, text)]


def _permissions(admin: Any, topic: str, needed: set[str], subject: str) -> Finding:
    from confluent_kafka import KafkaException, TopicCollection

    try:
        described = admin.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=TIMEOUT_S
        )[topic].result(TIMEOUT_S)
    except KafkaException as error:
        return Finding(Level.PROBLEM, subject, f"'{topic}': {error.args[0].str()}")
    allowed = {operation.name for operation in described.authorized_operations or ()}
    if missing := sorted(needed - allowed):
        names = " and ".join(name.capitalize() for name in missing)
        return Finding(Level.PROBLEM, subject, f"'{topic}': grant this principal {names} on it")
    names = ", ".join(name.capitalize() for name in sorted(needed))
    return Finding(Level.OK, subject, f"this principal has {names} on it")


def _own_topic(
    admin: Any, subject: str, topic: str, partitions: int, brokers: int
) -> list[Finding]:
    if not exists(admin, topic):
        text = f"'{topic}' is not there yet; the first batch creates it (needs Create on it)"
        return [Finding(Level.NOTE, subject, text)]
    permissions = _permissions(admin, topic, {"DESCRIBE", "READ", "WRITE"}, subject)
    return [*_kept(admin, subject, topic, partitions, brokers), permissions]


def _no_state_topic(topic: str) -> list[Finding]:
    text = (
        f"'{topic}' is not there, or this principal may not Describe it. Only a job with option "
        "'snapshots' needs it: its first snapshot creates it (needs Create on it)"
    )
    return [Finding(Level.NOTE, "state topic", text)]


def _ledger_says(options: SinkOptions) -> list[Finding]:
    """Whether the ledger can be read, and what stands still in it."""
    job, topic = options.job_and_ledger
    with closing(TransactionSearch(options.kafka, {topic: job})) as search:
        if topic not in search.ledgers():
            return []
        try:
            unfinished = search.read_ledger(topic, job).ledger.unfinished()
        except EoKafkaError as error:
            return [Finding(Level.PROBLEM, "ledger", str(error))]
    text = "is decided, and not known to be committed: a query that runs goes on by itself; else"
    return [
        Finding(Level.WARNING, "ledger", f"batch {one.batch} {text} start it") for one in unfinished
    ]


def _kept(admin: Any, subject: str, topic: str, partitions: int, brokers: int) -> list[Finding]:
    """Whether Kafka keeps what is in one of the job's own topics, and takes more."""
    config = settings_of(admin, topic)
    there = partitions_of(admin, topic)
    waiting = _waiting(subject, topic, there, config)
    few = topic_settings.few_copies(topic, there, brokers)
    refusals, weak = topic_settings.faults(admin, topic, partitions, brokers)
    if refusals and topic.startswith(OURS) and is_unused(admin, topic):
        text = f"{' '.join(refusals)} It never held a record: its first use sets it right."
        return [Finding(Level.NOTE, subject, text)]
    problems = [*refusals, *weak]
    if not problems and not config:
        text = f"the settings of '{topic}' are not visible: grant DescribeConfigs on it"
        return [Finding(Level.WARNING, subject, text), *waiting]
    others = [
        *_too_small(subject, topic, config),
        *_long_segments(subject, topic, config),
        *waiting,
    ]
    if few and not problems:
        return [Finding(Level.WARNING, subject, few[0]), *others]
    return [*durability(subject, problems), *others]


def _long_segments(subject: str, topic: str, config: Mapping[str, str]) -> Iterator[Finding]:
    """What is in a ledger's newest segment is not compacted, and each process that starts reads
    it."""
    wanted = topic_settings.SEGMENTS
    long = [name for name, most in wanted.items() if int(config.get(name, most)) > int(most)]
    if subject == "ledger" and long:
        text = (
            f"'{topic}' has {', '.join(f'{name}={config[name]}' for name in long)}: so much of it "
            "is not compacted, and a start and the first batches after it take longer by reading "
            "it. Set what a new one has, if the brokers let you: kafka-configs.sh "
            f"--bootstrap-server ... --alter --topic {topic} --add-config "
            + ",".join(f"{name}={wanted[name]}" for name in long)
        )
        yield Finding(Level.NOTE, subject, text)


def _too_small(subject: str, topic: str, config: Mapping[str, str]) -> Iterator[Finding]:
    """What does not fit into the topic is refused when it is written."""
    largest = int(config.get("max.message.bytes", topic_settings.MAX_MESSAGE_BYTES))
    what = f"'{topic}' has max.message.bytes={largest}"
    raised = f"Raise it to {topic_settings.MAX_MESSAGE_BYTES}, as a new one has"
    if (subject == "state topic" or subject.startswith("export ")) and largest < _SENT_TOGETHER:
        text = (
            f"{what}: chunks of a snapshot are sent together, up to {_SENT_TOGETHER:,} bytes, and "
            f"may be refused, and the batch with them. {raised}"
        )
        yield Finding(Level.PROBLEM, subject, text)
    if subject == "ledger" and largest < topic_settings.MAX_MESSAGE_BYTES:
        text = (
            f"{what}: a decision names every task of its batch, in some {_OF_A_TASK} bytes each, "
            f"and one of more than about {largest // _OF_A_TASK:,} tasks is refused. {raised}"
        )
        yield Finding(Level.NOTE, subject, text)


def durability(subject: str, problems: list[str]) -> list[Finding]:
    """A finding for each problem, or that there is none."""
    if problems:
        return [Finding(Level.PROBLEM, subject, problem) for problem in problems]
    return [Finding(Level.OK, subject, "replicated and kept as it must be")]
