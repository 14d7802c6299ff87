"""A real schema registry on this machine, as a context manager: Apicurio, by Confluent's API.

    with SchemaRegistry() as registry:
        stream.option("value.format", "avro").option("schema.registry.url", registry.url)

A JVM that listens on 127.0.0.1 only and asks nobody for a password. For development and tests,
POSIX only. Without a folder it holds schemas in memory; with one, in a file of the H2 database.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from .errors import BrokerError, PortTaken
from .jars import Bundle, fetched
from .java import find_java
from .process import OneProcess, ServerProcess
from .server import Server
from .settings import LOOPBACK, free_port

VERSION = "2.6.13.Final"  # the newest that runs on Java 17; 3.x needs 21
_NAME = "apicurio-registry-app"
_BUNDLE = Bundle(
    title=f"Apicurio Registry {VERSION}",
    folder=f"apicurio-{VERSION}-unpacked",
    main=f"{_NAME}-{VERSION}-all.tar.gz",
    dependencies=f"""
    <dependency org="io.apicurio" name="{_NAME}" rev="{VERSION}" conf="default" transitive="false">
      <artifact name="{_NAME}" type="jar" ext="tar.gz" m:classifier="all"/>
    </dependency>""",
    is_archive=True,
    size=142_198_683,
)
START_TIMEOUT = 120.0  # seconds; 4 on an idle machine
API = "/apis/ccompat/v7"  # Confluent's, which all its clients speak
_PORT_ATTEMPTS = 5
_JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class SchemaRegistry(OneProcess, Server):
    """One registry.

    `port` 0 picks a free one. `directory` is where schemas and their numbers are kept; with None
    they go with the process. A broker that is kept needs a registry that is kept: the numbers stand
    in the records. Methods raise BrokerError.
    """

    called = "The schema registry"

    def __init__(self, port: int = 0, directory: str | os.PathLike[str] | None = None) -> None:
        self._wanted_port = port
        self._port = 0
        self._kept = directory is not None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="eo-kafka-registry-")
            directory = self._temporary.name
        self.directory = Path(directory).absolute()

    @property
    def url(self) -> str:
        """What clients are given: option `schema.registry.url`."""
        return f"http://{LOOPBACK}:{self._port}{API}"

    @property
    def log_path(self) -> Path:
        """The file with the registry's log, of all starts."""
        return self.directory / "registry.log"

    def epitaph(self) -> str:
        """A sentence about a registry that ended without being asked to."""
        return (
            f"The schema registry (Apicurio {VERSION}) in {self.directory} ended by "
            f"itself. Its log ends with: {self._log_end()}"
        )

    def start(self) -> None:
        """Start, and return once it answers. A free port may be taken a moment later: another one
        is chosen then."""
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self._port = free_port(self._wanted_port, "The schema registry")
            try:
                self._launch()
                self._await_ready()
            except PortTaken:
                if self._wanted_port or attempt == _PORT_ATTEMPTS:
                    raise
            else:
                return

    def close(self) -> None:
        """End it in order; with a folder of its own, delete that. `with` calls this."""
        if self._temporary is None:
            self.stop()
        else:
            self.kill()  # nothing is kept that an orderly end could save
            self._temporary.cleanup()
        atexit.unregister(self.close)

    def _launch(self) -> None:
        jars, java = fetched(_BUNDLE), str(find_java())
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = [f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={self._port}"]
        if self._kept:
            settings.append(f"-Dquarkus.datasource.jdbc.url=jdbc:h2:file:{self.directory}/registry")
        command = [
            java,
            *_JVM_OPTIONS,
            *settings,
            "-jar",
            str(jars / f"{_NAME}-{VERSION}-runner.jar"),
        ]
        self._process = ServerProcess(command, self.log_path)
        atexit.register(self.close)

    def _await_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not _answers(f"{self.url}/subjects"):
            if not self.running:
                raise self._died()
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"The schema registry at {self.url} did not answer within {START_TIMEOUT:.0f} "
                    f"seconds. Its log, {self.log_path}, ends with: {self._log_end()}"
                )
            time.sleep(0.05)

    def _died(self) -> BrokerError:
        output = self._said()
        if "seems to be in use" in output or "Address already in use" in output:
            return PortTaken(
                f"The schema registry could not listen on {LOOPBACK}:{self._port}: another process "
                "holds that port. Choose another one, or 0 for any that is free."
            )
        if "Database may be already in use" in output:
            return BrokerError(
                f"Another schema registry works on {self.directory}. End it, or choose another "
                "folder."
            )
        return BrokerError(self.epitaph())


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - http, on loopback
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
