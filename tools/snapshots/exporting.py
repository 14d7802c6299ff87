"""Exports, verifies and deletes snapshots while the job goes on.

Nothing of the job is fenced. It may take its next snapshot meanwhile and remove files of the one
that is copied: then the newer one is copied, and what both have is not copied again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Protocol

import tenacity

from ...clients.kafka.topics import TIMEOUT_S, exists
from ...core.errors import CorruptSnapshot, EnvironmentRefused, EoKafkaError, RepairNeeded
from ...core.progress import bar
from ...core.transaction import Decision, DecisionState
from ...sinks.options import SinkOptions
from ...sinks.protocol.recovery import make_plan
from ...state.ledger import compacted_topic
from ...state.ledger.job import of_job
from ...state.ledger.owner import check_named
from ...state.snapshots import blobs, export
from ...state.snapshots.export import Export
from ...state.snapshots.manifest import Manifest
from ...state.snapshots.search import Found, SnapshotSearch
from ...state.snapshots.writer import ExportWriter
from .nothing_later import check_nothing_later, check_still_last

log = logging.getLogger(__name__)

ATTEMPTS = 5
DONE_TIMEOUT_S = 60.0


class Query(Protocol):
    """What is asked of Spark's StreamingQuery."""

    def stop(self) -> None:
        """Stop it and wait until it has."""


def export_snapshot(
    job: str, name: str, options: Mapping[str, str], *, progress: bool = True
) -> Export:
    """Copy a job's newest snapshot into a topic of its own, where it stays until it is deleted.

    Runs anywhere; the job may be running, and is neither stopped nor fenced. Call it again with the
    same name if it was interrupted.

    Args:
        job: The job's name.
        name: The export's name: letters, digits, `_` and `-`. A name in use is never overwritten.
        options: The sink's options: `kafka.*`, and `ledgerTopic`, `stateTopic`,
            `transactionalIdPrefix` and `allowWeakReplication` where the job has them. Other
            options are ignored.
        progress: Whether stderr shows a progress bar.

    Returns:
        The export: its `name`, `job`, `made_ms` (since 1970), `snapshot` and the source `offsets`.

    Raises:
        EoKafkaError: There is nothing to export, or the name is taken.
        Fenced: Somebody else exports under this name.
        OptionsError: An option or the name is wrong.
        EnvironmentRefused: The cluster cannot be reached, or is not configured as it must be.
        OutcomeUnknown, ReadTimeout: The brokers did not answer in time.
        CorruptLedger, CorruptSnapshot: A record is not what eo-kafka wrote.

    Examples:
        >>> made = eo_kafka.export_snapshot("firsts", "monday", kafka, progress=False)
        >>> made.job, made.name
        ('firsts', 'monday')
    """
    return _export(SnapshotSearch(job, options), name, progress)


def _export(search: SnapshotSearch, name: str, progress: bool) -> Export:
    topic = export.topic_of(search.job, name)
    found, decision = _newest_written(search)
    compacted_topic.ensure_one(search.options, search.admin, topic, search.brokers)
    writer = ExportWriter(search.options, search.control, topic)
    _check_free(search, name)  # not before the fence: it may just have been finished
    writer.look()
    for left in reversed(range(ATTEMPTS)):
        try:
            return _copy(search, writer, name, found, decision, progress)
        except CorruptSnapshot:
            newer = _newest_written(search)
            if newer[0].head == found.head or not left:
                raise
            log.info("A newer snapshot of job '%s' is there: that one is exported.", search.job)
            found, decision = newer
    raise AssertionError("the last attempt returns or raises")


