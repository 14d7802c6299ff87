"""Finds a job's snapshots: its newest one and its exports. Only reads.

The job may go on running: nothing is fenced, and a snapshot that was found may be replaced by a
newer one while it is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ...clients.kafka import control_plane
from ...clients.kafka.cluster import connect
from ...clients.kafka.topics import TIMEOUT_S, exists, metadata
from ...core.errors import CorruptSnapshot, EoKafkaError
from ..ledger.appender import STATE_PARTITION
from ..ledger.blob_names import SnapshotHead
from ..ledger.coordinator import Coordinator
from ..ledger.job import read_job
from ..ledger.ledger import Ledger
from ..ledger.owner import check_job
from . import export, operators
from .export import Export
from .manifest import Manifest
from .operators import Operator


@dataclass(frozen=True)
class Found:
    """A snapshot that is whole, as far as its head says. Its files are in the records before offset
    `end` of `topic`. Its name is that of an export, or 'latest', the job's own."""

    name: str
    topic: str
    end: int
    head: SnapshotHead


@dataclass(frozen=True)
class FoundExport(Found):
    """One that was exported."""

    export: Export


class SnapshotSearch:
    """Looks for the snapshots of one job. Every method raises what looking may raise:
    EnvironmentRefused, OutcomeUnknown, ReadTimeout, CorruptLedger, CorruptSnapshot."""

    def __init__(self, job: str, options: Mapping[str, str]) -> None:
        self.options = read_job(job, options)
        self.job, self.ledger_topic = self.options.job_and_ledger
        self.admin, self.brokers = connect(self.options.kafka, TIMEOUT_S)
        self.control = control_plane.shared(self.options.kafka)
        self._coordinator = Coordinator(self.options, self.control)

    @property
    def has_ledger(self) -> bool:
        """Whether the job's ledger is there."""
        return exists(self.admin, self.ledger_topic)

    def ledger(self) -> Ledger:
        """What the job's ledger says now; an empty one if there is none. Raises LedgerError, too,
        if it is another job's."""
        if not self.has_ledger:
            return Ledger()
        found = self._coordinator.read(fenced=False)
        check_job(self.control, self.options, found)
        return found

    def catch_up(self, generation: int) -> None:
        """From here on `ledger` says all that stood there when `generation`, which somebody took,
        was written, also where a leader that is cut off tells less."""
        self._coordinator.read_since(generation, fenced=False)

    def newest(self, ledger: Ledger) -> Found | None:
        """The job's own snapshot that `ledger` names."""
        head = ledger.snapshot
        if head is None:
            return None
        topic = self._topic_of(head)
        if not exists(self.admin, topic):
            raise CorruptSnapshot(
                f"The ledger names a snapshot of batch {head.batch}, but there is no topic "
                f"'{topic}', which held it. If it was deleted, keep the job's checkpoint and start "
                "the query again: its next batch takes a whole snapshot."
            )
        # The head is visible, its files may not be yet: markers reach partitions one by one.
        return Found(export.LATEST, topic, self._end_of(topic, committed=False), head)

    def _topic_of(self, head: SnapshotHead) -> str:
        """What the option says may have been changed since; the first heads do not name it."""
        return head.topic or self.options.state_topic or ""

    def of(self, name: str) -> Found:
        """The snapshot of this name, whole. Raises EoKafkaError if there is none."""
        return self.latest() if name == export.LATEST else self.exported(name)

    def latest(self) -> Found:
        """The job's own newest snapshot. Raises EoKafkaError if it has none."""
        found = self.newest(self.ledger())
        if found is None:
            raise EoKafkaError(
                f"Job '{self.job}' has no snapshot (its ledger is '{self.ledger_topic}'). Is the "
                "name right? Its sink takes one with each batch if option 'snapshots' is true."
            )
        return found

    def exported(self, name: str) -> FoundExport:
        """An export that was finished. Raises OptionsError, EoKafkaError if there is none."""
        topic = export.topic_of(self.job, name)
        if not exists(self.admin, topic):
            raise EoKafkaError(
                f"Job '{self.job}' has no exported snapshot '{name}' (no topic '{topic}'): "
                f"'eo-kafka snapshots list {self.job} --bootstrap-servers ...' names those it has."
            )
        found = self.export_of(name)
        if found is None:
            raise EoKafkaError(
                f"The export '{name}' of job '{self.job}' was not finished: export it again under "
                "this name, or delete it."
            )
        return found

    def exports(self) -> dict[str, FoundExport | None]:
        """All exports of the job, by name; None for one that is unfinished."""
        topics = metadata(self.admin).topics
        names = (export.name_in(topic, self.job) for topic in topics)
        return {name: self.export_of(name) for name in sorted(name for name in names if name)}

    def all(self) -> dict[str, Found | None]:
        """The job's own newest one, None if its topic is gone, and its exports."""
        ledger = self.ledger()
        newest: dict[str, Found | None] = {}
        if ledger.snapshot:
            there = exists(self.admin, self._topic_of(ledger.snapshot))
            newest[export.LATEST] = self.newest(ledger) if there else None
        return {**newest, **self.exports()}

    def export_of(self, name: str) -> FoundExport | None:
        """An export whose topic is there; None if it is unfinished."""
        topic = export.topic_of(self.job, name)
        end = self._end_of(topic, committed=True)
        read = export.read_head(self.options.kafka, topic, end)
        if read is None:
            return None
        head, at = read
        if (head.job, head.name) != (self.job, name):
            raise CorruptSnapshot(
                f"Topic '{topic}' holds the export '{head.name}' of job '{head.job}': it was "
                "copied from another topic, or written to by somebody else. It was not used."
            )
        return FoundExport(name, topic, at, head.snapshot, head)

    def _end_of(self, topic: str, *, committed: bool) -> int:
        return self.control.end_offset(topic, STATE_PARTITION, committed)

    def manifest(self, found: Found) -> Manifest:
        """The manifest of a snapshot that is whole."""
        return export.read_manifest(self.options.kafka, found.topic, found.end, found.head)

    def read_files(
        self, found: Found, manifest: Manifest, paths: Collection[str]
    ) -> dict[str, bytes]:
        """The contents of a few small files, all of them whole."""
        return export.read_files(self.options.kafka, found.topic, found.end, manifest, paths)

    def operators(self, found: Found, manifest: Manifest) -> list[Operator]:
        """The stateful operators whose state is in the snapshot."""
        described = operators.descriptions(manifest.files)
        return operators.parse(self.read_files(found, manifest, described))

    def offsets(self, found: Found, manifest: Manifest) -> tuple[str, ...]:
        """The ends of its batch, a line for each source, as Spark wrote them."""
        if isinstance(found, FoundExport):
            return found.export.offsets
        path = f"offsets/{found.head.batch}"
        text = self.read_files(found, manifest, [path])[path]
        return tuple(text.decode("utf-8", "replace").split("\n")[2:])


def snapshots(job: str, options: Mapping[str, str]) -> dict[str, Found | None]:
    """Find a job's snapshots. Runs anywhere and changes nothing; the job may be running.

    Args:
        job: The job's name.
        options: The sink's options: `kafka.*`, and `ledgerTopic`, `stateTopic`,
            `transactionalIdPrefix` and `allowWeakReplication` where the job has them. Other
            options are ignored.

    Returns:
        The snapshots by name: the job's own newest one under `latest`, and its exports. An export
        that is unfinished is None, and so is `latest` if the ledger names it and its topic is gone.

    Raises:
        OptionsError: An option is wrong.
        EnvironmentRefused: The cluster cannot be reached, or is not configured as it must be.
        OutcomeUnknown, ReadTimeout: The brokers did not answer in time.
        CorruptLedger, CorruptSnapshot: A record is not what eo-kafka wrote.

    Examples:
        >>> sorted(eo_kafka.snapshots("firsts", kafka))
        ['latest']
    """
    return SnapshotSearch(job, options).all()
