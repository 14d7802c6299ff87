"""Writes docs/options.md from the options' declarations: `python docs/generate_options.py`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from eo_kafka.clients.amqp import client as amqp_client
from eo_kafka.clients.hazelcast import client as hazelcast_client
from eo_kafka.clients.postgres import client as postgres_client
from eo_kafka.core.options import Option
from eo_kafka.formats import declared as formats
from eo_kafka.sinks import options as sink
from eo_kafka.sinks.files import options as files_sink
from eo_kafka.sinks.maps import options as map_sink
from eo_kafka.sinks.tables import options as table_sink
from eo_kafka.sinks.targets import options as target_sink
from eo_kafka.sources.maps import declared as map_declared
from eo_kafka.sources.queues import options as queue_options
from eo_kafka.sources.settings import declared as source

PAGE = Path(__file__).parent / "options.md"
HEAD = """# Options

Which options are there, and what do they mean?

Names are case-insensitive. If options are wrong, one error lists all of them. (This page is made
by `python docs/generate_options.py` from the declarations in `sources/settings/declared.py`,
`sinks/options.py`, `sinks/new_topics.py`, `state/ledger/job.py`, `formats/declared.py`,
`sources/maps/declared.py`, `sinks/maps/options.py`, `clients/hazelcast/client.py`,
`sinks/tables/options.py`, `sinks/files/options.py`, `sinks/targets/options.py`,
`clients/postgres/client.py`, `sources/queues/options.py` and `clients/amqp/client.py`; a test fails
when it is stale.)

Every `kafka.*` option goes to the client without its `kafka.`, with librdkafka's names and values.
Settings of Kafka's Java client are translated where librdkafka has the same (`fetch.max.wait.ms`,
`sasl.jaas.config` with PLAIN and SCRAM, PEM stores, ...). Others are refused, and the error says
what to write instead; a few that librdkafka does not need are ignored with a warning
(`core/java_settings.py`). `kafka.bootstrap.servers` is required. eo-kafka's own defaults are
`kafka.isolation.level=read_committed`, `kafka.partitioner=murmur2_random` (the Java client's choice
of partition), `kafka.linger.ms=20` and `kafka.transaction.timeout.ms=900000`.
"""


def page() -> str:
    """The whole text."""
    return (
        HEAD
        + _table("Source", _declared(source))
        + _table("Sink", sink.OPTIONS)
        + _table("Formats of keys and values: source and sink", formats.OF_BOTH)
        + _table("Formats: source only", _besides(formats.OF_READER))
        + _table("Formats: sink only", _besides(formats.OF_WRITER))
        + _table(
            "Maps: `eo-map`, [docs/maps.md](maps.md)",
            [*_declared(map_declared), *_declared(hazelcast_client)],
        )
        + _table(
            "Maps: sink only; with `kafka` the Kafka sink's too",
            [one for one in _declared(map_sink) if one not in _declared(map_declared)],
        )
        + _table(
            "Tables: `eo-postgres`, [docs/postgres.md](postgres.md); the Kafka sink's too",
            [*_declared(postgres_client), *_declared(table_sink)],
        )
        + _table(
            "Queues: `eo-queue`, [docs/queues.md](queues.md); the source's too, and of the sink's "
            "`transactionalIdPrefix` and `allowWeakReplication`",
            [*amqp_client.OPTIONS, *queue_options.OPTIONS],
        )
        + _table(
            "Files: `eo-files`, [docs/files.md](files.md); the Kafka sink's too",
            files_sink.OPTIONS,
        )
        + _table(
            "Targets of your own: `eo-target`, [docs/targets.md](targets.md); the Kafka sink's too",
            _declared(target_sink),
        )
    )


def _declared(module: ModuleType) -> list[Option[Any]]:
    return [value for value in vars(module).values() if isinstance(value, Option)]


def _besides(options: Iterable[Option[Any]]) -> list[Option[Any]]:
    return [option for option in options if option not in formats.OF_BOTH]


def _table(title: str, options: Iterable[Option[Any]]) -> str:
    rows = "".join(
        f"| `{option.name}` | {_default(option.default)} | {option.doc} |\n" for option in options
    )
    return f"\n## {title}\n\n| option | default | meaning |\n|---|---|---|\n{rows}"


def _default(value: object) -> str:
    if value in (None, "", (), frozenset()):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    PAGE.write_text(page())
