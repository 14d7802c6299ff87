"""Declares and parses the options of a writer of a map. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...clients.hazelcast import client as hazelcast_client
from ...clients.hazelcast.client import HazelcastSettings
from ...core.maps import BACKEND, JSON, MAP, NEEDED, TEXT
from ...core.options import KAFKA_PREFIX, Option, OptionReader, boolean, one_of, text, whole_number
from ...state.ledger.succession import ON_RESET
from .. import new_topics
from ..options import BATCH_ID, IDEMPOTENT, TWO_PHASE

REPLACE, KEEP, NEWEST, MERGE = "replace", "keep", "newest", "merge"

VALUE_FORMAT = Option(
    "value.format",
    one_of(TEXT, JSON),
    TEXT,
    "`text`: strings as text, binary as bytes. `json`: columns of other types become JSON, and "
    "strings must hold JSON; in Hazelcast the entries are its JSON values.",
)
REMOVE_COLUMN: Option[str | None] = Option(
    "removeColumn",
    text,
    None,
    "A boolean column: where it is true, the key is removed. Without this option a row whose "
    "value is null removes its key.",
)
ON_CONFLICT = Option(
    "onConflict",
    one_of(REPLACE, KEEP, NEWEST, MERGE),
    REPLACE,
    "What happens to an existing entry. `replace` overwrites it. Hazelcast only: `keep` leaves "
    "it, and `newest` keeps the value with the greater `versionField`. With `commit=two-phase`: "
    "`merge` calls `mergeFunction`.",
)
MERGE_FUNCTION: Option[str | None] = Option(
    "mergeFunction",
    text,
    None,
    "For `onConflict=merge`: `module:function`, a Python function that the driver can import. It "
    "gets the key, the entry's value (None if there is none) and the row's value, as strings or "
    "bytes. It returns the new value, or None to remove the key.",
)
VERSION_FIELD: Option[str | None] = Option(
    "versionField",
    text,
    None,
    "For `onConflict=newest`: the numeric field of the JSON values that says which one is newer.",
)
PUT_SIZE = Option(
    "putSize", whole_number(1, 1_000_000), 5000, "Hazelcast only: how many rows one put holds."
)
COMMIT = Option(
    "commit",
    one_of(IDEMPOTENT, TWO_PHASE),
    IDEMPOTENT,
    "For an IMap. `idempotent`: rows are put as they come. `two-phase`: a batch gets into the map"
    " after a decision in a ledger in Kafka; takes `kafka.*` and the Kafka sink's options. With "
    "`topic`, each row is also written to that topic by the same decision.",
)
FAIL_ON_DATA_LOSS = Option(
    "failOnDataLoss",
    boolean,
    True,
    "With `two-phase`: whether the query stops when entries are lost for good with the members "
    "that held them. With `false` it warns and goes on with what is left.",
)
OF_BOTH: tuple[Option[Any], ...] = (
    MAP,
    BACKEND,
    VALUE_FORMAT,
    REMOVE_COLUMN,
    ON_CONFLICT,
    VERSION_FIELD,
    MERGE_FUNCTION,
)
_TEXT_OR_BYTES = ("string", "binary")


@dataclass(frozen=True)
class RowShape:
    """How rows become entries, wherever the map is."""

    json: bool
    remove_column: str | None


@dataclass(frozen=True)
class MapSinkOptions:
    """The options of one writer of an IMap, checked. Pickled to the tasks; its repr shows no
    secrets."""

    map: str
    hazelcast: HazelcastSettings
    on_conflict: str
    version_field: str | None
    json: bool
    put_size: int

    @classmethod
    def parse(
        cls, given: Mapping[str, str], columns: Sequence[tuple[str, str]]
    ) -> tuple[MapSinkOptions, RowShape]:
        """Read and check `given`, for rows of `columns` (name, Spark's type string); raises
        OptionsError with every problem. Contacts nobody."""
        reader = OptionReader(given)
        shape = read_shape(reader, columns)
        conflict, version = reader.get(ON_CONFLICT), reader.get(VERSION_FIELD)
        if (conflict == NEWEST) != (version is not None):
            reader.problem(
                "Option 'onConflict' 'newest' and option 'versionField' go together: one says that "
                "the newer entry stays, the other by which field."
            )
        if conflict == MERGE or MERGE_FUNCTION.name in reader:
            reader.problem(
                "Option 'onConflict' 'merge' (option 'mergeFunction') needs 'commit' to be "
                f"'{TWO_PHASE}': an idempotent write repeats puts after a crash, and merging a "
                "row twice can give a wrong value."
            )
        if conflict == NEWEST and not shape.json:
            reader.problem("Option 'onConflict' 'newest' needs 'value.format' to be 'json'.")
        if conflict == NEWEST and shape.remove_column is not None:
            reader.problem(
                "Option 'onConflict' 'newest' cannot be with 'removeColumn': a key that is gone "
                "has no version, and an older row would bring it back. Put an entry that says so."
            )
        found = cls(
            reader.get(MAP),
            HazelcastSettings.read(reader),
            conflict,
            version,
            shape.json,
            reader.get(PUT_SIZE),
        )
        for name in sorted(reader.prefixed(KAFKA_PREFIX)):
            reader.problem(
                f"Option '{KAFKA_PREFIX}{name}' is for maps with 'backend' 'kafka', or with "
                f"'commit' '{TWO_PHASE}'."
            )
        reader.get(COMMIT)
        for name in (FAIL_ON_DATA_LOSS.name, ON_RESET.name):
            if name in reader:
                reader.problem(f"Option '{name}' is for 'commit' '{TWO_PHASE}'.")
        known = (*OF_BOTH, PUT_SIZE, COMMIT, *hazelcast_client.OPTIONS)
        reader.check_names((one.name for one in known), besides=hazelcast_client.PREFIX)
        reader.finish()
        return found, shape

    @property
    def place(self) -> str:
        """For sentences: which map."""
        return f"map '{self.map}' of {self.hazelcast.place}"


def read_shape(reader: OptionReader, columns: Sequence[tuple[str, str]]) -> RowShape:
    """What both backends share; problems with options and columns are noted in `reader`."""
    for name, what in NEEDED:
        if name not in reader:
            reader.problem(f"Option '{name}' must be specified: {what}.")
    reader.get(BACKEND)
    shape = RowShape(reader.get(VALUE_FORMAT) == JSON, reader.get(REMOVE_COLUMN))
    types = dict(columns)
    names = ", ".join(types) or "none"
    for name in ("key", "value"):
        if name not in types:
            reader.problem(f"A map's entries need a column '{name}' (the columns are {names}).")
    if "key" in types and types["key"] not in _TEXT_OR_BYTES:
        reader.problem(f"Column 'key' must be a string or binary, not {types['key']}: cast it.")
    if "value" in types and not shape.json and types["value"] not in _TEXT_OR_BYTES:
        reader.problem(
            f"Column 'value' must be a string or binary, not {types['value']}: cast it, or set "
            "'value.format' to 'json'."
        )
    column = shape.remove_column
    if column is not None and types.get(column) != "boolean":
        what = types.get(column, "not there")
        reader.problem(f"Option 'removeColumn': column '{column}' must be boolean; it is {what}.")
    return shape


def read_topic(
    given: Mapping[str, str], columns: Sequence[tuple[str, str]]
) -> tuple[dict[str, str], RowShape, list[str]]:
    """Of a map that is a topic: the Kafka sink's options, how rows become entries, and what is
    wrong."""
    reader = OptionReader(given)
    shape = read_shape(reader, columns)
    if reader.get(ON_CONFLICT) != REPLACE:
        reader.problem(
            f"Option 'onConflict' is '{reader.get(ON_CONFLICT)}', and a topic's newest record "
            f"always is the entry: '{REPLACE}'."
        )
    for name in (VERSION_FIELD.name, MERGE_FUNCTION.name, PUT_SIZE.name):
        if name in reader:
            reader.problem(f"Option '{name}' is for maps with 'backend' 'hazelcast'.")
    for name in sorted(reader.prefixed(hazelcast_client.PREFIX)):
        reader.problem(
            f"Option '{hazelcast_client.PREFIX}{name}' is for maps with 'backend' 'hazelcast'."
        )
    if BATCH_ID.name in reader:
        reader.problem(
            "Option 'batchId' is not supported: write the same rows with format 'eo-kafka'."
        )
    if "topic" in reader:
        reader.problem("Option 'topic' is not supported: option 'map' names the topic.")
    new_topics.check_of_map(reader)
    own = {option.key for option in (*OF_BOTH, PUT_SIZE)}
    kafka = {
        name: value
        for name, value in given.items()
        if name.lower() not in own and not name.lower().startswith(hazelcast_client.PREFIX)
    }
    kafka["topic"] = reader.get(MAP) or "-"  # a missing name has been told
    return kafka, shape, reader.problems
