"""`eo-kafka registry`: runs a schema registry in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

import argparse

from ..broker.foreground import AskedToEnd, end_when_asked, port, watch
from ..broker.registry import VERSION, SchemaRegistry

_EPILOG = f"""\
It is Apicurio Registry {VERSION}, fetched once from Maven Central (142 MB), and speaks the
API of Confluent's registry. It listens on 127.0.0.1 only, without TLS and passwords. What it prints
is an option of format("eo-kafka"), beside value.format=avro:
  schema.registry.url=http://127.0.0.1:PORT/apis/ccompat/v7
It is for development. A Kafka that is kept ('eo-kafka broker --dir') needs a registry that is kept:
the numbers of the schemas stand in the records."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    parser.add_argument(
        "--port", type=port, default=0, help="port on 127.0.0.1; 0, the default, picks a free one"
    )
    parser.add_argument(
        "--dir", help="folder to keep schemas and their numbers in; default: in memory"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run it; 0 when asked to end. Raises BrokerError if it cannot start or ends by itself."""
    end_when_asked()
    try:
        with SchemaRegistry(arguments.port, arguments.dir) as registry:
            print(f"schema.registry.url={registry.url}", flush=True)
            watch((registry,))
    except AskedToEnd:
        return 0
