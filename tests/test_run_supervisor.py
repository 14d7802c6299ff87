"""How `eo-kafka run` judges an end, and what it tells of a driver that says how it does."""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import replace

import pytest

from eo_kafka.core.errors import OptionsError
from eo_kafka.testing.processes import wait_until
from eo_kafka.tools.run.driver import Driver
from eo_kafka.tools.run.health import address, served
from eo_kafka.tools.run.policy import Policy, Restarts
from eo_kafka.tools.run.status import Status
from eo_kafka.tools.run.supervisor import ExitCode, Supervisor, judge

SLEEPS = "import time; time.sleep(600)"
TOLD = Status(pid=0, query="q", batch=3, busy_since_s=None, told_s=1000.0)


def test_an_end_is_in_order_only_if_the_driver_says_so():
    assert judge(0, None, "").in_order
    assert judge(0, replace(TOLD, ended=True), "").in_order
    early = judge(0, TOLD, "")
    assert not early.in_order and early.told == "exit code 0 before its query had ended"
    assert not judge(1, replace(TOLD, ended=True), "").in_order
    assert judge(137, TOLD, "").told == "it was killed by SIGKILL"
    assert judge(-9, TOLD, "").told == "its guard was killed by SIGKILL"


def test_what_a_driver_says_goes_before_what_it_wrote():
    wrote = "eo_kafka.errors.Fenced: newer.\n"
    said = replace(TOLD, ended=True, error="DataLossError", said="gone.")
    assert judge(1, said, wrote).error.name == "DataLossError"
    assert judge(1, replace(TOLD, ended=True), wrote).error is None, "it knows its own end"
    assert judge(1, None, wrote).error.name == "Fenced"


@pytest.mark.parametrize(
    ("status", "stuck_s"),
    [
        (Status(told_s=1.0), 0.0),  # it has not begun
        (TOLD, 20.0),  # idle, and silent since
        (replace(TOLD, busy_since_s=400.0), 620.0),
        (replace(TOLD, busy_since_s=400.0, ended=True), 0.0),
    ],
)
def test_a_query_is_stuck_that_is_busy_without_a_batch_or_silent(status, stuck_s):
    assert status.stuck_for_s(1020.0) == stuck_s


def test_a_status_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "status.json"
    assert Status.read(path) == Status()
    told = replace(TOLD, error="Fenced", said="newer: «x»")
    told.write(path)
    assert Status.read(path) == told
    assert time.monotonic() - told.told_s < 60


def test_what_is_told_of_a_running_driver(tmp_path):
    path = tmp_path / "status.json"

    def start() -> Driver:
        return Driver([sys.executable, "-c", SLEEPS], {}, path)

    supervisor = Supervisor(start, Restarts(Policy(restarts=False), lambda: 0.5), 1.0, 300.0)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(supervisor.run()))
    thread.start()
    try:
        wait_until(lambda: supervisor.view()["phase"] == "running", "it runs")
        assert (supervisor.view()["live"], supervisor.view()["ready"]) == (True, False), "no query"
        TOLD.write(path)
        assert supervisor.view() == {
            "phase": "running",
            "restarts": 0,
            "query": "q",
            "batch": 3,
            "stuck": False,
            "live": True,
            "ready": True,
        }
        replace(TOLD, busy_since_s=time.monotonic() - 301).write(path)
        assert supervisor.view()["stuck"]
        assert not supervisor.view()["live"] and not supervisor.view()["ready"]
    finally:
        supervisor.ask_to_end(15)
        thread.join(60)
    assert codes == [ExitCode.IN_ORDER]


def test_a_driver_that_cannot_be_started_has_died(caplog):
    def start() -> Driver:
        raise OSError(12, "Cannot allocate memory")

    restarts = Restarts(Policy(first_s=0.01, failures=3), lambda: 0.5)
    assert Supervisor(start, restarts, 1.0, 300.0).run() == ExitCode.GAVE_UP
    assert caplog.text.count("Driver could not be started: Cannot allocate memory.") == 3


def test_where_health_is_answered():
    here = address("--health", "8080", [])
    assert here == ("127.0.0.1", 8080), "nothing listens elsewhere unless asked to"
    assert address("--health", "10.0.0.1:80", []) == ("10.0.0.1", 80)
    for wrong in ("", "x", "0", "65536", "host:"):
        problems: list[str] = []
        address("--health", wrong, problems)
        assert problems, wrong
    with served("--health", ("127.0.0.1", 0), {}), served("--health", None, {}):
        pass
    elsewhere = ("203.0.113.1", 80)
    with (
        pytest.raises(OptionsError, match=r"--metrics 203\.0\.113\.1:80"),
        served("--metrics", elsewhere, {}),
    ):
        pass
