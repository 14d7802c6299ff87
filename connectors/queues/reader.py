"""Spark's reader of queues: the Kafka source's over the inbox, which it fills first."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionsError
from ...core.offsets import decode
from ...formats import reading
from ...formats.options import FormatOptions
from ...sources.queues.options import QueueOptions, source_options
from ...sources.queues.receiver import Receiver
from ...sources.queues.rows import unpacked, with_messages
from ...sources.settings.options import SourceOptions
from ..kafka_source import KafkaStreamReader, reader_options
from ..plain_errors import plain_errors
from ..spark_versions import ReadLimit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checked:
    """All options of a queue: the receiver's, the Kafka source's and the formats'."""

    queue: QueueOptions
    source: SourceOptions
    formats: FormatOptions


def checked(given: Mapping[str, str]) -> Checked:
    """All options, with all problems at once. Contacts nobody. Raises OptionsError."""
    problems: list[str] = []
    queue = source = None
    try:
        queue = QueueOptions.parse(given)
    except OptionsError as error:
        problems += error.problems
    try:
        source, formats = reader_options(source_options(given), streaming=True)
        source = replace(source, topics_given_by="option 'inbox'")
    except OptionsError as error:
        problems += [one for one in error.problems if one not in problems]
    if problems or queue is None or source is None:
        raise OptionsError(problems)
    return Checked(queue, source, formats)


def columns(options: Checked) -> StructType | str:
    """The columns, typed where formats are given."""
    return reading.schema(options.formats, with_messages(options.source.schema()))


class _Reading(reading.Reading):
    """The formats, on batches that have got the messages' columns. Pickled to the executors."""

    def __init__(self, options: Checked, schema: StructType) -> None:
        self._raw = with_messages(options.source.schema())
        super().__init__(options.formats, self._raw, schema)

    @property
    def unread(self) -> None:
        """The receiver writes no such record, and the messages' columns have no place for it."""

    def batches(self, fetched: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Each batch in the columns of the format. Raises SourceError."""
        from ...formats.shared.arrow_types import arrow_schema

        return super().batches(unpacked(fetched, arrow_schema(self._raw)))


@plain_errors
class QueueStreamReader(KafkaStreamReader):
    """A stream over the inbox. Before a batch is planned, the planning process moves messages from
    the queue into it; see sources/queues/receiver.py for why it is there and nowhere else. All that
    Spark asks for again, it finds in the inbox."""

    def __init__(self, options: Checked, schema: StructType) -> None:
        super().__init__(options.source, _Reading(options, schema))
        self._receiver: Receiver | None = Receiver(options.queue)  # None in tasks
        self._inbox = options.queue.inbox
        self._has_drained = self._has_looked = False

    def __getstate__(self) -> dict[str, Any]:
        """What tasks get: nothing of the queue, nor of its password."""
        return {**self.__dict__, "_receiver": None}

    def stop(self) -> None:
        """Leave the queue, so that nobody waits until it is found out. Driver, at the end."""
        if self._receiver is not None:
            self._receiver.close()
        super().stop()

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts: at the inbox's beginning. Driver, while batch 0 is not
        committed. Raises what `latestOffset` does."""
        assert self._receiver is not None
        self._receiver.open()
        found = super().initialOffset()
        first = max(decode(found).values(), default=0)
        if first and not self._has_looked:
            log.warning(
                "Inbox '%s' begins at offset %d: Kafka has deleted what was before, or "
                "startingOffsets says so. This query is new and does not read it. If no other "
                "query has, messages are lost.",
                self._inbox,
                first,
            )
        self._has_looked = True
        return found

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Receive, and then as the Kafka source. Driver, once for each batch or trigger.

        Raises EnvironmentRefused for a queue or a topic that does not do, ReadTimeout when RabbitMQ
        or Kafka does not answer, OutcomeUnknown when it is not known whether messages were kept
        (the next start finds out), Fenced when another driver of this job has taken over.
        """
        if not (self._until_now and self._has_drained):
            assert self._receiver is not None
            self._receiver.receive(all_there=self._until_now)
            self._has_drained = True
        return super().latestOffset(start, limit)
