"""docs/metrics.md, the alerts and the dashboard name metrics that there are, and all of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry
from ui_world import job

from eo_kafka.broker.settings import free_port
from eo_kafka.connectors.monitoring.query_metrics import QueryMetrics
from eo_kafka.testing.processes import killed_at_last, wait_until
from eo_kafka.tools.jobs.metrics import families, page
from eo_kafka.tools.run.health import LOOPBACK, served

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "monitoring"
PAGE = (ROOT / "docs" / "metrics.md").read_text()
ALERTS = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
NAME = re.compile(r"\beo_kafka_[a-z_]+")
OF_RUN = {"eo_kafka_run_restarts_total", "eo_kafka_run_stuck", "eo_kafka_run_phase"}
promtool = shutil.which("promtool")
prometheus = shutil.which("prometheus")


def names() -> set[str]:
    """As a server shows them, without what a histogram and a summary add."""
    registry = CollectorRegistry()
    found = [*QueryMetrics(registry).describe(), *families([], 0)]
    return OF_RUN | {f"{one.name}_total" if one.type == "counter" else one.name for one in found}


def used(text: str) -> set[str]:
    return {re.sub(r"_(sum|count|bucket)$", "", name) for name in NAME.findall(text)}


def expressions() -> list[str]:
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def test_the_page_has_each_metric():
    assert used(PAGE) == names()


def test_the_page_says_what_to_do_for_each_alert():
    told = re.findall(r"^\| `(EoKafka\w+)` \| \S", PAGE, re.MULTILINE)
    assert told == [rule["alert"] for rule in ALERTS]


def test_alerts_and_dashboard_ask_for_metrics_that_there_are():
    asked = "".join(rule["expr"] for rule in ALERTS) + "".join(expressions())
    assert used(asked) <= names()
    assert len(expressions()) == 18


@pytest.mark.skipif(promtool is None, reason="no promtool here (Debian's package prometheus)")
def test_promtool_agrees(tmp_path):
    rules = [
        {"record": f"panel:{number}", "expr": text.replace("$query", ".*")}
        for number, text in enumerate(expressions())
    ]
    panels = tmp_path / "panels.yml"
    panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    for words in (
        ["check", "rules", str(panels), "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
    ):
        run = subprocess.run(
            [str(promtool), *words], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr


@contextmanager
def scraping(folder: Path, target: int) -> Iterator[str]:
    """A Prometheus that asks there each second; its address."""
    place = f"{LOOPBACK}:{free_port()}"
    targets = [{"targets": [f"{LOOPBACK}:{target}"]}]
    scrape = {"job_name": "fleet", "scrape_interval": "1s", "static_configs": targets}
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump({"scrape_configs": [scrape]}))
    words = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    words += [f"--web.listen-address={place}", "--log.level=error"]
    process = subprocess.Popen([str(prometheus), *words])
    with killed_at_last(process.pid):
        yield f"http://{place}"
    process.wait()


def asked(server: str, expression: str) -> list[dict[str, str]]:
    """The labels of what it finds."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"{server}/api/v1/query?{query}", timeout=10) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    except OSError:  # it has just been started
        return []
    return [one["metric"] for one in found]


@pytest.mark.skipif(prometheus is None, reason="no prometheus here (Debian's package prometheus)")
def test_prometheus_tells_jobs_apart(tmp_path):
    """What it scrapes it gives a label `job` of its own."""
    now_ms = int(time.time() * 1000)
    left = replace(job("left"), open_count=1, oldest_ms=now_ms - 800_000, left_ms=100_000)
    busy = replace(left, job="busy", left_ms=3_000_000)
    rule = next(rule for rule in ALERTS if rule["alert"] == "EoKafkaLeftOpen")
    (label,) = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
    target = free_port()
    with (
        served("--listen", (LOOPBACK, target), {"metrics": page(lambda: [left, busy])}),
        scraping(tmp_path, target) as server,
    ):
        wait_until(lambda: len(asked(server, "eo_kafka_job_batch")) == 2, "both are scraped")
        assert [one[label] for one in asked(server, rule["expr"])] == ["left"]
