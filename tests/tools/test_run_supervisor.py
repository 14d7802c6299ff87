"""How `eo-kafka run` judges an end, and what it tells of a driver that says how it does."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest

from eo_kafka.core.errors import EnvironmentRefused, OptionsError
from eo_kafka.testing.processes import wait_until
from eo_kafka.tools.run import command
from eo_kafka.tools.run import driver as driver_module
from eo_kafka.tools.run import supervisor as supervisor_module
from eo_kafka.tools.run.driver import Driver
from eo_kafka.tools.run.health import address, served
from eo_kafka.tools.run.orders import Orders
from eo_kafka.tools.run.policy import Policy, Restarts
from eo_kafka.tools.run.status import START_S, Status
from eo_kafka.tools.run.supervisor import ExitCode, Supervisor
from eo_kafka.tools.run.verdict import OurError, judge

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
        (Status(), 0.0),  # its process has said nothing yet
        (Status(told_s=1.0), 0.0),  # its query has not begun
        (Status(told_s=1020.0 - START_S), 0.0),  # nor after hours
        (Status(told_s=400.0 - START_S), 620.0),
        (Status(told_s=400.0 - START_S, ended=True), 0.0),
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


def test_the_error_of_a_script_outlives_what_it_says_as_it_shuts_down(tmp_path):
    """Each line may come alone: their number says nothing of how much it is."""
    script = tmp_path / "job.py"
    script.write_text(
        "import sys, time\n"
        "def say(text): sys.stderr.write(f'{text}\\n'); sys.stderr.flush(); time.sleep(0.002)\n"
        "say('eo_kafka.errors.RepairNeeded: Batch 7 is partly lost.')\n"
        "for number in range(200): say(f'INFO Removing block manager {number}')\n"
        "sys.exit(1)\n"
    )
    driver = Driver([sys.executable, str(script)], {}, None)
    try:
        driver.wait(60)
        wait_until(lambda: "manager 199" in driver.stderr(), "all is read")
        assert judge(1, None, driver.stderr()).error == OurError(
            "RepairNeeded", "Batch 7 is partly lost."
        )
    finally:
        driver.kill()


def test_of_what_a_script_says_the_end_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(driver_module, "KEPT_BYTES", 1000)
    script = "import sys; sys.stderr.write('\\n'.join(str(one) for one in range(100_000)) + 'end')"
    driver = Driver([sys.executable, "-c", script], {}, None)
    try:
        driver.wait(60)
        wait_until(lambda: driver.stderr().endswith("99999end"), "all is read")
        assert len(driver.stderr()) <= 1000 + driver_module._CHUNK
    finally:
        driver.kill()


class _Elected(Orders):
    elected = True


@pytest.mark.parametrize(
    ("between", "ran_s"),
    [(None, 1.0), (OurError("WriteFailed", "x"), 600.0), (OurError("Fenced", "x"), 600.0)],
)
def test_a_run_of_its_own_begins_the_count_of_newer_drivers_anew(monkeypatch, between, ran_s):
    """'In a row' is not over the supervisor's whole life."""
    monkeypatch.setattr(supervisor_module, "REPLACED_S", 0.0)
    restarts = Restarts(Policy(), lambda: 0.5)
    supervisor = Supervisor(lambda: pytest.fail("none"), restarts, 1.0, 300.0, _Elected())
    fenced = OurError("Fenced", "newer")
    for _ in range(3):
        assert supervisor._after_error(fenced, 1.0) is None
    assert supervisor._after_error(between, ran_s) is None
    assert supervisor._after_error(fenced, 1.0) is None


def test_a_driver_that_gives_way_four_times_in_a_row_is_told(monkeypatch):
    monkeypatch.setattr(supervisor_module, "REPLACED_S", 0.0)
    restarts = Restarts(Policy(), lambda: 0.5)
    supervisor = Supervisor(lambda: pytest.fail("none"), restarts, 1.0, 300.0, _Elected())
    ends = [supervisor._after_error(OurError("Fenced", "newer"), 1.0) for _ in range(4)]
    assert ends == [None, None, None, ExitCode.SUPERSEDED]


def test_a_driver_is_started_also_if_its_folder_was_cleaned_away(tmp_path):
    """A supervisor stands by for weeks, and what is old in /tmp is removed after ten days."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    wanted = command.checked(parser.parse_args(["os:getcwd"]))
    folder = tmp_path / "gone"
    driver = command._started(wanted, folder)
    try:
        assert (folder / "driver.json").exists()
        assert folder.stat().st_mode & 0o077 == 0, "it may hold secrets"
    finally:
        driver.kill()


@pytest.mark.parametrize("joins", [True, False])
def test_who_is_asked_to_end_while_it_joins_ends_in_order(monkeypatch, joins):
    """A container's first process gets no signal that it has no handler for."""
    parser = argparse.ArgumentParser()
    parser.set_defaults(prog="eo-kafka run")
    command.add_arguments(parser)

    def orders_of(_: object) -> Orders:
        os.kill(os.getpid(), signal.SIGTERM)
        if not joins:
            raise EnvironmentRefused("No Kafka broker listens.")
        return Orders()

    monkeypatch.setattr(command, "orders_of", orders_of)
    monkeypatch.setattr(command, "_started", lambda *_: pytest.fail("a driver is started"))
    monkeypatch.setattr(command, "show_from", lambda _: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    signal.signal(signal.SIGTERM, lambda *_: None)  # and not the end of all tests
    try:
        assert command.run(parser.parse_args(["os:getcwd"])) == ExitCode.IN_ORDER
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
