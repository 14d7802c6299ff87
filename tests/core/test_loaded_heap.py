"""What a worker has loaded is not looked at by the collection that Spark runs after each task."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PRELUDE = """
import gc, sys, weakref
from eo_kafka.connectors import kafka_sink, kafka_source
from eo_kafka.core import compiled  # numba

class Node:
    pass

def cycle():
    node = Node()
    node.myself = node
    return weakref.ref(node)

"""


def run(script: str, **worker: str) -> str:
    variables = {k: v for k, v in os.environ.items() if k != "SPARK_REUSE_WORKER"}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script],
        env={**variables, **worker, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def kept() -> dict[str, str]:
    return {"SPARK_REUSE_WORKER": "1"}


def test_what_is_loaded_is_put_aside(kept):
    loaded, left = run(
        "gc.collect(); print(gc.get_freeze_count(), len(gc.get_objects()))", **kept
    ).split()
    assert int(loaded) > 50_000
    assert int(left) < 5_000


def test_garbage_is_not_put_aside(kept):
    assert run("old = cycle(); gc.collect(); print(old())", **kept) == "None"


def test_later_objects_are_collected_as_ever_and_put_aside_only_with_new_modules(kept):
    script = """
gc.collect()
before, held, dead = gc.get_freeze_count(), [Node() for _ in range(20_000)], cycle()
gc.collect()
print(dead(), gc.get_freeze_count() - before < 1_000)
sys.modules["another"] = gc
gc.collect()
print(gc.get_freeze_count() - before >= 20_000)
"""
    assert run(script, **kept).split() == ["None", "True", "True"]


def test_what_was_put_aside_is_freed_when_nobody_uses_it(kept):
    script = "node = Node(); ref = weakref.ref(node); gc.collect(); del node; print(ref())"
    assert run(script, **kept) == "None"


def test_a_collection_in_the_middle_of_a_task_puts_nothing_aside(kept):
    """Or its cycles would stay for good, and a producer's connections with them."""
    script = """
import types
task = types.ModuleType("task")
exec(
    "import gc\\n"
    "def run(new):\\n"
    "    node = new()\\n"
    "    node.myself = node\\n"
    "    gc.collect()\\n"
    "    return node\\n",
    task.__dict__,
)
nodes = [weakref.ref(task.run(Node))]
task.__dict__["__name__"] = "__main__"  # as of a function of the driver's script, unpickled
nodes.append(weakref.ref(task.run(Node)))
gc.collect()
print([node() for node in nodes], gc.get_freeze_count() > 50_000)
"""
    assert run(script, **kept) == "[None, None] True"


def test_other_processes_are_left_alone():
    assert run("gc.collect(); print(gc.get_freeze_count())") == "0"
