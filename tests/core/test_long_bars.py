"""Bars of what takes long: drawn on a real terminal to their end; a log has lines, and few."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from terminals import COMMAND, drawn, on_a_terminal

WHAT = "Restoring batch 7 of shout"

TELLS = """
import sys, eo_kafka.core.progress as progress
progress.LINE_EVERY_S = float(sys.argv[1])
with progress.bar("Restoring batch 7 of shout", shown=sys.argv[2] == "shown") as told:
    for done in range(0, 3_000_001, 1_000_000):
        told(done, int(sys.argv[3]))
print("done")
"""


def told(*arguments: str) -> list[str]:
    return [sys.executable, "-c", TELLS, *arguments]


@pytest.mark.parametrize("columns", [100, 0])  # 0: it does not say
def test_on_a_terminal_it_is_drawn_to_its_end(columns: int) -> None:
    code, said = on_a_terminal(told("10", "shown", "3000000"), columns)
    assert code == 0
    assert re.search(r"batch 7 of shout: 100%.*3.00M/3.00M", drawn(WHAT, said)[-1]), said
    assert said.rstrip().endswith("done")


def test_a_driver_under_a_supervisor_draws_on_its_terminal(tmp_path: Path) -> None:
    """As where `eo-kafka run` restores a lost checkpoint: stderr is the supervisor's pipe there."""
    script = tmp_path / "job.py"
    script.write_text(TELLS)
    words = [*COMMAND, "run", "--restart", "none", str(script), "10", "shown", "3000000"]
    code, said = on_a_terminal(words, 70)
    assert code == 0, said
    bars = drawn(WHAT, said)
    assert "100%" in bars[-1], said
    # What the job prints comes by another pipe, and perhaps in the middle
    assert max(len(bar.removesuffix("done")) for bar in bars) <= 70
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, WHAT in done.stderr) == (0, False), done.stderr


def test_of_a_total_that_nobody_knows_it_says_how_much() -> None:
    code, said = on_a_terminal(told("10", "shown", "0"))
    assert (code, "%" in said) == (0, False)
    assert "3.00MB [" in drawn(WHAT, said)[-1]


@pytest.mark.parametrize(
    ("every_s", "shown", "expected"),
    [
        ("10", "shown", ""),  # it was shorter
        ("0", "hidden", ""),
        (
            "0",
            "shown",
            "".join(
                f"Restoring batch 7 of shout: {done}B of 3.00MB, 0 s\n"
                for done in ("0.00", "1.00M", "2.00M", "3.00M")
            ),
        ),
    ],
)
def test_a_log_gets_lines_and_only_now_and_then(every_s: str, shown: str, expected: str) -> None:
    done = subprocess.run(
        told(every_s, shown, "3000000"), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", expected)


def test_what_ends_with_an_error_does_not_look_whole() -> None:
    program = TELLS.replace('print("done")', "        done < 2_000_000 or sys.exit(3)")
    code, said = on_a_terminal([sys.executable, "-c", program, "10", "shown", "3000000"])
    assert (code, "100%" in said, " 67%" in said) == (3, False, True)
