"""What Spark reads and writes a map with, by its backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionsError
from ...sinks.maps.backend import Backend, backend_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from ..spark_versions import StreamArrowWriter

    Given = Mapping[str, str]


@dataclass(frozen=True)
class Classes:
    """What makes each of Spark's readers and writers. All raise OptionsError and contact nobody."""

    options: Callable[[Given, bool | None], Any]  # a reader's; None: Spark does not say for what
    stream_reader: Callable[..., DataSourceStreamReader]  # of options and typed columns
    reader: Callable[..., DataSourceReader]  # of these and the schema
    pushing_reader: Callable[..., DataSourceReader]  # with Spark's filters
    stream_writer: Callable[[Given, StructType, bool], StreamArrowWriter]
    writer: Callable[[Given, StructType, bool], DataSourceArrowWriter]


def classes_of(given: Given) -> Classes:
    """Those of the backend that options ask for, imported now."""
    return _CLASSES[backend_of(given)]()


def _topic() -> Classes:
    from ...sources.maps.topic_options import TopicMapOptions
    from . import topic_readers as readers
    from . import writers

    return Classes(
        TopicMapOptions.parse,
        readers.TopicMapStreamReader,
        readers.TopicMapBatchReader,
        readers.PushingTopicMapBatchReader,
        writers.TopicMapStreamWriter,
        writers.TopicMapBatchWriter,
    )


def _imap() -> Classes:
    from ...sources.maps.options import MapOptions
    from . import imap_readers as readers
    from . import writers

    return Classes(
        MapOptions.parse,
        readers.ImapStreamReader,
        readers.ImapBatchReader,
        readers.PushingImapBatchReader,
        writers.ImapStreamWriter,
        writers.ImapBatchWriter,
    )


def _two_phase_imap() -> Classes:
    from .writers import ImapTwoPhaseWriter

    return replace(_imap(), stream_writer=ImapTwoPhaseWriter, writer=_refused_batch)


def _refused_batch(given: Given, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    raise OptionsError(
        [
            "Option 'commit' is 'two-phase', which is a way of streaming writes and of "
            "eo_kafka.foreach_batch only: take it away."
        ]
    )


_CLASSES: dict[Backend, Callable[[], Classes]] = {
    Backend.TOPIC: _topic,
    Backend.IMAP: _imap,
    Backend.TWO_PHASE_IMAP: _two_phase_imap,
}
