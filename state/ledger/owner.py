"""Whose a ledger is, and where its owner's checkpoint is."""

from __future__ import annotations

from collections.abc import Iterator

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.partition_transactions import last_writer
from ...clients.kafka.transactional_id import parse_id
from ...core.errors import ForeignLedger, LedgerError
from .job import Job
from .ledger import DECISION_PARTITION, Ledger


def check_owner(options: Job, owner: str | None, query_id: str | None) -> None:
    """Raise ForeignLedger, with the ways out, if the ledger is another query's."""
    if owner is None or query_id is None or owner == query_id:
        return
    job, topic = options.job_and_ledger
    raise ForeignLedger(
        f"Ledger '{topic}' belongs to query {owner}, and this is query {query_id}: the "
        "checkpoint is new (it was lost or deleted, or a pipeline was fully refreshed), or the "
        "job's name is used twice. Nothing was written or skipped. If it was lost, and the job has "
        f"a snapshot ('eo-kafka snapshots list {job} --bootstrap-servers ...'), delete the new "
        f"checkpoint and restore: 'eo-kafka snapshots restore {job} CHECKPOINT "
        "--bootstrap-servers ...'. If the job was made by 'eo-kafka snapshots start-from' and has "
        "no snapshot yet, delete the new checkpoint and run that command again. Or put the old "
        "checkpoint back. These ways keep what the old query knew, and the others do not: "
        "choose a new 'jobName'; or say by option 'onReset' what a new checkpoint means: 'stop' "
        "(this), 'new-job' (everything is read and written again, from 'startingOffsets' on) or "
        "'continue' (a query without state goes on where the last one ended); or, if the old query "
        f"will never run again, '{options.reset_command}'. A new query "
        "whose readers lack option 'startingOffsets' starts at 'latest', and passes over what came "
        "since the old one ended."
    )


def check_place(options: Job, ledger: Ledger, here: str) -> None:
    """Before a lost checkpoint is written back `here`, where nobody has asked for that: raise
    ForeignLedger if the job's is another one. An empty folder is what a second query of the job's
    name has, too. Given the first one's snapshot, it would be the same query to the ledger, and
    pass over what that has written."""
    if ledger.checkpoint in ("", here):
        return
    job, topic = options.job_and_ledger
    raise ForeignLedger(
        f"Checkpoint '{here}' holds no query, and that of job '{job}' is '{ledger.checkpoint}', as "
        f"ledger '{topic}' says. Nothing was restored, and the query was not started. A job's name "
        "is for one query: if this is another one, give it its own 'jobName'. If it is that one, "
        f"and is to go on here (its checkpoint was moved, or is lost with its place): 'eo-kafka "
        f"snapshots restore {job} CHECKPOINT --bootstrap-servers ...', or eo_kafka.restore where "
        "each start has a new folder; then start it. If a new query is to take the job over, as "
        "its option 'onReset' says, start it by the writer's own start(). If 'checkpointLocation' "
        "was changed by mistake, change it back."
    )


def is_of(transactional_id: str, job: str) -> bool:
    """Whether the id is one of the job's, under any prefix."""
    parts = parse_id(transactional_id)
    return parts is not None and parts.is_of(job)


def ids_of_batches(ledger: Ledger) -> Iterator[str]:
    """The transactional ids that batches name, those of the newest batch first."""
    for one in sorted(ledger.decisions.values(), key=lambda one: one.batch, reverse=True):
        yield from (
            part.identity.transactional_id for part in one.participants if part.has_transaction
        )


def writer_of(control: ControlPlane, topic: str, ledger: Ledger) -> str:
    """The transactional id that wrote the ledger last, which has the job's name and prefix of now:
    a job that keeps its ledger may change both, and its next start writes there by the new ones.
    Kafka tells, for a day; of before, the newest batch whose tasks had transactions. Empty: neither
    does. What else is open in the cluster may be another job's of the same name."""
    told = last_writer(control, (topic, DECISION_PARTITION))
    return told if parse_id(told) else next(ids_of_batches(ledger), "")


def anothers(control: ControlPlane, topic: str, job: str, ledger: Ledger) -> str:
    """Why the ledger is not the job's, in a sentence; empty if nobody says so."""
    return _not_of(topic, job, writer_of(control, topic, ledger))


def _not_of(topic: str, job: str, writer: str) -> str:
    if not writer or is_of(writer, job):
        return ""
    return (
        f"Topic '{topic}' is not the ledger of job '{job}': '{writer}' wrote it last, for a job of "
        "another name. (One that was renamed has its old name here until its next start.)"
    )


def check_job(control: ControlPlane, options: Job, ledger: Ledger) -> str:
    """Raise LedgerError if the ledger is another job's. Answers `writer_of`."""
    job, topic = options.job_and_ledger
    writer = writer_of(control, topic, ledger)
    if strange := _not_of(topic, job, writer):
        raise LedgerError(
            f"{strange} Nothing was changed. Give the job's own name (its option 'jobName'; "
            "'eo-kafka job list --bootstrap-servers ...' shows those of jobs without option "
            "'ledgerTopic')."
        )
    return writer


def check_named(control: ControlPlane, options: Job, ledger: Ledger) -> None:
    """Before somebody takes the ledger over by hand: raise LedgerError unless name and prefix are
    those that the job runs under. By others its driver would not be fenced, and what it has open
    would stay open."""
    parts = parse_id(check_job(control, options, ledger))
    if parts is not None and parts.prefix != options.prefix:
        raise LedgerError(
            f"The transactional ids of job '{options.job}' do not begin with '{options.prefix}': "
            "by that prefix its driver would not be stopped, and what it has open would stay open. "
            f"Nothing was changed. Give the job's option 'transactionalIdPrefix', '{parts.prefix}' "
            f"(of commands: '--transactional-id-prefix {parts.prefix}')."
        )
