"""Finds, reads and writes the topic of a view of keyed state; its only writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from ..clients.kafka.topics import exists
from ..core.errors import EoKafkaError, Fenced, OptionsError
from ..core.options import text
from . import view
from .ledger import compacted_topic
from .ledger.appender import Record
from .ledger.job_topics import RESERVED, is_part, topic_name
from .snapshots.search import SnapshotSearch
from .snapshots.writer import ExportWriter
from .view import Marker, View

_PORTION = 32 << 20  # bytes that readers see at once: a batch's, but for a large one


def topic_of(job: str, name: str) -> str:
    """The view's topic. Raises OptionsError."""
    try:
        topic = topic_name(view.TOPIC.format(job=job, view=text(name)))
        if not is_part(name):
            raise ValueError(f"must have no dot and be none of {', '.join(RESERVED)}")
        return topic
    except ValueError as error:
        raise OptionsError([f"The name of a view, here '{name}', {error}."]) from None


def open_view(job: str, name: str, options: Mapping[str, str]) -> View:
    """What a view shows now. `options` as given to the sink. Runs anywhere.

    Raises EoKafkaError if there is none of this name, OptionsError, EnvironmentRefused (also where
    Kafka deletes by age what the view must show), CorruptSnapshot, ReadTimeout.
    """
    search = SnapshotSearch(job, options)
    topic = topic_of(search.job, name)
    if not exists(search.admin, topic):
        raise EoKafkaError(
            f"Job '{job}' has no view '{name}' (no topic '{topic}'). eo_kafka.StateView makes one."
        )
    compacted_topic.check_keeps(search.admin, topic, search.brokers)
    end = search.control.end_offset(topic, view.PARTITION, committed=True)
    return view.read_view(search.options.kafka, topic, end)


class ViewWriter:
    """Brings a view from batch to batch. A second one shuts the first out, which then raises
    Fenced: it would bring back what has changed since."""

    def __init__(self, job: str, name: str, options: Mapping[str, str]) -> None:
        search = SnapshotSearch(job, options)
        self.topic = topic_of(search.job, name)
        compacted_topic.ensure_one(search.options, search.admin, self.topic, search.brokers)
        self._writer = ExportWriter(search.options, search.control, self.topic)
        self._settings = search.options.kafka
        self._marker = self.read().marker
        self._is_known = True

    @property
    def marker(self) -> Marker | None:
        """What was written last. After a `write` that failed the topic is taken and read anew.
        Raises EnvironmentRefused, OutcomeUnknown, ReadTimeout, CorruptSnapshot."""
        if not self._is_known:
            self._writer.take()
            self._marker = self.read().marker
            self._is_known = True
        return self._marker

    def read(self) -> View:
        """What the view shows."""
        return view.read_view(self._settings, self.topic, self._writer.end)

    def write(self, changes: Iterable[Record], marker: Marker) -> None:
        """Append the changes and then, with the last of them, the marker: in one transaction, but
        for changes of more than 32 MiB or 10,000 keys. Raises Fenced, EnvironmentRefused,
        OutcomeUnknown."""
        try:
            self._writer.write(chain(changes, [(view.MARKER, marker.encode())]), _PORTION)
        except Fenced:  # and it stays so
            raise
        except EoKafkaError:
            self._is_known = False
            raise
        self._marker = marker
