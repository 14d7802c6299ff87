"""Starts a new job from an exported snapshot: makes its checkpoint and its ledger.

What the export's job wrote up to and including the export's batch is written, and the new job must
not write it again. So the first decision in its ledger is that batch, DONE without participants;
and the ledger's owner is the query id in the new checkpoint. The folder counts as unfinished until
both are there: a start that died is started again, and finds the id in the ledger.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping

from ...core.errors import LedgerError
from ...core.progress import bar
from ...core.transaction import Decision, DecisionState
from ...core.url_secrets import without_secrets
from ...sinks.options import SinkOptions
from ...sinks.protocol import preflight
from ...sinks.protocol.recovery import make_plan
from ...state.ledger import records
from ...state.ledger.coordinator import Coordinator, Write
from ...state.ledger.job import of_job
from ...state.ledger.ledger import Ledger
from ...state.ledger.topics import TOKEN_PARTITION
from ...state.snapshots import writing_back as files
from ...state.snapshots.batch_ends import is_replayable
from ...state.snapshots.checkpoint import Checkpoint, open_checkpoint
from ...state.snapshots.export import Export
from ...state.snapshots.place import place_of
from ...state.snapshots.restoring import restore
from ...state.snapshots.search import SnapshotSearch

log = logging.getLogger(__name__)

_METADATA = "metadata"


def start_from(
    job: str,
    name: str,
    new_job: str,
    checkpoint: str,
    options: Mapping[str, str],
    *,
    target: Mapping[str, str] | None = None,
    progress: bool = True,
) -> Export:
    """Make the checkpoint and the ledger of a new job that goes on from an export.

    What the old job wrote up to and including the export's batch is not repeated. What it wrote
    later, the new job writes too: stop the old one with `cancel_and_export` for an exact
    continuation. Runs anywhere, before the new query starts. Call it again if it was interrupted,
    or if the checkpoint was lost before the new query has a snapshot. Keep the export until then.

    Args:
        job: The job that the export is of.
        name: The export's name.
        new_job: The name of the new job. It may be `job`, on the same cluster, while the export's
            batch is its newest: that is a plain restore, which keeps the query's id.
        checkpoint: An empty folder, a path or URL.
        options: The sink's options: `kafka.*`, and `ledgerTopic`, `stateTopic`,
            `transactionalIdPrefix` and `allowWeakReplication` where the job has them. Other
            options are ignored.
        target: The same options for the new job, where they differ (another cluster, other topics).
        progress: Whether stderr shows a progress bar.

    Returns:
        The export, as `export_snapshot` returns it.

    Raises:
        LedgerError: `new_job` has a ledger that is in use. It was left as it is.
        CheckpointError: The folder is not empty, or holds what another restore or start-from left
            unfinished.
        EoKafkaError: There is no such export.
        OptionsError: An option or a name is wrong.
        Fenced: The new job already runs.
        EnvironmentRefused: The cluster cannot be reached, or is not configured as it must be.
        OutcomeUnknown, ReadTimeout: The brokers did not answer in time.
        CorruptLedger, CorruptSnapshot: A record is not what eo-kafka wrote.

    Examples:
        >>> made = eo_kafka.start_from(
        ...     "firsts", "monday", "firsts-2", "/data/firsts-2", kafka, progress=False
        ... )
        >>> made.name
        'monday'
    """
    search = SnapshotSearch(job, options)
    found = search.exported(name)
    if new_job == job and target is None:
        restore(checkpoint, job, options, name, progress=progress)
        return found.export
    folder = open_checkpoint(checkpoint)
    theirs = options if target is None else target
    sink = SinkOptions.parse(of_job(new_job, theirs), streaming=True)
    seed = _Seed(sink, SnapshotSearch(new_job, theirs), found.export, place_of(folder))

    def finish() -> None:
        seed.write()
        _write_metadata(folder, seed.query)  # last: without it, Spark does not start

    with bar(f"Restoring {name} of {job}", shown=progress) as told:
        files.restore(
            search.options.kafka,
            found.topic,
            found.end,
            found.head,
            folder,
            told,
            files.Purpose(new_job, job, name),
            leave_out=frozenset({_METADATA}),
            before_finish=finish,
        )
    shown = without_secrets(checkpoint)
    log.info("'%s' was made from export '%s' of job '%s'.", shown, name, job)
    return found.export


def _write_metadata(folder: Checkpoint, query: str) -> None:
    folder.write(_METADATA, [json.dumps({"id": query}, separators=(",", ":")).encode()])


class _Seed:
    """The beginning of a new job's ledger. Raises LedgerError where there is another one."""

    def __init__(
        self, options: SinkOptions, search: SnapshotSearch, export: Export, place: str
    ) -> None:
        self._options = options
        self._control = search.control
        self._place = place
        self._export = export
        # Only looked at: taking a generation would stop the query that runs under this name.
        ledger = search.ledger()
        self._is_written = self._stands_in(ledger)
        self.query = ledger.owner or str(uuid.uuid4())
        preflight.ensure(self._options)  # what it refuses, it refuses before files are copied

    def write(self) -> None:
        """Write it, unless an earlier attempt has."""
        if self._is_written:
            return
        plan = make_plan(self._options, by_hand=True)
        coordinator = Coordinator(self._options, self._control)
        decision = Decision(
            sink=self._options.sink,
            batch=self._export.snapshot.batch,
            round=0,
            state=DecisionState.DONE,
            generation=plan.generation,
            end_txn_version=plan.end_txn_version,
            token_partition=TOKEN_PARTITION,
            token_from=plan.token_from,
            participants=(),
            offsets=self._export.offsets,
            # The rows of that batch are not here to be compared with; nor has it a target, by which
            # batch_checks.py knows it.
            accepted=not all(map(is_replayable, self._export.offsets)),
        )
        seed = Write(
            [
                (records.OWNER_KEY, records.encode_owner(self.query, self._place)),
                records.decision_record(decision),
            ]
        )

        def attempt(ledger: Ledger) -> Write | None:
            if not self._stands_in(ledger):
                return seed
            if ledger.owner != self.query:
                raise self._refusal(ledger)  # another start-from was a moment earlier
            return None

        coordinator.write(plan.generation, attempt)

    def _stands_in(self, ledger: Ledger) -> bool:
        """Whether the ledger holds this seed and nothing else; False if it holds nothing."""
        if ledger.owner is None and not ledger.decisions and ledger.snapshot is None:
            return False
        at = (self._options.sink, self._export.snapshot.batch)
        found = ledger.decisions.get(at)
        if (
            found is None
            or len(ledger.decisions) > 1
            or ledger.owner is None
            or ledger.snapshot is not None
            or found.state is not DecisionState.DONE
            or found.participants
            or found.offsets != self._export.offsets
        ):
            raise self._refusal(ledger)
        return True

    def _refusal(self, ledger: Ledger) -> LedgerError:
        job, topic = self._options.job_and_ledger
        newest = max(ledger.of_sink(self._options.sink), default=None)
        used = f"it is at batch {newest}" if newest is not None else "it belongs to a query"
        restore = ""
        if ledger.snapshot is not None:
            restore = (
                " If that job's checkpoint is lost, restore it: 'eo-kafka snapshots restore "
                f"{job} CHECKPOINT --bootstrap-servers ...'."
            )
        return LedgerError(
            f"Job '{job}' has a ledger already ('{topic}'), and {used}. A job that starts from "
            "an export needs a new ledger; with this one it would skip batches that were never "
            f"written. The ledger was left as it is.{restore} Choose a job name that was never "
            f"used; or, if that job will never run again, '{self._options.reset_command}' first."
        )
