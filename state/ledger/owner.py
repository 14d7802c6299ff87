"""Whose a ledger is, and where its owner's checkpoint is."""

from __future__ import annotations

from ...core.errors import ForeignLedger
from .job import Job
from .ledger import Ledger


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
        "--bootstrap-servers ...'. Or put the old checkpoint back. These two ways keep what the "
        "old query knew, and the others do not: "
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
