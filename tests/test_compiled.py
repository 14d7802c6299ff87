"""Compiled loops that are kept are those of the code that is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eo_kafka import librdkafka

pytestmark = pytest.mark.skipif(
    librdkafka.available() is not None, reason=str(librdkafka.available())
)
LOOP = """
from eo_kafka.compiled import compiled
from parts import answer

@compiled
def asked(number):
    return answer(number)

print(asked(1), sum(asked.stats.cache_hits.values()))
"""
PART = """
from eo_kafka.compiled import part

@part
def answer(number):
    return number + {added}
"""


def test_a_loop_whose_part_was_changed_is_compiled_anew(tmp_path: Path) -> None:
    loop, parts = tmp_path / "loop.py", tmp_path / "parts.py"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)

    def asked() -> list[str]:
        program = [sys.executable, "-c", "import loop"]
        run = subprocess.run(
            program, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        return run.stdout.split()

    loop.write_text(LOOP)
    parts.write_text(PART.format(added=1))
    assert asked() == ["2", "0"]
    assert asked() == ["2", "1"]
    parts.write_text(PART.format(added=10))
    assert asked() == ["11", "0"]
