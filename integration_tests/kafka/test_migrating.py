"""What docs/migrating.md tells people to type, typed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import eo_kafka
from harness import make_copy

PAGE = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
COMMANDS = re.findall(r"`eo-kafka ([^`]+)`", PAGE)
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def job(broker, make_topic, tmp_path_factory):
    values = [b"%d" % number for number in range(50)]
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path_factory.mktemp("job"), values)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_do_what_is_said(job, spark, command):
    job.run(spark)
    words = {
        "...": job.servers,
        "OUTPUT": job.sink_topic,
        "NAME": job.job_name,
        "IN": job.source_topic,
        "OUT": job.sink_topic,
    }
    typed = [words.get(word, word) for word in command.split()]
    program = "import sys; from eo_kafka.tools.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", program, *typed], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_there_are_commands_and_code():
    assert len(COMMANDS) >= 2
    assert len(CODE) >= 1


@pytest.mark.parametrize("code", CODE)
def test_the_code_runs(job, spark, code, monkeypatch):
    added = []
    monkeypatch.setattr(type(spark.streams), "addListener", lambda _, one: added.append(one))
    names = {"kafka_options": {"kafka.bootstrap.servers": job.servers}}
    exec(
        compile(code, "docs/migrating.md", "exec"), {**names, "spark": spark, "eo_kafka": eo_kafka}
    )
    assert [type(one) for one in added] == [eo_kafka.ConsumerGroup]
