"""Hazelcast Jet, out of the member's own jar, as a reader of the same map's journal."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.broker.jars import hazelcast_jars
from eo_kafka.broker.java import find_java

SOURCE = Path(__file__).with_name("JetJournal.java")
_JVM = ("-Xmx2g",)


def javac() -> Path | None:
    """The compiler beside the Java that runs the members; None if there is none."""
    beside = find_java().with_name("javac")
    found = beside if beside.exists() else shutil.which("javac")
    return None if found is None else Path(found)


class Jet:
    """A member of its own with Jet, in one JVM; compiled and started here, stopped at the end."""

    def __init__(self, grid: HazelcastCluster, name: str, events: int) -> None:
        compiler = javac()
        if compiler is None:
            raise RuntimeError("there is no javac")
        self._folder = tempfile.TemporaryDirectory()
        jars = f"{hazelcast_jars()}/*"
        subprocess.run(
            [compiler, "-cp", jars, "-d", self._folder.name, SOURCE], check=True, timeout=120
        )
        self._events = events
        self._process = subprocess.Popen(
            [
                *(str(find_java()), *_JVM, "-cp", f"{self._folder.name}:{jars}", "JetJournal"),
                *(grid.cluster_name, name, str(events), *grid.addresses),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._line("ready")

    def read(self) -> float:
        """One job from the oldest event to the last. Seconds from its first event on: a job's start
        is not counted. Raises RuntimeError unless each event came once."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        count, _, seconds = self._line().split()
        if int(count) != self._events:
            raise RuntimeError(f"Jet read {count} events, and there are {self._events}")
        return float(seconds)

    def _line(self, wanted: str | None = None) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if wanted is None or line.strip() == wanted:
                return line
        raise RuntimeError(f"Jet's JVM ended by itself ({self._process.wait()})")

    def __enter__(self) -> Jet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()
