"""Exports the last state of a job whose driver has ended: for its supervisor."""

from __future__ import annotations

from collections.abc import Mapping

from ...clients.kafka.topics import exists
from ...core.errors import EoKafkaError
from ...state.snapshots import export
from ...state.snapshots.export import Export
from ...state.snapshots.search import SnapshotSearch
from .exporting import cancel_and_export


class _Ended:
    """A query that somebody else has stopped."""

    def stop(self) -> None:
        """It is."""


def check_exportable(job: str, name: str, options: Mapping[str, str]) -> None:
    """What can be known while the driver runs. Raises EoKafkaError: there is no snapshot, or the
    name is taken or wrong."""
    search = SnapshotSearch(job, options)
    topic = export.topic_of(search.job, name)
    search.latest()
    if exists(search.admin, topic) and search.export_of(name) is not None:
        raise EoKafkaError(
            f"Job '{job}' has an exported snapshot '{name}' already: choose another name."
        )


def export_last(job: str, name: str, options: Mapping[str, str]) -> Export:
    """Settle what the driver left, and export the snapshot of the last batch. Raises EoKafkaError,
    also if batches were written after the newest snapshot."""
    return cancel_and_export(_Ended(), job, name, options, progress=False)
