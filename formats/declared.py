"""Declares the format options of source and sink. No I/O."""

from __future__ import annotations

from ..core.options import Option, boolean, one_of, text
from ..state.ledger.job_topics import topic_name

RAW, STRING, JSON, AVRO, PROTOBUF = "raw", "string", "json", "avro", "protobuf"
FAILFAST, PERMISSIVE, DEADLETTER = "FAILFAST", "PERMISSIVE", "DEADLETTER"
REGISTRY_PREFIX = "schema.registry."


_format = one_of(RAW, STRING, JSON, AVRO, PROTOBUF)


def _mode(value: str) -> str:
    return one_of(FAILFAST.lower(), PERMISSIVE.lower(), DEADLETTER.lower())(value).upper()


KEY_FORMAT = Option(
    "key.format",
    _format,
    RAW,
    "What keys are: `raw` (bytes), `string` (UTF-8), `json`, `avro` or `protobuf`. A source "
    "decodes them into a column of the schema's type; a sink encodes a column of any type "
    "(`protobuf`: of the message's).",
)
VALUE_FORMAT = Option("value.format", _format, RAW, "What values are: the same choices.")
KEY_SCHEMA: Option[str | None] = Option(
    "key.schema",
    text,
    None,
    "The keys' schema. For `json`: columns as in SQL (`id BIGINT, name STRING`) or what "
    "`schema.json()` gives; required for reading. For `avro`: an Avro schema in JSON; default: "
    "the newest one of the subject. For `protobuf`: a descriptor set in base64.",
)
VALUE_SCHEMA: Option[str | None] = Option("value.schema", text, None, "The values' schema.")
KEY_SCHEMA_FILE: Option[str | None] = Option(
    "key.schema.file",
    text,
    None,
    "In place of `key.schema`, for `protobuf`: the descriptor set as a file on the driver's "
    "machine, which `protoc --include_imports --descriptor_set_out=FILE` makes. Tasks do not need "
    "it.",
)
VALUE_SCHEMA_FILE: Option[str | None] = Option(
    "value.schema.file", text, None, "The same for values."
)
KEY_MESSAGE: Option[str | None] = Option(
    "key.message",
    text,
    None,
    "The message that keys are, for `protobuf`, with its package: `shop.OrderKey`.",
)
VALUE_MESSAGE: Option[str | None] = Option(
    "value.message", text, None, "The message that values are, for `protobuf`."
)
KEY_SUBJECT: Option[str | None] = Option(
    "key.subject", text, None, "The keys' subject in the registry. Default: `<topic>-key`."
)
VALUE_SUBJECT: Option[str | None] = Option(
    "value.subject", text, None, "The values' subject in the registry. Default: `<topic>-value`."
)
REGISTRY_URL: Option[str | None] = Option(
    "schema.registry.url",
    text,
    None,
    "A Confluent-compatible schema registry for `avro` and `protobuf`: data is in Confluent's wire "
    "format. Other `schema.registry.*` options go to confluent-kafka's SchemaRegistryClient "
    "(`schema.registry.basic.auth.user.info`, `schema.registry.ssl.ca.location`, ...). Without a "
    "registry, data is plain Avro or Protobuf of the given schema.",
)
MODE = Option(
    "mode",
    _mode,
    FAILFAST,
    "What happens to a record that is not of its format. `FAILFAST` stops the query. `PERMISSIVE`"
    " gives null and adds column `_bad_record` with the bytes and the reason. `DEADLETTER` also "
    "makes the `eo-kafka` sink send the record to `deadLetterTopic`, in the batch's transaction; "
    "column `_bad_record` must reach the sink.",
)
DEAD_LETTER_TOPIC: Option[str | None] = Option(
    "deadLetterTopic",
    topic_name,
    None,
    "The topic to which mode `DEADLETTER` sends records. "
    "It must exist where the sink writes (or sink option `createTopics` makes it), and not be "
    "compacted: else the sink refuses to start.",
)
REGISTER = Option(
    "schema.register",
    boolean,
    False,
    "Whether a schema that its subject does not have is registered. For `avro`, if no schema is "
    "given, it is derived from the column's type.",
)

OF_BOTH = (
    KEY_FORMAT,
    VALUE_FORMAT,
    KEY_SCHEMA,
    VALUE_SCHEMA,
    KEY_SCHEMA_FILE,
    VALUE_SCHEMA_FILE,
    KEY_MESSAGE,
    VALUE_MESSAGE,
    KEY_SUBJECT,
    VALUE_SUBJECT,
    REGISTRY_URL,
)
OF_READER = (*OF_BOTH, MODE, DEAD_LETTER_TOPIC)
OF_WRITER = (*OF_BOTH, REGISTER)
