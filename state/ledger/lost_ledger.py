"""Whether an empty ledger, or one without its beginning, is a lost one; and the errors that say so.

Kafka keeps of a transactional id how its last transaction ended, until it is taken again, and the
transaction timeout with which it was taken. An odd one says that the ledger was new then.
"""

from __future__ import annotations

from ...core.errors import LedgerError
from ...core.transaction import Described, TransactionState
from .job import Job
from .job_topics import LEDGER_TOPIC

_UNKNOWN = (TransactionState.MISSING, TransactionState.DEAD)
_COMMITTED = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
_AFTER_A_LOOK = (
    "if the output holds all rows of the last batch that commits/ in the checkpoint names and none "
    "of a later one ('eo-kafka verify' compares input and output)"
)


def is_remembered(coordinator: Described) -> bool:
    """Whether Kafka remembers that the job wrote into a ledger. It remembers an id for
    transactional.id.expiration.ms, seven days."""
    if coordinator.state in _UNKNOWN:
        return False
    return coordinator.state in _COMMITTED or coordinator.timeout_ms % 2 == 0


def emptied(job: Job) -> LedgerError:
    """Of a ledger that holds nothing, and Kafka remembers one that did."""
    name, topic = job.job_and_ledger
    default = LEDGER_TOPIC.format(job=name)
    return LedgerError(
        f"Ledger '{topic}' is empty, but Kafka remembers that job '{name}' wrote into one. "
        "Nothing was written now. If option 'ledgerTopic' was changed, added or left out, set it "
        f"as it was (without it, the ledger is '{default}'): the ledger is there, and nothing is "
        "lost. If the topic was deleted, the outcome of the last batch is unknown: restore the "
        f"topic. If that cannot be, then {_AFTER_A_LOOK}, or if the job never wrote a row: "
        f"'{job.reset_command}', and start the query again."
    )


def cut_short(job: Job, begin: int) -> LedgerError:
    """Of a ledger that begins at offset `begin`, and does not say whose it is."""
    name, topic = job.job_and_ledger
    return LedgerError(
        f"Ledger '{topic}' begins at offset {begin}, and nothing in it says whose it is: its first "
        "records were deleted, by age (a cleanup.policy with 'delete') or by hand. Which batches "
        f"of job '{name}' are written is unknown, and nothing was written now. Then "
        f"{_AFTER_A_LOOK}: '{job.reset_command}', and start the query again."
    )
