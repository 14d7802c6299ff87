"""`eo-kafka registry`: a real schema registry that Avro columns are written and read through, on
loopback only, and with its numbers when it comes back."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from eo_kafka.broker.errors import BrokerError, PortTaken
from eo_kafka.broker.registry import SchemaRegistry
from eo_kafka.formats.shared.registry import Registry
from eo_kafka.testing.processes import await_gone, listening_addresses

SCHEMA = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}, '
    '{"name": "note", "type": ["null", "string"], "default": null}]}'
)


@contextmanager
def command(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the address that it prints."""
    words = [sys.executable, "-m", "eo_kafka.tools.cli", "registry", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            name, _, url = process.stdout.readline().strip().partition("=")
            assert name == "schema.registry.url"
            yield process, url
        finally:
            process.kill()


def test_avro_goes_through_it_and_a_kept_one_keeps_its_numbers(spark, broker, make_topic, tmp_path):
    topic = make_topic("orders")
    rows = [(1, "first"), (2, None)]
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers, "value.format": "avro"}
    with command("--dir", str(tmp_path)) as (process, url):
        family = psutil.Process(process.pid).children(recursive=True)
        (java,) = [one for one in family if one.name() == "java"]
        assert listening_addresses(java.pid) == {"127.0.0.1"}
        known = {**kafka, "schema.registry.url": url, "value.subject": f"{topic}-value"}
        orders = spark.createDataFrame(rows, "id LONG, note STRING")
        writer = orders.selectExpr("struct(*) AS value").write.format("eo-kafka").mode("append")
        made = {"value.schema": SCHEMA, "schema.register": "true", "topic": topic}
        writer.options(**known, **made).save()
        number = Registry({"url": url}).number(f"{topic}-value", SCHEMA, "")
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        await_gone(family)
    with SchemaRegistry(directory=tmp_path) as again:
        assert Registry({"url": again.url}).number(f"{topic}-value", SCHEMA, "") == number
        known["schema.registry.url"] = again.url
        reader = spark.read.format("eo-kafka").option("subscribe", topic).options(**known)
        assert sorted(reader.load().select("value.*").collect()) == rows
        with pytest.raises(BrokerError, match=f"Another schema registry works on {tmp_path}"):
            SchemaRegistry(directory=tmp_path).start()
        with pytest.raises(PortTaken, match="The schema registry cannot listen on 127.0.0.1"):
            SchemaRegistry(port=int(again.url.split(":")[2].split("/")[0])).start()
