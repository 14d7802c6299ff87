"""Reads and checks the format options of source and sink. Contacts nobody."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from ..core.errors import OptionsError, cut
from ..core.options import Option, OptionReader
from ..state.ledger.job_topics import check_output
from . import declared
from .declared import AVRO, DEADLETTER, FAILFAST, JSON, PERMISSIVE, PROTOBUF, REGISTRY_PREFIX
from .protobuf import options as protobuf
from .shared.registry import Registry


@dataclass(frozen=True)
class Column:
    """One of `key` and `value`: its format, and where its schema is."""

    name: str
    format: str
    schema: str | None
    subject: str | None
    message: str | None = None  # Protobuf's, whose `schema` is in base64


@dataclass(frozen=True)
class FormatOptions:
    """The formats of both. Pickled to the tasks; its repr shows no secrets."""

    columns: tuple[Column, ...]  # those that are not raw
    registry: Registry | None
    mode: str = FAILFAST
    dead_letter_topic: str | None = None
    register: bool = False

    @classmethod
    def of_reader(cls, given: Mapping[str, str]) -> FormatOptions:
        """Raises OptionsError with every problem."""
        reader = OptionReader(given)
        topics = [name.strip() for name in given.get("subscribe", "").split(",") if name.strip()]
        columns = _columns(reader, topics[0] if len(topics) == 1 else None)
        for column in columns:
            if column.format == JSON and column.schema is None:
                reader.problem(
                    f"Option '{column.name}.format' is 'json', which needs '{column.name}.schema': "
                    "columns as in SQL ('id BIGINT, name STRING') or what `schema.json()` gives."
                )
        mode, letters = reader.get(declared.MODE), reader.get(declared.DEAD_LETTER_TOPIC)
        if (mode == DEADLETTER) != (letters is not None):
            reader.problem(
                f"Option 'mode' {DEADLETTER} and option 'deadLetterTopic' go together: one says "
                "that bad records are sent somewhere, the other where."
            )
        check_output(reader, "'deadLetterTopic'", letters)
        if declared.MODE.name in reader and not columns:
            reader.problem(
                "Option 'mode' says what becomes of records that are not of their format; without "
                "'key.format' or 'value.format' there are none."
            )
        known = _finished(reader, columns, declared.OF_READER)
        return cls(columns, known, mode, letters)

    @classmethod
    def of_writer(cls, given: Mapping[str, str]) -> FormatOptions:
        """Raises OptionsError with every problem."""
        reader = OptionReader(given)
        columns = _columns(reader, given.get("topic"))
        register = reader.get(declared.REGISTER)
        known = _finished(reader, columns, declared.OF_WRITER)
        return cls(columns, known, register=register)

    @property
    def shows_bad_records(self) -> bool:
        """Whether there is a column for them."""
        return self.mode in (PERMISSIVE, DEADLETTER)


def _columns(reader: OptionReader, topic: str | None) -> tuple[Column, ...]:
    found = []
    for name, kind, schema, subject, file, message in (
        (
            "key",
            declared.KEY_FORMAT,
            declared.KEY_SCHEMA,
            declared.KEY_SUBJECT,
            declared.KEY_SCHEMA_FILE,
            declared.KEY_MESSAGE,
        ),
        (
            "value",
            declared.VALUE_FORMAT,
            declared.VALUE_SCHEMA,
            declared.VALUE_SUBJECT,
            declared.VALUE_SCHEMA_FILE,
            declared.VALUE_MESSAGE,
        ),
    ):
        by_default = f"{topic.strip()}-{name}" if topic else None
        said = reader.get(subject) or by_default
        one = Column(name, reader.get(kind), reader.get(schema), said)
        of_protobuf = [option.name for option in (file, message) if option.name in reader]
        path, of_name = reader.get(file), (reader.get(message) or "").strip(".") or None
        if one.format == PROTOBUF:
            found_set = protobuf.settled(reader, name, one.schema, path, of_name)
            one = replace(one, schema=found_set, message=of_name)
        elif of_protobuf:
            reader.problem(
                f"Option '{of_protobuf[0]}' is for '{name}.format' 'protobuf', which is "
                f"'{one.format}'."
            )
        if one.format != declared.RAW:
            found.append(one)
        elif schema.name in reader or subject.name in reader:
            reader.problem(
                f"Option '{name}.format' is 'raw', which has no schema: set it to 'json', 'avro' "
                f"or 'protobuf', or take '{name}.schema' and '{name}.subject' away."
            )
    return tuple(found)


def missing_for_avro() -> str | None:
    """What is not installed here, as a sentence; None if it is."""
    if find_spec("fastavro") is not None:
        return None
    return (
        "Avro needs fastavro, which is not installed: pip install 'eo-kafka[avro]', on this "
        "machine and where the tasks run."
    )


def _no_avro(schema: str) -> str | None:
    from .avro.codec import parsed
    from .avro.reader import as_json

    try:
        parsed(json.loads(as_json(schema)))
    except Exception as error:  # of json's and fastavro's many kinds
        return f"{type(error).__name__}: {cut(error)}"
    return None


def _finished(
    reader: OptionReader, columns: Iterable[Column], known: tuple[Option[Any], ...]
) -> Registry | None:
    """The registry, if one is needed; and the end of the check."""
    settings = reader.prefixed(REGISTRY_PREFIX)
    avro = [column for column in columns if column.format == AVRO]
    if settings and "url" not in settings:
        reader.problem("Option 'schema.registry.url' is missing: the registry's address.")
    registered = [column for column in columns if column.format in (AVRO, PROTOBUF)]
    if settings and not registered:
        reader.problem(
            "A schema registry is given, but neither keys nor values are 'avro' or 'protobuf'."
        )
    missing = missing_for_avro() if avro else None
    if missing:
        reader.problem(missing)
    for column in avro:
        name = column.name
        if column.schema is not None and not missing and (problem := _no_avro(column.schema)):
            reader.problem(f"Option '{name}.schema' is no Avro schema: {problem}.")
        if not settings and column.schema is None:
            reader.problem(
                f"Option '{name}.format' is 'avro', which needs 'schema.registry.url' or "
                f"'{name}.schema'."
            )
        if settings and column.subject is None and column.schema is None:
            reader.problem(
                f"Option '{name}.subject' must say which subject of the registry the {name}s "
                "are of: there is no one topic to take it from."
            )
    registry = None
    if registered and "url" in settings:
        try:
            registry = Registry(settings)
        except OptionsError as error:
            for problem in error.problems:
                reader.problem(problem)
    reader.check_names((option.name for option in known), besides=REGISTRY_PREFIX)
    reader.finish()
    return registry
