"""What `eo-kafka run --metrics` answers: the driver's file and its own, as the scraper asks."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, write_to_textfile
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from eo_kafka.broker.settings import free_port
from eo_kafka.tools.run.health import LOOPBACK, served
from eo_kafka.tools.run.metrics import exposed

ASKED = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


@pytest.fixture
def scrape(tmp_path):
    """Asks for a driver's counter, gauge and histogram, while the supervisor is in `phase`."""
    file = tmp_path / "driver.prom"
    registry = CollectorRegistry()
    Counter("rows", "in", ["query"], registry=registry).labels('a "quoted" one').inc(3)
    Gauge("lag", "now", registry=registry).set(7)
    Histogram("seconds", "long", registry=registry).observe(0.2)
    write_to_textfile(str(file), registry)

    def asked(phase: str, accepted: str, stuck: bool | None = True) -> tuple[str, str]:
        view = {"restarts": 2, "stuck": stuck, "phase": phase}
        port = free_port()
        with served("--metrics", (LOOPBACK, port), {"metrics": exposed(lambda: view, file)}):
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/metrics", headers={"Accept": accepted}
            )
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.headers["Content-Type"], answer.read().decode()

    return asked


def values(families) -> dict[tuple[str, str], float]:
    return {
        (sample.name, str(sample.labels)): sample.value
        for family in families
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_a_scraper_gets_the_format_that_it_asks_for(scrape):
    kind, text = scrape("running", ASKED)
    assert kind.startswith("application/openmetrics-text")
    told = values(openmetrics(text))
    other_kind, other = scrape("running", "*/*")
    assert other_kind.startswith("text/plain; version=0.0.4")
    assert values(plain(other)) == told
    assert told["rows_total", str({"query": 'a "quoted" one'})] == 3
    assert (told["lag", "{}"], told["seconds_sum", "{}"]) == (7, 0.2)
    assert told["eo_kafka_run_restarts_total", "{}"] == 2
    assert told["eo_kafka_run_stuck", "{}"] == 1
    unknown = values(openmetrics(scrape("running", ASKED, None)[1]))
    assert ("eo_kafka_run_stuck", "{}") not in unknown


def test_a_dead_driver_is_not_told_of(scrape):
    told = values(openmetrics(scrape("waiting", ASKED)[1]))
    assert told["eo_kafka_run_phase", str({"phase": "waiting"})] == 1
    assert ("lag", "{}") not in told
