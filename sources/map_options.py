"""What a reader of a map may be told. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eo_kafka import hazelcast_client
from eo_kafka.hazelcast_client import HazelcastSettings
from eo_kafka.options import Option, OptionReader, boolean, one_of, text, whole_number

OLDEST, CURRENT = "oldest", "current"
TEXT, BYTES, DATA, JSON = "text", "bytes", "data", "json"


def _backend(value: str) -> str:
    if value.strip().lower() == "kafka":
        raise ValueError("is 'kafka', which is not there yet: maps of Hazelcast are")
    return one_of("hazelcast")(value)


MAP = Option("map", text, "", "The map's name.")
BACKEND = Option("backend", _backend, "", "Where the map is: `hazelcast`, an IMap.")
KEY_FORMAT = Option(
    "key.format",
    one_of(TEXT, BYTES, DATA, JSON),
    TEXT,
    "What column `key` holds: `text` (text and JSON as they are, other types in their plain form), "
    "`bytes` (the content of byte arrays, and text as UTF-8), `data` (any value as Hazelcast "
    "serialized it), or `json` (JSON, or text of it, as columns of `key.schema`).",
)
VALUE_FORMAT = Option(
    "value.format", one_of(TEXT, BYTES, DATA, JSON), TEXT, "The same for `value` and `old_value`."
)
KEY_SCHEMA: Option[str | None] = Option(
    "key.schema",
    text,
    None,
    "With `key.format` `json`: columns as in SQL (`id BIGINT, name STRING`), or what "
    "`schema.json()` gives.",
)
VALUE_SCHEMA: Option[str | None] = Option("value.schema", text, None, "The same for values.")
STARTING_SEQUENCE = Option(
    "startingSequence",
    one_of(OLDEST, CURRENT),
    OLDEST,
    "Streams only: where a new query starts: at the `oldest` event that the journal holds, or with "
    "what is written from now on (`current`).",
)
MAX_EVENTS: Option[int | None] = Option(
    "maxEventsPerTrigger",
    whole_number(1),
    None,
    "Streams only: about how many events a batch may have, over all partitions.",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    boolean,
    True,
    "Streams only: whether the query stops when events that it still needed are gone, or warns of "
    "what it passed over and goes on.",
)
TASKS = Option("tasks", whole_number(1), 4, "In how many tasks a map, or a batch of it, is read.")
FETCH_SIZE = Option(
    "fetchSize",
    whole_number(1, 1_000_000),
    5000,
    "How many events or entries one request asks for; some such answers are in memory at a time.",
)
PREDICATE: Option[str | None] = Option(
    "predicate",
    text,
    None,
    "Batch only: which entries are read, in the words of Hazelcast's SQL predicates: "
    "`age > 30 AND name LIKE 'a%'`, `__key = 'k1'`. The members evaluate it; attributes are those "
    "of JSON, Compact and Portable values, `this` is a plain value.",
)
OPTIONS: tuple[Option[Any], ...] = (
    *(MAP, BACKEND, KEY_FORMAT, VALUE_FORMAT, KEY_SCHEMA, VALUE_SCHEMA, STARTING_SEQUENCE),
    *(MAX_EVENTS, FAIL_ON_DATA_LOSS, TASKS, FETCH_SIZE, PREDICATE),
)
_STREAM_ONLY = (STARTING_SEQUENCE.name, MAX_EVENTS.name)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MapOptions:
    """The options of one reader, checked. Pickled to the tasks; its repr shows no secrets."""

    map: str
    hazelcast: HazelcastSettings
    key_format: str
    value_format: str
    key_schema: str | None
    value_schema: str | None
    starting: str
    max_events: int | None
    fail_on_data_loss: bool
    tasks: int
    fetch_size: int
    predicate: str | None

    @classmethod
    def parse(cls, given: Mapping[str, str], streaming: bool | None) -> MapOptions:
        """Read and check `given`; raises OptionsError with every problem. Contacts nobody.
        `streaming` is None where Spark has not said yet what the reader is for."""
        reader = OptionReader(given)
        for name, what in ((MAP.name, "the map's name"), (BACKEND.name, "'hazelcast'")):
            if name not in reader:
                reader.problem(f"Option '{name}' must be specified: {what}.")
        reader.get(BACKEND)
        found = cls(
            reader.get(MAP),
            HazelcastSettings.read(reader),
            reader.get(KEY_FORMAT),
            reader.get(VALUE_FORMAT),
            reader.get(KEY_SCHEMA),
            reader.get(VALUE_SCHEMA),
            reader.get(STARTING_SEQUENCE),
            reader.get(MAX_EVENTS),
            reader.get(FAIL_ON_DATA_LOSS),
            reader.get(TASKS),
            reader.get(FETCH_SIZE),
            reader.get(PREDICATE),
        )
        for name, kind, schema in (
            ("key", found.key_format, found.key_schema),
            ("value", found.value_format, found.value_schema),
        ):
            if (kind == JSON) != (schema is not None):
                reader.problem(
                    f"Option '{name}.format' 'json' and option '{name}.schema' go together: "
                    "columns as in SQL ('id BIGINT, name STRING') or what `schema.json()` gives."
                )
        if streaming and PREDICATE.name in reader:
            reader.problem(
                "Option 'predicate' is for batches: members cannot evaluate one over the journal. "
                "Use filter() on the stream."
            )
        if streaming is False:
            for name in _STREAM_ONLY:
                if name in reader:
                    log.warning("option '%s' is ignored in batch queries", name)
        known = (*OPTIONS, *hazelcast_client.OPTIONS)
        reader.check_names((one.name for one in known), besides=hazelcast_client.PREFIX)
        reader.finish()
        return found

    @property
    def place(self) -> str:
        """For sentences: which map."""
        return f"map '{self.map}' of {self.hazelcast.place}"
