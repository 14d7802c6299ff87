"""Compiled loops that are kept are those of the code that is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eo_kafka.core import librdkafka

pytestmark = pytest.mark.skipif(
    librdkafka.available() is not None, reason=str(librdkafka.available())
)
LOOP = """
from eo_kafka.core.compiled import compiled
from {parts} import answer

@compiled
def asked(number):
    return answer(number)

print(asked(1), sum(asked.stats.cache_hits.values()))
"""
PART = """
from eo_kafka.core.compiled import part

@part
def answer(number):
    return number + {added}
"""


@pytest.mark.parametrize(
    ("loop", "part"), [("loop", "parts"), ("package.near.loop", "package.far.away.parts")]
)
def test_a_loop_whose_part_was_changed_is_compiled_anew(
    tmp_path: Path, loop: str, part: str
) -> None:
    files = [tmp_path.joinpath(*name.split(".")).with_suffix(".py") for name in (loop, part)]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)

    def asked() -> list[str]:
        program = [sys.executable, "-c", f"import {loop}"]
        run = subprocess.run(
            program, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        return run.stdout.split()

    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
    files[0].write_text(LOOP.format(parts=part))
    files[1].write_text(PART.format(added=1))
    assert asked() == ["2", "0"]
    assert asked() == ["2", "1"]
    files[1].write_text(PART.format(added=10))
    assert asked() == ["11", "0"]
