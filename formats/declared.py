"""Declares the format options of source and sink. No I/O."""

from __future__ import annotations

from ..core.options import Option, boolean, one_of, text
from ..state.ledger.job_topics import topic_name

RAW, STRING, JSON, AVRO = "raw", "string", "json", "avro"
FAILFAST, PERMISSIVE, DEADLETTER = "FAILFAST", "PERMISSIVE", "DEADLETTER"
REGISTRY_PREFIX = "schema.registry."


def _format(value: str) -> str:
    if value.strip().lower() == "protobuf":
        raise ValueError(
            "is 'protobuf', which is not read here: keep 'raw', and use Spark's own from_protobuf"
        )
    return one_of(RAW, STRING, JSON, AVRO)(value)


def _mode(value: str) -> str:
    return one_of(FAILFAST.lower(), PERMISSIVE.lower(), DEADLETTER.lower())(value).upper()


KEY_FORMAT = Option(
    "key.format",
    _format,
    RAW,
    "What keys are: `raw` (bytes), `string` (UTF-8), `json` or `avro`. A source decodes them into"
    " a column of the schema's type; a sink encodes a column of any type.",
)
VALUE_FORMAT = Option("value.format", _format, RAW, "What values are: the same choices.")
KEY_SCHEMA: Option[str | None] = Option(
    "key.schema",
    text,
    None,
    "The keys' schema. For `json`: columns as in SQL (`id BIGINT, name STRING`) or what "
    "`schema.json()` gives; required for reading. For `avro`: an Avro schema in JSON; default: "
    "the newest one of the subject.",
)
VALUE_SCHEMA: Option[str | None] = Option("value.schema", text, None, "The values' schema.")
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
    "A Confluent-compatible schema registry for `avro`: data is in Confluent's wire format. Other"
    " `schema.registry.*` options go to confluent-kafka's SchemaRegistryClient "
    "(`schema.registry.basic.auth.user.info`, `schema.registry.ssl.ca.location`, ...). Without a "
    "registry, data is plain Avro of the given schema.",
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
    "Whether a schema that its subject does not have is registered. If no schema is given, it is "
    "derived from the column's type.",
)

OF_BOTH = (
    KEY_FORMAT,
    VALUE_FORMAT,
    KEY_SCHEMA,
    VALUE_SCHEMA,
    KEY_SUBJECT,
    VALUE_SUBJECT,
    REGISTRY_URL,
)
OF_READER = (*OF_BOTH, MODE, DEAD_LETTER_TOPIC)
OF_WRITER = (*OF_BOTH, REGISTER)
