"""The project in examples/testing, which docs/testing.md shows: run as it is, and from the wheel in
an environment and a layout that know nothing of this tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import hazelcast
import pytest
from confluent_kafka.admin import AdminClient

from environments import ROOT, build_wheel, new_environment, variables

EXAMPLE = ROOT / "examples" / "testing"
RUN = ("-m", "pytest", "-p", "no:cacheprovider", "-ra")
SETTINGS = """
[tool.pytest.ini_options]
pythonpath = ["src"]
markers = ["slow: some minutes"]
"""
# Of two workers, with one broker.
SHARED = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_shared(eo_broker, number, worker_id):
    eo_broker.topic("in").write(["1"])
    assert [one.value for one in eo_broker.topic("in").read()] == [b"1"]
    with open("seen", "a") as seen:
        seen.write(f"{worker_id} {eo_broker.bootstrap_servers}\\n")
"""


def run(*command: object, folder: Path, **more) -> str:
    ran = subprocess.run([*command], cwd=folder, capture_output=True, text=True, **more)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    return ran.stdout


def test_the_page_shows_parts_of_the_example():
    page = (ROOT / "docs" / "testing.md").read_text()
    blocks = [part.split("```")[0] for part in page.split("```python\n")[1:]]
    files = [path.read_text() for path in EXAMPLE.rglob("*.py")]
    assert len(blocks) == 3
    for block in blocks:
        assert any(block in text for text in files), block


@pytest.mark.parametrize(
    "which",
    [
        pytest.param("not slow", marks=pytest.mark.full),
        pytest.param("slow", marks=[pytest.mark.full, pytest.mark.timeout(1800)]),
    ],
)
def test_the_example_works_as_it_is(broker, tmp_path, which):
    where = f"--eo-kafka={broker.bootstrap_servers}"
    said = run(
        sys.executable, *RUN, "-m", which, where, f"--basetemp={tmp_path / 'own'}", folder=EXAMPLE
    )
    assert f"{1 if which == 'not slow' else 3} passed" in said
    assert f"eo-kafka: Kafka is {broker.bootstrap_servers}" in said
    left = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=30)
    assert not [name for name in left.topics if name.startswith(("orders-", "billed-"))]


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_it_works_from_the_wheel_in_a_foreign_project(broker, tmp_path):
    project = tmp_path / "foreign"
    shutil.copytree(EXAMPLE / "my_app", project / "src" / "my_app")
    (project / "tests").mkdir()
    shutil.copy(EXAMPLE / "test_orders.py", project / "tests")
    (project / "pyproject.toml").write_text(SETTINGS)
    wheel = build_wheel(tmp_path / "dist")
    python = new_environment(tmp_path / "venv", Path(sys.executable), f"{wheel}[testing]")
    where = f"--eo-kafka={broker.bootstrap_servers}"
    said = run(
        *(python, *RUN, "-m", "not slow", where),
        folder=project,
        env=variables(python, tmp_path),
    )
    assert "1 passed" in said


@pytest.mark.full
def test_workers_share_one_broker_and_no_topic(tmp_path):
    (tmp_path / "test_shared.py").write_text(SHARED)
    run(sys.executable, *RUN, "-n", "2", folder=tmp_path)
    lines = [line.split() for line in (tmp_path / "seen").read_text().splitlines()]
    assert {worker for worker, _ in lines} == {"gw0", "gw1"}
    assert len({server for _, server in lines}) == 1


@pytest.mark.full
def test_there_is_a_registry_and_a_hazelcast_for_all(eo_registry, eo_hazelcast):
    with urllib.request.urlopen(f"{eo_registry.url}/subjects", timeout=30) as answer:
        assert answer.status == 200
    assert len(eo_hazelcast.addresses) == 2
    client = hazelcast.HazelcastClient(cluster_members=eo_hazelcast.addresses)
    assert client.get_map("of-this-test").blocking().size() == 0
    client.shutdown()
