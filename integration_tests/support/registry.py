"""A real schema registry: Apicurio, which speaks Confluent's protocol, as a process on loopback
with its data in memory. It comes from Maven Central (142 MB, once)."""

from __future__ import annotations

import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eo_kafka.broker.jars import Bundle, fetched
from eo_kafka.broker.java import find_java
from eo_kafka.broker.process import JavaProcess
from eo_kafka.broker.settings import free_port
from processes import wait_until

VERSION = "2.6.13.Final"
NAME = "apicurio-registry-app"
ARCHIVE = f"{NAME}-{VERSION}-all.tar.gz"
START_TIMEOUT_S = 120
BUNDLE = Bundle(
    title=f"Apicurio {VERSION}",
    folder=f"apicurio-{VERSION}",
    main=ARCHIVE,
    dependencies=f"""
    <dependency org="io.apicurio" name="{NAME}" rev="{VERSION}" conf="default" transitive="false">
      <artifact name="{NAME}" type="jar" ext="tar.gz" m:classifier="all"/>
    </dependency>""",
)


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Runs one out of `folder`. Gives the address for `url`."""
    with tarfile.open(fetched(BUNDLE) / ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    port = free_port()
    command = [
        *(str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"),
        *("-jar", str(folder / f"{NAME}-{VERSION}-runner.jar")),
    ]
    process = JavaProcess(command, folder / "registry.log")
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        wait_until(lambda: _answers(f"{url}/subjects"), "the registry answers", START_TIMEOUT_S)
        yield url
    finally:
        process.kill()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
