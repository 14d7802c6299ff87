"""`eo-kafka ui` in a real browser, beside a real job that is killed meanwhile.

With EO_KAFKA_SCREENSHOTS=docs/ui the pictures of docs/ui.md are made anew.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import browser as chromium
from browser import DESKTOP, PHONE, Browser
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.settings import free_port
from hand_made_job import HandMadeJob
from harness import Copy, assert_exactly_once, committed, open_tasks, produce, wait_until
from supervisors import LONG_S, supervised, values

PICTURES = os.environ.get("EO_KAFKA_SCREENSHOTS")
FIRST = 1500 if PICTURES else 200
needs_chromium = pytest.mark.skipif(chromium.why_not() is not None, reason=chromium.why_not() or "")


@contextmanager
def page_of(servers: str, *words: str) -> Iterator[tuple[str, psutil.Process]]:
    """`eo-kafka ui` as a process: where it answers."""
    port = free_port()
    command = [sys.executable, "-m", "eo_kafka.tools.cli", "ui", "--bind", str(port), *words]
    with subprocess.Popen(
        [*command, "--bootstrap-servers", servers], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said == f"Answers on http://127.0.0.1:{port}/\n", said
            yield f"127.0.0.1:{port}", psutil.Process(process.pid)
        finally:
            process.terminate()
            assert process.wait(20) == 0


@pytest.fixture
def window() -> Iterator[Browser]:
    with chromium.browser() as opened:
        opened.look(DESKTOP)
        yield opened


@pytest.fixture
def shout(own: KafkaBroker, tmp_path: Path) -> Copy:
    """A job with names as people give them, on a broker of its own."""
    create(own.bootstrap_servers, "orders", "shouted")
    produce(own.bootstrap_servers, "orders", values(0, FIRST))
    return Copy(
        servers=own.bootstrap_servers,
        source_topic="orders",
        sink_topic="shouted",
        checkpoint=tmp_path / "checkpoint",
        job_name="shout",
        per_batch=50,
        timeout_ms=600_000,
        sink_extra={"snapshots": "true"},
    )


def create(servers: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, 2) for name in names]).values():
        made.result(30)


def others(servers: str, folder: Path) -> None:
    """Jobs beside it: one that is at work, and one that is quiet."""
    create(servers, "in", "totals", "invoices")
    quiet = HandMadeJob(servers, "totals", "totals", folder / "totals")
    quiet.run(*range(8))
    produce(servers, "in", values(0, 300))
    long = {"kafka.transaction.timeout.ms": "600000"}
    working = HandMadeJob(servers, "invoices", "invoices", folder / "invoices", extra=long)
    working.run(*range(3))
    working.begin(3)
    working.prepare(3)


def ledger_ends(servers: str, job: str) -> list[int]:
    """Where its partitions end, what is open included."""
    topic = f"__eo_kafka.{job}.ledger"
    with closing(Consumer({"bootstrap.servers": servers, "group.id": "none"})) as client:
        return [
            client.get_watermark_offsets(TopicPartition(topic, number), timeout=30)[1]
            for number in range(2)
        ]


def shoot(window: Browser, name: str, height: int | None = None) -> None:
    if PICTURES:
        window.shoot(Path(PICTURES) / f"{name}.png", height)


def check_looks(window: Browser, where: str) -> None:
    """It can be read at night and on a phone."""
    for size in (DESKTOP, PHONE):
        for dark in (False, True):
            window.look(size, dark=dark)
            assert window.faint() == [], (where, size, dark)
            assert window.overflow() <= 0, (where, size)
    window.look(DESKTOP)


def confirm(window: Browser, link: str, button: str) -> None:
    """By the keyboard: it asks once, and says what it will do."""
    window.press(link)
    window.await_text("What it will do", "eo-kafka ")
    window.press(button)
    window.await_text("Done.", timeout=LONG_S)
    window.press("Back")


@needs_chromium
def test_a_job_is_killed_suspended_and_resumed_before_ones_eyes(
    own, shout, window, tmp_path, crash_points
):
    others(own.bootstrap_servers, tmp_path)
    untouched = {name: ledger_ends(own.bootstrap_servers, name) for name in ("totals", "invoices")}
    named = ["--job", "shout", "--bootstrap-servers", shout.servers]
    (tmp_path / "run").mkdir()
    with (
        page_of(own.bootstrap_servers, "--allow-actions") as (place, _),
        supervised(shout, tmp_path / "run", *named, "--restart", "fixed:1h") as running,
    ):
        window.open(f"http://{place}/")
        window.await_text("totals", "invoices", "shout", "running on", timeout=LONG_S)
        window.open(f"http://{place}/jobs/shout")
        wait_until(
            lambda: committed(shout.servers, "shouted").total() == FIRST, running.said(), LONG_S
        )
        window.await_text("quiet", "running on", "None: this job holds up no reader.")
        window.await_text("replicated and kept as it must be", "cleanup.policy=compact")
        crash_points.arm("S5.prepared", "wait")
        produce(shout.servers, "orders", values(FIRST, 50))
        crash_points.wait_reached("S5.prepared")
        wait_until(lambda: open_tasks(shout) != [], "a task has written")
        window.await_text("open", "a driver writes, or died while it did", "not decided")
        running.kill("all")
        # one, if the batch was begun when only one of the partitions had its records
        written = len(open_tasks(shout))
        window.await_text("waiting on", "Driver ended after", "It is started again in")
        assert "not decided" in window.text
        check_looks(window, "job")
        shoot(window, "job", 1100)

        see_all(window, place)
        window.open(f"http://{place}/jobs/shout")

        confirm(window, "Suspend …", "Suspend")
        window.await_text("suspended on", "asked to suspend it")
        assert len(open_tasks(shout)) == written
        window.press("Abort …")
        window.await_text("Its driver may be alive and about to decide", "txn abort", "--yes")
        check_looks(window, "confirm")
        shoot(window, "confirm")
        window.press("Abort it")
        window.await_text("Done.", "aborted.")
        wait_until(lambda: len(open_tasks(shout)) == written - 1, "that one, and no other")
        window.press("Back")

        crash_points.clear()
        confirm(window, "Resume …", "Resume")
        wait_until(
            lambda: committed(shout.servers, "shouted").total() == FIRST + 50,
            running.said(),
            LONG_S,
        )
        window.await_text("None: this job holds up no reader.", "was begun")
        window.press("Export …")
        window.await_text("Name of the export")
        window.driver.switch_to.active_element.send_keys("before-friday")
        window.press("Export")
        window.await_text("is exported as 'before-friday'")
        window.press("Back")
        window.await_text("before-friday")
        for name, ends in untouched.items():
            assert ledger_ends(own.bootstrap_servers, name) == ends, "who looks, writes nothing"
        assert window.foreign(place) == []
        assert [said for said in window.complaints() if "favicon" not in said] == []
    window.await_text("The page's server does not answer")
    assert_exactly_once(shout, values(0, FIRST + 50))


def see_all(window: Browser, place: str) -> None:
    """The first page: found by a topic, in all its looks."""
    window.open(f"http://{place}/?q=shouted")
    window.await_text("writes it: shouted")
    assert "totals" not in window.text.replace("totals-", "")
    window.open(f"http://{place}/topics/shouted")
    window.await_text("shout writes it", "not decided")
    window.open(f"http://{place}/")
    window.await_text("3 jobs", "1 needs a look", "its supervisor is waiting")
    check_looks(window, "overview")
    shoot(window, "overview", 700)
    window.look(PHONE, dark=True)
    shoot(window, "overview-phone", 1100)
    window.look(DESKTOP)


@needs_chromium
@pytest.mark.full
def test_a_broker_that_says_nothing_holds_up_no_page(own, window, tmp_path):
    """What is known is shown, and how old it is; and soon what is so, once the broker is back."""
    others(own.bootstrap_servers, tmp_path)
    process = psutil.Process(own.pid)
    with page_of(own.bootstrap_servers) as (place, _):
        window.open(f"http://{place}/")
        window.await_text("invoices", "As of")
        process.send_signal(signal.SIGSTOP)
        try:
            window.await_text("Not up to date", "ago. Kafka has not answered since", "invoices")
            for path in ("", "jobs/invoices", "topics/invoices"):
                began = time.monotonic()
                window.open(f"http://{place}/{path}")
                assert time.monotonic() - began < 5, path
                assert "Not up to date" in window.text and "invoices" in window.text
            time.sleep(40)  # longer than any question's own timeout
            window.await_text("Not up to date", "No Kafka broker at", "answered within")
        finally:
            process.send_signal(signal.SIGCONT)
        wait_until(lambda: "Not up to date" not in window.text, "it answers again", LONG_S)
