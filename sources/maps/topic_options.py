"""Parses the options of a reader of a map that is a compacted topic. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...clients.hazelcast import client as hazelcast_client
from ...core.errors import OptionsError
from ...core.options import OptionReader
from ...state.ledger.job_topics import topic_name
from ..settings import declared
from ..settings.options import SourceOptions
from .declared import (
    FETCH_SIZE,
    OF_BOTH,
    OF_MEMBERS,
    OLDEST,
    PREDICATE,
    STREAM_ONLY,
    TASKS,
    MapShape,
    read_shape,
)

log = logging.getLogger(__name__)

# How topics are read, by the Kafka source's own options
_PASSED_ON = (
    declared.POLL_TIMEOUT_MS,
    declared.GROUP_ID_PREFIX,
    declared.NUM_RETRIES,
    declared.RETRY_INTERVAL_MS,
    declared.LOOKUP_TIMEOUT_MS,
)
_REFUSED = {
    TASKS.name: "each partition of the topic is read by one task, which keeps a key's changes in "
    "order",
    FETCH_SIZE.name: "'kafka.fetch.*' settings say how much one request asks for",
    PREDICATE.name: "brokers do not look into records. Use filter()",
    declared.SUBSCRIBE.name: "option 'map' names the topic",
    declared.SUBSCRIBE_PATTERN.name: "option 'map' names the topic",
    declared.ASSIGN.name: "a map is all partitions of its topic",
    declared.STARTING_OFFSETS.name: "'startingSequence' says where a stream starts",
    declared.ENDING_OFFSETS.name: "a batch ends where the topic ends",
    declared.MAX_OFFSETS_PER_TRIGGER.name: "it is called 'maxEventsPerTrigger' here",
    declared.JOB_NAME.name: "batches of a map are not repeated after a restore",
    declared.LEDGER.name: "batches of a map are not repeated after a restore",
}


@dataclass(frozen=True)
class TopicMapOptions(MapShape):
    """The options of one reader, checked. Pickled to the tasks; its repr shows no secrets."""

    source: SourceOptions

    @classmethod
    def parse(cls, given: Mapping[str, str], streaming: bool | None) -> TopicMapOptions:
        """Read and check `given`; raises OptionsError with every problem. Contacts nobody.
        `streaming` is None where Spark has not said yet what the reader is for."""
        reader = OptionReader(given)
        shape = read_shape(reader, streaming)
        for name, kind in (("key", shape.key_format), ("value", shape.value_format)):
            if kind in OF_MEMBERS:
                reader.problem(
                    f"Option '{name}.format' is '{kind}', which is for Hazelcast's maps: a topic "
                    "holds 'bytes'."
                )
        for name in sorted(reader.prefixed(hazelcast_client.PREFIX)):
            reader.problem(
                f"Option '{hazelcast_client.PREFIX}{name}' is for maps with 'backend' 'hazelcast'."
            )
        reader.refuse(_REFUSED)
        if shape.map:
            try:
                topic_name(shape.map)
            except ValueError as error:
                reader.problem(
                    f"Option 'map' is the topic's name and {error}; it is '{shape.map}'."
                )
        source = _source(reader, given, shape, streaming)
        if streaming is False:
            for name in STREAM_ONLY:
                if name in reader:
                    log.warning("option '%s' is ignored in batch queries", name)
        reader.check_names(one.name for one in (*OF_BOTH, *_PASSED_ON))
        reader.finish()
        assert source is not None
        return cls(**vars(shape), source=source)

    @property
    def place(self) -> str:
        """For sentences: which map."""
        return f"map '{self.map}' (a topic at {self.source.servers})"


def _source(
    reader: OptionReader, given: Mapping[str, str], shape: MapShape, streaming: bool | None
) -> SourceOptions | None:
    passed = {one.name.lower() for one in _PASSED_ON}
    words = {
        name: value
        for name, value in given.items()
        if name.lower() in passed or name.lower().startswith("kafka.")
    }
    words[declared.SUBSCRIBE.name] = shape.map or "-"  # a missing name has been told
    oldest = shape.starting == OLDEST or not streaming
    words[declared.STARTING_OFFSETS.name] = "earliest" if oldest else "latest"
    words[declared.FAIL_ON_DATA_LOSS.name] = str(shape.fail_on_data_loss)
    if shape.max_events is not None:
        words[declared.MAX_OFFSETS_PER_TRIGGER.name] = str(shape.max_events)
    try:
        source = SourceOptions.parse(words, streaming=True)
    except OptionsError as error:
        for sentence in error.problems:
            reader.problem(sentence)
        return None
    if not source.read_committed:
        reader.problem(
            "Kafka option 'isolation.level' is 'read_uncommitted': records of aborted "
            "transactions were never in the map. Take the option away."
        )
    return replace(source, topics_given_by="option 'map'")
