"""The faults of `eo_kafka.testing` are not told as done where they were not: against drivers and
topics made by hand, which do the one thing that a real one does now and then."""

from __future__ import annotations

import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from eo_kafka.broker.settings import free_port
from eo_kafka.testing import FaultMissed, half_written, nemesis
from eo_kafka.testing import job as job_module
from eo_kafka.testing.brokers import Broker
from eo_kafka.testing.history import History
from eo_kafka.testing.kafka_places import Place
from eo_kafka.testing.processes import CrashPoints, wait_until
from eo_kafka.testing.proxy import Proxy
from eo_kafka.testing.runs import HALF_WRITTEN
from eo_kafka.testing.trial import Trial


class HandMade:
    """A driver that does what `life` says, on a checkpoint and a topic `rows`, `end`."""

    has_started = True
    reason = staticmethod(lambda: ("still running", ""))

    def __init__(self, life: Callable[[HandMade], object]) -> None:
        self.exit_code: int | None = None
        self.signals: list[int] = []
        self._life = threading.Thread(target=life, args=[self], daemon=True)
        self._life.start()

    def wait(self, seconds: float) -> int | None:
        self._life.join(seconds)
        return self.exit_code

    def signal_all(self, number: int) -> None:
        self.signals.append(number)

    def kill(self) -> None:
        self.exit_code = -9


@pytest.fixture
def job(tmp_path) -> job_module.Job:
    """Of no source, and with nothing started."""
    made = object.__new__(job_module.Job)
    made.name, made.folder, made.checkpoint = "job", tmp_path, tmp_path / "checkpoint"
    for folder in ("offsets", "commits"):
        (made.checkpoint / folder).mkdir(parents=True)
    made.crash_points = CrashPoints(tmp_path / "points")
    made.crash_points.folder.mkdir()
    history = History(tmp_path / "timeline.jsonl")
    made.trial = SimpleNamespace(history=history, report=lambda: "...", servers="", jobs=[])
    made.sink = SimpleNamespace(real_name="out", name="out")
    made.source = made.driver = None
    made.drained = False
    return made


@pytest.fixture
def topic(monkeypatch) -> SimpleNamespace:
    """Partition 0 ends at `end`, and its newest record is at `row`."""
    made = SimpleNamespace(end=100, row=-1)

    class Seen:
        def __init__(self, *_: object) -> None: ...

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None: ...

        def ends(self) -> dict[int, int]:
            time.sleep(0.01)
            return {0: made.end}

        def newest(self) -> dict[int, int]:
            return {} if made.row < 0 else {0: made.row}

    monkeypatch.setattr(half_written, "Watch", Seen)
    monkeypatch.setattr(half_written, "Arrivals", Seen)
    return made


def test_markers_of_what_is_aborted_are_no_rows_of_a_batch(job, topic):
    (job.checkpoint / "offsets" / "0").touch()

    def aborts(_driver: HandMade) -> None:
        time.sleep(0.2)
        topic.end += 2

    job._start = lambda drain: HandMade(aborts)
    with pytest.raises(FaultMissed, match="'half-written' was not reached"):
        job._crash(HALF_WRITTEN, "kill-driver", 1)


def test_a_batch_that_is_noted_between_the_look_and_the_kill_is_not_half_written(job, topic):
    def noted_too_soon(driver: HandMade) -> None:
        time.sleep(0.1)
        for batch in ("0", "1"):
            (job.checkpoint / "offsets" / batch).touch()
            time.sleep(0.1)
            topic.end, topic.row = topic.end + 10, topic.end + 9
            if batch == "0":
                wait_until(lambda: driver.signals, "it stands still")
                wait_until(lambda: len(driver.signals) > 1, "it goes on")

    class Quick(HandMade):
        def signal_all(self, number: int) -> None:
            (job.checkpoint / "commits" / "0").touch()  # on its way when it was stopped
            super().signal_all(number)

    job._start = lambda drain: Quick(noted_too_soon)
    job._crash(HALF_WRITTEN, "kill-driver", 20)
    assert (job.checkpoint / "commits" / "0").exists()
    assert not (job.checkpoint / "commits" / "1").exists()


def test_a_note_that_comes_with_the_kill_is_told(job, topic):
    class Late(HandMade):
        def kill(self) -> None:
            (job.checkpoint / "commits" / "0").touch()
            super().kill()

    def writes(_driver: HandMade) -> None:
        time.sleep(0.1)
        (job.checkpoint / "offsets" / "0").touch()
        time.sleep(0.1)
        topic.end, topic.row = 110, 109

    job._start = lambda drain: Late(writes)
    with pytest.raises(FaultMissed, match="Spark noted batch 0 while its driver was killed"):
        job._crash(HALF_WRITTEN, "kill-driver", 20)


def test_a_batch_that_was_only_noted_overtook_nothing(job, monkeypatch):
    """The one before is DONE, and its note comes before the task stands still in the next."""
    (job.checkpoint / "offsets" / "0").touch()
    monkeypatch.setattr(job_module, "standalone", contextmanager(lambda *_: iter(["spark://x"])))
    job.kill_driver = lambda quiet=False: None
    job._wanted = lambda at: {}
    reached = job.crash_points.folder / "S3.while_writing.reached"

    def life(driver: HandMade) -> None:
        time.sleep(0.2)
        (job.checkpoint / "commits" / "0").touch()
        (job.checkpoint / "offsets" / "1").touch()
        task = subprocess.Popen(["/bin/sh", "-c", "kill -STOP $$; exit 0"])
        reached.write_text(str(task.pid))
        task.wait()
        (job.checkpoint / "commits" / "1").touch()
        driver.exit_code = 0

    job.new_driver = lambda *_: HandMade(life)
    with pytest.raises(FaultMissed, match="No copy of the task"):
        job.speculate(seconds=2)


def test_the_nemesis_waits_until_spark_has_booted(job):
    (job.checkpoint / "offsets" / "3").touch()
    (job.checkpoint / "commits" / "2").touch()
    driver = SimpleNamespace(exit_code=None, has_started=False)
    threading.Timer(0.5, setattr, [driver, "has_started", True]).start()
    job.start, job.running = lambda: None, lambda: driver
    nemesis._at_work(job, random.Random(1))
    assert driver.has_started


def test_a_network_in_which_nothing_was_said_was_not_cut(tmp_path):
    with silent_server() as port, Proxy(port) as proxy:
        trial = Trial("test", tmp_path, "a", "b", "u")
        place = Place("127.0.0.1:1", f"127.0.0.1:{proxy.port}", (object(),), proxy)
        broker = Broker(place, trial)
        with pytest.raises(FaultMissed, match="Nothing was cut"), broker.network_cut():
            pass
        with pytest.raises(FaultMissed, match="Nothing was held up"), broker.network_hangs():
            pass
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(b"\0\0\0\x08\0\x12\0\0\0\0\0\x01")
            wait_until(proxy.counts.total, "it has come through")
            with broker.network_hangs("requests"):
                client.sendall(b"\0\0\0\x08\0\x12\0\0\0\0\0\x02")
                wait_until(proxy.struck, "it is held up")
            with broker.network_cut():
                assert client.recv(1) == b""
        with broker.network_cut(), socket.create_connection(("127.0.0.1", proxy.port)) as client:
            wait_until(proxy.struck, "it is refused")


@contextmanager
def silent_server():
    with socket.create_server(("127.0.0.1", port := free_port())):
        yield port
