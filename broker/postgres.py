"""A real PostgreSQL on this machine, as a context manager.

    with Postgres() as server:
        frame.writeStream.format("eo-postgres").option("url", server.url)

A server that listens on 127.0.0.1 only and asks nobody for a password, with PostgreSQL's defaults
but for its address and `max_prepared_transactions`, which is 0 there. Its programs come from Maven
Central, as Kafka does (zonky's archive), so that nothing has to be installed. For tests and trying
things out, Linux only. PostgreSQL refuses to run as root: then it runs as `nobody`.
"""

from __future__ import annotations

import atexit
import os
import platform
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

from .errors import BrokerError
from .jars import Bundle, fetched, unpack
from .process import OneProcess, ServerProcess, tail
from .server import Server
from .settings import LOOPBACK, free_port

VERSION = "17.5.0"
START_TIMEOUT = 60.0
USER = DATABASE = "postgres"
_NOBODY = "nobody"
# by machine: the archive's name for it, and its size
_MACHINES = {"x86_64": ("amd64", 14_873_955), "aarch64": ("arm64v8", 13_868_789)}


def _bundle() -> Bundle:
    machine = platform.machine()
    if machine not in _MACHINES:
        raise BrokerError(
            f"There is no PostgreSQL for {machine} in the archive: x86_64 or aarch64."
        )
    called, size = _MACHINES[machine]
    name = f"embedded-postgres-binaries-linux-{called}"
    title, folder = f"PostgreSQL {VERSION}", f"postgres-{VERSION}"
    return Bundle.of_one_jar(title, folder, "io.zonky.test.postgres", name, VERSION, size)


_LIVE = "pre-existing shared memory block"


class Postgres(OneProcess, Server):
    """One server; its data goes with it. It can be killed and started again: its children see that,
    and end then. Methods raise BrokerError."""

    called = "PostgreSQL"
    stop_signal = signal.SIGINT  # SIGTERM waits for its clients

    def __init__(self, max_prepared_transactions: int = 64) -> None:
        self.prepared = max_prepared_transactions  # from its next start on
        self.port = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """What clients are given: option `url`."""
        return f"postgresql://{USER}@{LOOPBACK}:{self.port}/{DATABASE}"

    @property
    def data(self) -> Path:
        """Its data folder."""
        return self._home / "data"

    def start(self) -> None:
        """Start it, for the first time or again, and return once it takes statements."""
        if self._folder is None:
            self._make()
        deadline = time.monotonic() + START_TIMEOUT
        self._process = self._begun()
        while not self._is_ready():
            ended, said = not self.running, self._said()
            if (ended and _LIVE not in said) or time.monotonic() > deadline:
                raise BrokerError(
                    f"PostgreSQL {VERSION} did not start. Its log ends with: {tail(said)}"
                )
            time.sleep(0.05)
            if ended:  # children of the one that was killed are still at their end
                self._process = self._begun()

    def _begun(self) -> ServerProcess:
        return ServerProcess(
            [
                *(str(self._home / "bin" / "postgres"), "-D", str(self.data)),
                *("-h", LOOPBACK, "-p", str(self.port), "-k", ""),
                *("-c", f"max_prepared_transactions={self.prepared}"),
            ],
            self._home / "log",
            user=_NOBODY if os.geteuid() == 0 else None,
        )

    def close(self) -> None:
        """End it in order, or its shared memory would stay, and delete all. `with` calls this."""
        self.stop()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
        atexit.unregister(self.close)

    @property
    def _home(self) -> Path:
        if self._folder is None:
            raise BrokerError("PostgreSQL was not started: use 'with'.")
        return Path(self._folder.name)

    def _is_ready(self) -> bool:
        return "database system is ready to accept connections" in self._said()

    def _make(self) -> None:
        jars = fetched(_bundle())
        self._folder = tempfile.TemporaryDirectory(prefix="eo-kafka-postgres-")
        atexit.register(self.close)
        self.port = free_port(0, "PostgreSQL")
        with zipfile.ZipFile(next(jars.glob("*.jar"))) as jar:
            (name,) = (one for one in jar.namelist() if one.endswith(".txz"))
            with jar.open(name) as packed, tarfile.open(fileobj=packed, mode="r:xz") as programs:
                unpack(programs, self._home)
        if os.geteuid() == 0:
            for folder in (self._home, *self._home.iterdir()):
                shutil.chown(folder, _NOBODY)
        (self._home / "log").touch()
        done = subprocess.run(
            [
                *(str(self._home / "bin" / "initdb"), "-D", str(self.data), "-U", USER),
                *("-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            capture_output=True,
            text=True,
            check=False,
            user=_NOBODY if os.geteuid() == 0 else None,
            cwd=self._home,
        )
        if done.returncode:
            raise BrokerError(f"initdb of PostgreSQL {VERSION} failed: {tail(done.stderr)}")