def cancel_and_export(
    query: Query, job: str, name: str, options: Mapping[str, str], *, progress: bool = True
) -> Export:
    """Stop a query and export its final state.

    The export holds all that the query wrote, so a job that starts from it goes on exactly where
    this one stopped. Finishes what was decided and aborts what was not. Runs on the driver.

    Args:
        query: The running query.
        job: The job's name.
        name: The export's name, as for `export_snapshot`.
        options: The sink's options: `kafka.*`, and `ledgerTopic`, `stateTopic`,
            `transactionalIdPrefix` and `allowWeakReplication` where the job has them. Other
            options are ignored.
        progress: Whether stderr shows a progress bar.

    Returns:
        The export, as `export_snapshot` returns it.

    Raises:
        EoKafkaError: The job has no snapshot or the name is taken, or the job runs under another
            `transactionalIdPrefix` (the query goes on); or something failed after the query was
            stopped, which the message says; or another driver of the job has begun meanwhile, so
            that the export is there and may not be the last state.
        OptionsError: An option or the name is wrong. The query goes on.
        EnvironmentRefused, OutcomeUnknown, ReadTimeout: The cluster did not answer. The query goes
            on.

    Examples:
        >>> made = eo_kafka.cancel_and_export(query, "firsts", "upgrade", kafka, progress=False)
        >>> query.isActive
        False
    """
    search = SnapshotSearch(job, options)
    search.latest()
    check_named(search.control, search.options, search.ledger())
    if exists(search.admin, export.topic_of(search.job, name)):
        _check_free(search, name)
    query.stop()
    try:
        plan = make_plan(SinkOptions.parse(of_job(job, options), streaming=True))
        if plan.torn is not None:
            raise RepairNeeded(
                f"Batch {plan.torn.decision.batch} is written in part. Started again, the query "
                "writes the rest of it, or says what to do."
            )
        search.catch_up(plan.generation)
        check_nothing_later(search)
        made = _export(search, name, progress)
    except EoKafkaError as error:
        raise EoKafkaError(
            f"{error} The query is stopped, and nothing was exported; the job's own newest "
            "snapshot is still there. Export again, or start the query again."
        ) from error
    check_still_last(search, made, plan.generation)
    return made


def verify_snapshot(
    job: str, options: Mapping[str, str], name: str = export.LATEST, *, progress: bool = True
) -> list[str]:
    """Read a whole snapshot and check it against its digests. Runs anywhere and writes nothing.

    Args:
        job: The job's name.
        options: The sink's options: `kafka.*`, and `ledgerTopic`, `stateTopic`,
            `transactionalIdPrefix` and `allowWeakReplication` where the job has them. Other
            options are ignored.
        name: An export's name; by default the job's own newest snapshot.
        progress: Whether stderr shows a progress bar.

    Returns:
        The paths of files that are missing, cut or changed; an empty list if the snapshot is whole.

    Raises:
        EoKafkaError: There is no such snapshot, or a running job replaced it again and again.
        OptionsError: An option is wrong.
        EnvironmentRefused: The cluster cannot be reached; or the snapshot is whole and will not
            stay so, because Kafka deletes records of its topic by age.
        OutcomeUnknown, ReadTimeout: The brokers did not answer in time.
        CorruptLedger, CorruptSnapshot: A record is not what eo-kafka wrote.

    Examples:
        >>> eo_kafka.verify_snapshot("firsts", kafka, "monday", progress=False)
        []
    """
    search = SnapshotSearch(job, options)
    for _ in range(ATTEMPTS):
        found = search.of(name)
        try:
            broken = _damaged(search, found, progress)
        except CorruptSnapshot:
            if search.of(name).head == found.head:
                raise
            continue
        if broken and search.of(name).head != found.head:
            continue
        _check_stays(search, found, broken)
        return broken
    raise EoKafkaError(
        f"Job '{job}' took a newer snapshot {ATTEMPTS} times while its newest one was read. Export "
        "it and verify the export."
    )


def _check_stays(search: SnapshotSearch, found: Found, broken: list[str]) -> None:
    """Files that are whole today are not enough. Raises EnvironmentRefused."""
    try:
        compacted_topic.check_keeps(search.admin, found.topic, search.brokers)
    except EnvironmentRefused as error:
        if not broken:
            raise EnvironmentRefused(
                f"All files of '{found.name}' of job '{search.job}' are whole, and will not stay "
                f"so. {error}"
            ) from None
        log.warning("%s", error)  # perhaps why


