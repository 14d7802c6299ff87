"""Declares the options of a reader of a map. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.errors import OptionsError
from ...core.maps import BACKEND, JSON, MAP, NEEDED, TEXT
from ...core.options import Option, OptionReader, boolean, one_of, text, whole_number

OLDEST, CURRENT = "oldest", "current"
BYTES, DATA = "bytes", "data"
COMPACT, PORTABLE = "compact", "portable"
TYPED = (JSON, COMPACT, PORTABLE)  # columns, of a schema that is given
OF_MEMBERS = (DATA, COMPACT, PORTABLE)  # as Hazelcast serializes values; a topic has none

KEY_FORMAT = Option(
    "key.format",
    one_of(TEXT, BYTES, DATA, *TYPED),
    TEXT,
    "What column `key` holds. `text`: text and JSON as they are, other types in their plain form."
    " `bytes`: the content of byte arrays, and text as UTF-8. `json`: JSON, or text that holds "
    "JSON, as columns of `key.schema`. With Hazelcast also `compact` and `portable`: columns of "
    "`key.schema`; and `data`: any value as it was serialized.",
)
VALUE_FORMAT = Option(
    "value.format", one_of(TEXT, BYTES, DATA, *TYPED), TEXT, "The same for `value` and `old_value`."
)
KEY_SCHEMA: Option[str | None] = Option(
    "key.schema",
    text,
    None,
    "For `key.format` `json`, `compact` or `portable`: columns as in SQL (`id BIGINT, name "
    "STRING`), or what `schema.json()` gives.",
)
VALUE_SCHEMA: Option[str | None] = Option("value.schema", text, None, "The same for values.")
STARTING_SEQUENCE = Option(
    "startingSequence",
    one_of(OLDEST, CURRENT),
    OLDEST,
    "Streams only: where a new query starts: at the `oldest` event in the journal, or with the "
    "next one (`current`).",
)
MAX_EVENTS: Option[int | None] = Option(
    "maxEventsPerTrigger",
    whole_number(1),
    None,
    "Streams only: about how many events a batch has at most, over all partitions.",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    boolean,
    True,
    "Streams only: whether the query stops when events it still needs are gone. With `false` it "
    "warns, says which, and goes on.",
)
TASKS = Option(
    "tasks",
    whole_number(1),
    4,
    "Hazelcast only: how many tasks read the map, or a batch of its changes.",
)
FETCH_SIZE = Option(
    "fetchSize",
    whole_number(1, 1_000_000),
    5000,
    "Hazelcast only: how many events or entries one request asks for. A task holds a few such "
    "answers in memory.",
)
PREDICATE: Option[str | None] = Option(
    "predicate",
    text,
    None,
    "Hazelcast, batch only: which entries to read, as a Hazelcast SQL predicate: `age > 30 AND "
    "name LIKE 'a%'`, `__key = 'k1'`. The members evaluate it. Attributes are those of JSON, "
    "Compact and Portable values; `this` is a plain value.",
)
PUSH_FILTERS = Option(
    "pushFilters",
    boolean,
    False,
    "Batch only: whether Spark's filters restrict what is read, where they can. Needs Spark 4.1 "
    "with `spark.sql.python.filterPushdown.enabled=true`.",
)

OF_BOTH: tuple[Option[Any], ...] = (
    *(MAP, BACKEND, KEY_FORMAT, VALUE_FORMAT, KEY_SCHEMA, VALUE_SCHEMA),
    *(STARTING_SEQUENCE, MAX_EVENTS, FAIL_ON_DATA_LOSS, PUSH_FILTERS),
)
OF_HAZELCAST: tuple[Option[Any], ...] = (TASKS, FETCH_SIZE, PREDICATE)
STREAM_ONLY = (STARTING_SEQUENCE.name, MAX_EVENTS.name)


@dataclass(frozen=True)
class MapShape:
    """What a reader of a map is told, wherever the map is."""

    map: str
    key_format: str
    value_format: str
    key_schema: str | None
    value_schema: str | None
    starting: str
    max_events: int | None
    fail_on_data_loss: bool
    push_filters: bool

    def check_same(self, read: str) -> None:
        """Raise OptionsError if the checkpoint is of a stream that `read` another map."""
        if read != self.map:
            raise OptionsError(
                [
                    f"Option 'map' is '{self.map}', and the checkpoint is of a stream of map "
                    f"'{read}'. Another map needs another checkpoint."
                ]
            )


def read_shape(reader: OptionReader, streaming: bool | None) -> MapShape:
    """Out of options; problems are noted in `reader`."""
    if streaming and PUSH_FILTERS.name in reader:
        reader.problem("Option 'pushFilters' is for batches: Spark pushes no filters into streams.")
    for name, what in NEEDED:
        if name not in reader:
            reader.problem(f"Option '{name}' must be specified: {what}.")
    reader.get(BACKEND)
    found = MapShape(
        reader.get(MAP),
        reader.get(KEY_FORMAT),
        reader.get(VALUE_FORMAT),
        reader.get(KEY_SCHEMA),
        reader.get(VALUE_SCHEMA),
        reader.get(STARTING_SEQUENCE),
        reader.get(MAX_EVENTS),
        reader.get(FAIL_ON_DATA_LOSS),
        reader.get(PUSH_FILTERS),
    )
    for name, kind, schema in (
        ("key", found.key_format, found.key_schema),
        ("value", found.value_format, found.value_schema),
    ):
        if (kind in TYPED) != (schema is not None):
            reader.problem(
                f"Option '{name}.format' 'json', 'compact' or 'portable' and option "
                f"'{name}.schema' go together: columns as in SQL ('id BIGINT, name STRING') or "
                "what `schema.json()` gives."
            )
    return found
