"""What users write in their programs: names of `eo_kafka` with their signatures, and the options of
each format with their defaults, as the installed package has them.

`make public-api` writes golden/public_api.txt, which test_public_api.py compares.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyspark_eo_files
import pyspark_eo_map
import pyspark_eo_postgres
import pyspark_eo_queue
import pyspark_eo_state
from pyspark.sql import types

import eo_kafka
import eo_kafka.testing
import pyspark_eo_kafka
from eo_kafka.core.options import Option, OptionReader
from eo_kafka.formats.shared.registry import Registry

GOLDEN = Path(__file__).parents[1] / "golden" / "public_api.txt"
KAFKA = {"kafka.bootstrap.servers": "nowhere:1"}
KINDS = {  # Spark's own parser of such words needs a session
    "STRING": types.StringType(),
    "BINARY": types.BinaryType(),
    "INT": types.IntegerType(),
    "BIGINT": types.LongType(),
    "TIMESTAMP": types.TimestampType(),
}
AVRO = {"value.format": "avro", "value.schema": '"string"', "schema.registry.url": "http://nowhere"}
TOPIC = {**KAFKA, **AVRO, "topic": "t", "jobName": "j"}
IMAP = {
    "backend": "hazelcast",
    "map": "m",
    "hazelcast.members": "nowhere:1",
    "hazelcast.ssl.enabled": "true",
}
TOPIC_MAP = {**KAFKA, "backend": "kafka", "map": "m"}
# heading -> the format and what it is given; no call of these contacts anybody
READERS = {
    "eo-kafka": (pyspark_eo_kafka, {**KAFKA, **AVRO, "subscribe": "t"}),
    "eo-map, backend=hazelcast": (pyspark_eo_map, IMAP),
    "eo-map, backend=kafka": (pyspark_eo_map, TOPIC_MAP),
    "eo-queue": (
        pyspark_eo_queue,
        {**KAFKA, "url": "amqp://nowhere/%2F", "queue": "q", "inbox": "i"},
    ),
}
WRITERS = {
    "eo-files": (pyspark_eo_files, {**KAFKA, "path": "/nowhere", "jobName": "j"}),
    "eo-kafka": (pyspark_eo_kafka, TOPIC),
    "eo-map, backend=hazelcast": (pyspark_eo_map, IMAP),
    "eo-map, backend=hazelcast, commit=two-phase": (
        pyspark_eo_map,
        {**IMAP, **KAFKA, "commit": "two-phase", "jobName": "j"},
    ),
    "eo-map, backend=kafka": (pyspark_eo_map, {**TOPIC_MAP, "jobName": "j"}),
    "eo-postgres": (
        pyspark_eo_postgres,
        {**KAFKA, "url": "postgresql://nowhere/x", "table": "t", "jobName": "j"},
    ),
}


def listing() -> str:
    """All of it, as text."""
    return "\n".join([*_names(), *_formats()]) + "\n"


def _names() -> Iterator[str]:
    for module in (eo_kafka, eo_kafka.targets, eo_kafka.testing, eo_kafka.windows):
        for name in sorted(getattr(module, "_HOMES", None) or module.__all__):
            yield from _name(f"{module.__name__}.{name}", getattr(module, name))


def _name(name: str, found: Any) -> Iterator[str]:
    if not callable(found):
        yield f"{name} = {found!r}"
    elif inspect.isclass(found) and issubclass(found, Exception):
        yield name
    else:
        yield f"{name}{_signature(found)}"
        ours = [
            one for one in getattr(found, "__mro__", ()) if one.__module__.startswith("eo_kafka")
        ]
        methods = {one for base in ours for one in vars(base)}
        for method in sorted(one for one in methods if not one.startswith("_")):
            of = inspect.getattr_static(found, method)
            signature = _signature(of) if callable(of) else f": {type(of).__name__}"
            yield f"    .{method}{signature}"


def _signature(found: Callable[..., Any]) -> str:
    """The fields of a NamedTuple as Python 3.14 shows them."""
    return re.sub(r"ForwardRef\('([^']*)'\)", r"\1", str(inspect.signature(found)))


def _formats() -> Iterator[str]:
    for name, (module, given) in READERS.items():
        source = module.DefaultSource(given)
        yield from _options(f'read.format("{name}")', given, lambda of=source: _read(of))
    for name, (module, given) in WRITERS.items():
        source = module.DefaultSource(given)
        yield from _options(
            f'write.format("{name}")',
            given,
            lambda of=source: of.streamWriter(columns("key STRING, value STRING"), False),
        )
    given = {**KAFKA, "jobName": "j"}
    state = pyspark_eo_state.DefaultSource(given)
    yield from _options('read.format("eo-state")', given, state.schema)


def _read(source: Any) -> None:
    with patch.object(Registry, "look"):  # nobody is there
        schema = source.schema()
    schema = columns(schema) if isinstance(schema, str) else schema
    if source.name() != "eo-queue":  # a stream only
        source.reader(schema)
    source.streamReader(schema)


def columns(words: str) -> types.StructType:
    """`key STRING, value STRING` as Spark's type."""
    fields = [field.split() for field in words.split(", ")]
    return types.StructType([types.StructField(name, KINDS[kind]) for name, kind in fields])


def _options(heading: str, given: Mapping[str, str], call: Callable[[], object]) -> Iterator[str]:
    """The options that are read while `call` runs, and those that are only known by name (without
    a default). What a format passes to another one under names of its own is left out."""
    defaults: dict[str, Any] = {}
    known: set[str] = set()
    get, check_names = OptionReader.get, OptionReader.check_names

    def are_users(self: OptionReader) -> bool:
        return self._given.keys() <= {name.lower() for name in given}

    def noted(self: OptionReader, option: Option[Any]) -> Any:
        defaults[option.name] = option.default
        known.update({option.name} if are_users(self) else ())
        return get(self, option)

    def noted_names(self: OptionReader, names: Iterable[str], *besides: str, **named: str) -> None:
        names = list(names)
        known.update(names if are_users(self) else ())
        check_names(self, names, *besides, **named)

    with (
        patch.object(OptionReader, "get", noted),
        patch.object(OptionReader, "check_names", noted_names),
    ):
        call()
    yield ""
    yield heading
    for name in sorted(known, key=str.lower):
        yield f"    {name} = {defaults[name]!r}" if name in defaults else f"    {name}"


if __name__ == "__main__":
    GOLDEN.write_text(listing())
