"""docs/security.md says which of Spark's settings hide our options' secrets: all of them."""

from __future__ import annotations

import ctypes
import inspect
import re
import sys
from pathlib import Path

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.common import _oauthbearer

from eo_kafka.core import java_settings, librdkafka

ROOT = Path(__file__).parents[2]
MAY_HOLD_ONE = re.compile(
    r"pass|secret|token|key|pem$|credential|config$|proxy|url$|user|jaas|login", re.IGNORECASE
)
HOLDS_NONE = {  # although it has such a name: files, users, certificates, formats
    *("key.format", "key.message", "key.schema", "key.schema.file", "key.subject", "keys"),
    *("hazelcast.ssl.key.location", "hazelcast.username", "user"),
    *("kafka.https.ca.pem", "kafka.ssl.ca.pem", "kafka.ssl.certificate.pem"),
    *("kafka.ssl.key.location", "kafka.ssl.keystore.location", "kafka.ssl_key"),
    *("kafka.sasl.username", "kafka.sasl.kerberos.keytab"),
    "kafka.sasl.kerberos.min.time.before.relogin",
    "kafka.sasl.oauthbearer.assertion.private.key.file",
    "kafka.ssl.keystore.certificate.chain",
    *("kafka.ssl.keystore.type", "kafka.ssl.truststore.location", "kafka.ssl.truststore.type"),
    "schema.registry.ssl.key.location",
}


def of_librdkafka(folder: Path) -> set[str]:
    """Every setting it knows, as it prints them."""
    rk, c = librdkafka.library(), ctypes.CDLL(None)
    c.fopen.restype = ctypes.c_void_p
    for function in (rk.rd_kafka_conf_properties_show, c.fclose):
        function.argtypes = [ctypes.c_void_p]
    page = folder / "settings"
    file = c.fopen(str(page).encode(), b"w")
    rk.rd_kafka_conf_properties_show(file)
    c.fclose(file)
    return set(re.findall(r"^([\w.]+) +\|", page.read_text(), re.MULTILINE))


def of_java() -> set[str]:
    stores = {f"{store}.{part}" for store in java_settings._STORES for part in ("password", "type")}
    return {*java_settings._RENAMED, *stores, "sasl.jaas.config"}


def of_registry() -> set[str]:
    read = map(inspect.getsource, (sys.modules[SchemaRegistryClient.__module__], _oauthbearer))
    found = re.findall(r"['`]((?:[a-z]+[.])*[a-z]+)['`]", "".join(read))
    return {one for one in found if one == "proxy" or one.startswith(("basic.", "bearer.", "ssl."))}


def of_formats() -> set[str]:
    listing = (ROOT / "tests" / "golden" / "public_api.txt").read_text()
    return set(re.findall(r"^    ([a-z][\w.]*)(?: = .*)?$", listing, re.MULTILINE))


def test_every_option_that_may_hold_a_secret_is_hidden_as_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    (line,) = (one for one in page.splitlines() if "spark.redaction.regex" in one)
    by_default, of_options, added = (
        one.replace(r"\|", "|") for one in re.findall(r"`([^`]*(?:\(\?i\)|\\\|)[^`]*)`", line)
    )
    assert added.startswith("|")
    hidden = re.compile(f"{by_default}{added}"), re.compile(of_options)
    of_kafka = of_librdkafka(tmp_path) | of_java()
    names = {
        *(f"kafka.{name}" for name in of_kafka),
        *(f"schema.registry.{name}" for name in of_registry()),
        *of_formats(),
    }
    known = {"kafka.ssl.keystore.key", "schema.registry.bearer.auth.token", "url", "kafka.acks"}
    assert known | {"schema.registry.proxy"} <= names, "the lists are read"
    suspect = {name for name in names if MAY_HOLD_ONE.search(name)} - HOLDS_NONE
    assert not {name for name in suspect if not any(one.search(name) for one in hidden)}
