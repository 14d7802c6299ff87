"""One set of `kafka.*` settings, spoken in the dialects of the two clients underneath.

The data plane is librdkafka (confluent-kafka); its names are the ones users write after `kafka.`.
The control plane is kafka-python, which has keyword arguments of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# librdkafka's name -> kafka-python's. What is not here is of the data plane only.
_CONTROL_NAMES = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}
# What describes how to reach the cluster; an AdminClient takes these and no producer's settings.
_CONNECTION_PREFIXES = (
    "bootstrap.servers",
    "client.",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "broker.address.",
    "socket.",
    "reconnect.",
    "metadata.max.age",
)


def connection_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The part of `settings` that says how to reach the cluster."""
    return {
        name: value for name, value in settings.items() if name.startswith(_CONNECTION_PREFIXES)
    }


def control_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments for kafka-python's clients."""
    control: dict[str, Any] = {
        _CONTROL_NAMES[name]: value for name, value in settings.items() if name in _CONTROL_NAMES
    }
    control["security_protocol"] = control.get("security_protocol", "PLAINTEXT").upper()
    if settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        control["ssl_check_hostname"] = False
    return control
