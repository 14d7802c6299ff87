"""Whether a job has written more than one of its snapshots knows of."""

from __future__ import annotations

from ...core.errors import EoKafkaError
from ...core.transaction import DecisionState
from ...state.ledger.ledger import Ledger
from ...state.snapshots.export import Export
from ...state.snapshots.search import SnapshotSearch


def check_nothing_later(search: SnapshotSearch) -> None:
    """Raise EoKafkaError if the job wrote more than its newest snapshot knows of."""
    newest = search.latest().head.batch
    if later := _later(search, search.ledger(), newest):
        raise EoKafkaError(
            f"The newest snapshot is of batch {newest}, and batches up to {max(later)} were "
            "written since without one (options 'snapshots' and 'snapshotInterval' say when one is "
            "taken): a job started from it would write them again."
        )


def check_still_last(search: SnapshotSearch, made: Export, generation: int) -> None:
    """Raise EoKafkaError if a driver that nobody stopped has begun, or written, meanwhile."""
    try:
        ledger = search.ledger()
    except EoKafkaError as error:
        raise EoKafkaError(
            f"The query is stopped, and the export '{made.name}' of batch {made.snapshot.batch} is "
            f"there. Whether it is the last state of job '{search.job}' is not known, for the "
            f"ledger cannot be read now: {error} It is, if 'eo-kafka job show {search.job}' names "
            f"generation {generation} and no later batch."
        ) from error
    if ledger.generation == generation and not _later(search, ledger, made.snapshot.batch):
        return
    raise EoKafkaError(
        f"Another driver of job '{search.job}' has begun while its last state was exported "
        f"(generation {ledger.generation} of the ledger, and the export is of {generation}), and "
        f"may write more: the export '{made.name}', of batch {made.snapshot.batch}, is there and "
        "is not known to be the last state. A job started from it may write batches again. End "
        f"that driver, delete the export ('eo-kafka snapshots delete {search.job} {made.name}'), "
        "and export again."
    )


def _later(search: SnapshotSearch, ledger: Ledger, newest: int) -> list[int]:
    """The batches that were written after `newest`."""
    return [
        batch
        for batch, found in ledger.of_sink(search.options.sink).items()
        if batch > newest and found.state is not DecisionState.VOID
    ]
