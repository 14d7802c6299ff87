"""Errors of the Kafka that runs on this machine.

Under `EoKafkaError`, beside the connector's own errors: these come from tests, the demo and the
command line, never from a query.
"""

from __future__ import annotations

from ..core.errors import EoKafkaError


class BrokerError(EoKafkaError):
    """The local Kafka cannot be fetched, started or reached; the message says what to do."""


class PortTaken(BrokerError):
    """A listener could not be bound: another process holds its port."""
