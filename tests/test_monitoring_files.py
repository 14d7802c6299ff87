"""docs/metrics.md, the alerts and the dashboard name metrics that there are, and all of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from eo_kafka.connectors.monitoring.query_metrics import QueryMetrics
from eo_kafka.tools.jobs.metrics import families

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docker" / "monitoring"
PAGE = (ROOT / "docs" / "metrics.md").read_text()
ALERTS = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
NAME = re.compile(r"\beo_kafka_[a-z_]+")
OF_RUN = {"eo_kafka_run_restarts_total", "eo_kafka_run_stuck", "eo_kafka_run_phase"}
promtool = shutil.which("promtool")


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
