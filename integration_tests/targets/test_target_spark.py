"""`eo-target` by Spark, and the page of it."""

from __future__ import annotations

import json
import os
from collections import Counter

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import eo_kafka
from harness import Copy, kill_driver_at, produce
from newcomer import blocks
from target_places import DELTA, ROOT, delta_rows, redis_server  # noqa: F401 - a fixture

EXAMPLES = str(ROOT / "examples" / "targets")
KEYS = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class IntoDelta(Copy):
    """A copy of a topic into a Delta table."""

    def as_job(self) -> dict[str, object]:
        options = {**self.sink_options, "target": DELTA, "target.path": self.path}
        del options["topic"]
        return {**super().as_job(), "sink": "eo-target", "sink_options": options}


@pytest.fixture
def copy(broker, make_topic, tmp_path, monkeypatch) -> IntoDelta:
    monkeypatch.setenv("PYTHONPATH", f"{EXAMPLES}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    path = str(tmp_path / "table")
    DeltaTable.create(path, KEYS)
    found = IntoDelta(
        servers=broker.bootstrap_servers,
        source_topic=make_topic("in", partitions=2),
        sink_topic="none",
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{tmp_path.name}",
    )
    found.path = path
    return found


@pytest.mark.parametrize(
    "point", ["S7.in_target", pytest.param("target.while_staging", marks=pytest.mark.full)]
)
def test_a_driver_that_is_killed_leaves_each_row_once(copy, crash_points, tmp_path, point):
    values = [f"{number}".encode() for number in range(1000)]
    produce(copy.servers, copy.source_topic, values)
    kill_driver_at(copy, crash_points, point, tmp_path / "log")
    assert copy.run_in_own_driver(tmp_path / "log") == 0
    assert Counter(value for _, value in delta_rows(copy.path)) == Counter(values)


def test_options_are_checked_at_once_and_no_password_is_shown(spark, broker):
    rows = spark.createDataFrame([("a",)], "word STRING")
    writer = rows.write.format("eo-target").mode("append").option("jobName", "j")
    writer = writer.option("batchId", "1").option("kafka.bootstrap.servers", "localhost:1")
    with pytest.raises(Exception, match="'target' must be specified"):
        writer.save()
    url = "redis://:s3cr3t@localhost:1/0"
    given = {"target": "redis_target:RedisTarget", "target.url": url}
    with pytest.raises(Exception, match=r"target\.list.*must be specified|cannot be imported") as e:
        writer.options(**given).save()
    assert "s3cr3t" not in str(e.value)
    with pytest.raises(Exception, match="cannot be imported on host"):
        writer.option("target", "no_such:Thing").save()


@pytest.mark.timeout(300)
def test_the_page_of_targets_works(redis_server, broker, make_topic):  # noqa: F811
    """Its check of one's own target, against a real server."""
    python = [block.content for block in blocks("docs/targets.md") if block.language == "python"]
    code = python[-1].replace("redis://localhost:6379/0", redis_server.url)
    names: dict[str, object] = {}
    exec(compile(code, "docs/targets.md", "exec"), names)
    assert names["shown"]()
    assert "redis_target:RedisTarget" in python[0]
    assert json.loads(redis_server.client.lrange("tried", 0, 0)[0])
    assert eo_kafka.targets.Target
