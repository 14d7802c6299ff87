"""The options of formats: what keys and values are, in the reader and in the writer. No I/O."""

from __future__ import annotations

from eo_kafka.options import Option, boolean, one_of, text
from eo_kafka.state.ledger.job_topics import topic_name

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
    "What keys are: `raw` (bytes), `string` (UTF-8), `json` or `avro`. Reading, the column has the "
    "type of the schema; writing, a column of any type is encoded.",
)
VALUE_FORMAT = Option("value.format", _format, RAW, "What values are, in the same words.")
KEY_SCHEMA: Option[str | None] = Option(
    "key.schema",
    text,
    None,
    "The keys' schema. `json`: columns as in SQL (`id BIGINT, name STRING`), or what "
    "`schema.json()` gives; needed for reading. `avro`: Avro's JSON; by default the newest of the "
    "subject.",
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
    "A Confluent-compatible schema registry for `avro`: data is in Confluent's wire format. Other "
    "`schema.registry.*` options go to confluent-kafka's SchemaRegistryClient "
    "(`schema.registry.basic.auth.user.info`, `schema.registry.ssl.ca.location`, ...). Without it, "
    "data is bare Avro of the given schema.",
)
MODE = Option(
    "mode",
    _mode,
    FAILFAST,
    "What becomes of a record that is not of its format: `FAILFAST` stops the query; `PERMISSIVE` "
    "gives null and adds column `_bad_record` with its bytes and the reason; `DEADLETTER` has "
    "`eo-kafka`'s sink send it to `deadLetterTopic` in the transaction of the batch, wherever the "
    "column `_bad_record` reaches it.",
)
DEAD_LETTER_TOPIC: Option[str | None] = Option(
    "deadLetterTopic", topic_name, None, "Where mode `DEADLETTER` sends records."
)
REGISTER = Option(
    "schema.register",
    boolean,
    False,
    "Whether a schema that its subject does not have is registered, and made from the column's "
    "type where none is given.",
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
