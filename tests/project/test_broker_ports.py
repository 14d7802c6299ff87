"""Which ports a broker is given."""

from __future__ import annotations

from eo_kafka.broker.settings import free_port


def test_no_port_is_given_twice() -> None:
    """A broker's listener and its controller's were on the same one, once in thousands."""
    ports = [free_port() for _ in range(500)]
    assert len(set(ports)) == len(ports)
