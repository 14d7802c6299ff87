"""The clock that S1 and S6 share."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from eo_kafka.core.process.moment import Moment
from wrong_clock import set_ahead

ELSEWHERE = """
import pickle, sys
from eo_kafka.core.process.moment import Moment
sys.stdout.buffer.write(pickle.dumps(Moment.now()))
"""


def test_another_process_of_the_machine_has_the_same_clock() -> None:
    before = Moment.now()
    printed = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, check=True)
    between = pickle.loads(printed.stdout)
    age = between.age_s()
    assert age is not None
    assert age >= 0
    assert between.seconds >= before.seconds


def test_another_machines_clock_is_not_compared() -> None:
    assert Moment("elsewhere", Moment.now().seconds).age_s() is None


def test_setting_the_wall_clock_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = Moment.now()
    set_ahead(monkeypatch, 3600)
    age = moment.age_s()
    assert age is not None
    assert age < 60