def delete_snapshot(job: str, name: str, options: Mapping[str, str]) -> None:
    """Delete an export, finished or not. Runs anywhere.

    A job that was started from the export does not need it once it has a snapshot of its own. With
    option `snapshots` its query takes one with its first batch, which is the export's once more.

    Args:
        job: The job's name.
        name: The export's name.
        options: The sink's options: `kafka.*`, and `ledgerTopic`, `stateTopic`,
            `transactionalIdPrefix` and `allowWeakReplication` where the job has them. Other
            options are ignored.

    Raises:
        EoKafkaError: There is no export of this name, or Kafka does not delete it.
        OptionsError: An option is wrong.

    Examples:
        >>> eo_kafka.delete_snapshot("firsts", "monday", kafka)
    """
    from confluent_kafka import KafkaException

    search = SnapshotSearch(job, options)
    topic = export.topic_of(search.job, name)
    if not exists(search.admin, topic):
        search.exported(name)  # raises the sentence
    try:
        search.admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    except (KafkaException, FutureTimeout) as error:
        raise EoKafkaError(
            f"Topic '{topic}' was not deleted: {error}. Is Kafka up, and the principal allowed to "
            "Delete the topic?"
        ) from None
    # Brokers hear of it one by one; the same name may be used right away.
    gone = tenacity.Retrying(
        retry=tenacity.retry_if_result(bool),
        wait=tenacity.wait_fixed(0.1),
        stop=tenacity.stop_after_delay(TIMEOUT_S),
        retry_error_callback=lambda _: None,
    )
    gone(exists, search.admin, topic)


def _newest_written(search: SnapshotSearch) -> tuple[Found, Decision]:
    """The newest snapshot whose batch is written, with that batch's decision. One that is decided
    a moment ago is waited for. Raises EoKafkaError."""

    def ask() -> tuple[Found, Decision | None]:
        found = search.latest()
        at = (search.options.sink, found.head.batch)
        return found, search.ledger().decisions.get(at)

    patient = tenacity.Retrying(
        retry=tenacity.retry_if_result(
            lambda asked: asked[1] is not None and asked[1].state is DecisionState.DECIDED
        ),
        wait=tenacity.wait_fixed(0.1),
        stop=tenacity.stop_after_delay(DONE_TIMEOUT_S),
        retry_error_callback=lambda last: last.outcome.result() if last.outcome else None,
    )
    found, decision = patient(ask)
    if decision is None or decision.state is not DecisionState.DONE or not decision.offsets:
        state = decision.state.value if decision else "forgotten by the ledger"
        raise EoKafkaError(
            f"The newest snapshot of job '{search.job}' is of batch {found.head.batch}, which "
            f"is {state}: a job that starts from the export could not know what was written of "
            "it. Start the query, with option 'snapshots', let it finish a batch, and export "
            "then. Nothing was exported."
        )
    return found, decision


def _check_free(search: SnapshotSearch, name: str) -> None:
    """Raise EoKafkaError if a finished export has the name."""
    found = search.export_of(name)
    if found is not None:
        raise EoKafkaError(
            f"Job '{search.job}' has an exported snapshot '{name}' already, of batch "
            f"{found.head.batch}. It was left as it is: choose another name, or delete it first."
        )


def _damaged(search: SnapshotSearch, found: Found, progress: bool) -> list[str]:
    manifest = search.manifest(found)
    with bar(f"Verifying {found.name} of {search.job}", shown=progress) as told:
        return export.damaged(search.options.kafka, found.topic, found.end, manifest, told)


def _copy(
    search: SnapshotSearch,
    writer: ExportWriter,
    name: str,
    found: Found,
    decision: Decision,
    progress: bool,
) -> Export:
    head, kafka = found.head, search.options.kafka
    # As it stands there: packed again, it could have another digest.
    packed = blobs.read_blob(kafka, found.topic, head.manifest_from, found.end, head.manifest)
    manifest = Manifest.decode(packed)
    with bar(f"Exporting batch {head.batch} of {search.job}", shown=progress) as told:
        writer.write(export.copies(kafka, found.topic, found.end, manifest, writer.keys, told))
    needed = {key for blob in manifest.blobs().values() for key in blob.chunk_keys()}
    writer.write((key, None) for key in sorted(writer.keys - needed))
    made = Export(
        name=name,
        job=search.job,
        made_ms=int(time.time() * 1000),
        snapshot=replace(head, manifest_from=writer.end),
        offsets=decision.offsets,
    )
    writer.append([*blobs.chunks(packed, head.manifest), (export.KEY, export.encode(made))])
    return made
