"""Fetching Kafka: a damaged download is refused, a damaged cache is fetched again.

The repository is a small one, in Maven's layout, on a local HTTP server; Ivy is the real one.
"""

from __future__ import annotations

import functools
import hashlib
import http.server
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from eo_kafka.broker import jars
from eo_kafka.broker.errors import BrokerError
from eo_kafka.broker.java import find_java
from eo_kafka.core.process.user_cache import user_cache
from eo_kafka.tools.cli import main
from terminals import drawn, on_a_terminal

VERSION = "9.9.9"
POM = """<project><modelVersion>4.0.0</modelVersion><groupId>{group}</groupId>
<artifactId>{name}</artifactId><version>{version}</version></project>"""


def publish(root: Path, group: str, name: str, version: str) -> Path:
    """Put a module into the repository; the path of its jar."""
    folder = root.joinpath(*group.split("."), name, version)
    folder.mkdir(parents=True)
    jar, pom = folder / f"{name}-{version}.jar", folder / f"{name}-{version}.pom"
    jar.write_bytes(f"the jar of {name}".encode())
    pom.write_text(POM.format(group=group, name=name, version=version))
    for file in (jar, pom):
        digest = hashlib.sha1(file.read_bytes()).hexdigest()
        file.with_name(f"{file.name}.sha1").write_text(digest)
    return jar


class Handler(http.server.SimpleHTTPRequestHandler):
    requests: ClassVar[list[str]] = []

    come_first: ClassVar[int] = 0  # so many bytes of a file; the rest when `rest` is set
    rest: ClassVar[threading.Event] = threading.Event()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        first = source.read(self.come_first)
        outputfile.write(first)
        if first and len(first) == self.come_first:
            assert self.rest.wait(60)
        super().copyfile(source, outputfile)

    def log_message(self, format: str, *args: object) -> None:
        self.requests.append(self.path)


@pytest.fixture
def kafka_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The published jar of "Kafka", in a repository and with a cache of this test's own."""
    root = tmp_path / "repository"
    publish(root, "org.slf4j", "slf4j-simple", "1.7.36")
    jar = publish(root, "org.apache.kafka", "kafka_2.13", VERSION)
    Handler.requests.clear()
    handler = functools.partial(Handler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://user:hunter2@127.0.0.1:{server.server_port}/"
        monkeypatch.setenv(jars.REPOSITORY_VARIABLE, url)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache & more"))
        yield jar
        server.shutdown()


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_second_time_comes_from_the_cache(
    kafka_jar: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = jars.kafka_jars(VERSION)
    assert names(folder) == {f"kafka_2.13-{VERSION}.jar", "slf4j-simple-1.7.36.jar", jars.MANIFEST}
    told = capfd.readouterr().err
    assert told.startswith(f"resolving Kafka {VERSION} from http://127.0.0.1")
    assert "2 jars" in told
    Handler.requests.clear()
    assert jars.kafka_jars(VERSION) == folder
    assert Handler.requests == []
    assert capfd.readouterr().err == ""


def test_a_cache_folder_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    with pytest.raises(BrokerError, match="Not a directory.* Set XDG_CACHE_HOME to a folder"):
        jars.kafka_jars(VERSION)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("os.getuid", lambda: 2**31 - 3)  # who has no name
    assert main(["broker"]) == 1
    assert "(this user has no home directory). Set XDG_CACHE_HOME to" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [".jar", ".pom"])
def test_a_download_unlike_its_checksum_is_refused(kafka_jar: Path, kind: str) -> None:
    file = kafka_jar.with_suffix(kind)
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(BrokerError, match="does not match its published checksum") as refused:
        jars.kafka_jars(VERSION)
    assert "hunter2" not in str(refused.value)
    assert not (user_cache() / f"kafka-{VERSION}").exists()
    assert not list(user_cache().glob("fetching-*"))


@pytest.mark.parametrize("damage", ["altered", "missing", "added", "manifest"])
def test_a_damaged_cache_is_fetched_again(kafka_jar: Path, damage: str) -> None:
    folder = jars.kafka_jars(VERSION)
    cached, before = folder / kafka_jar.name, names(folder)
    if damage == "altered":
        cached.write_bytes(b"x" * cached.stat().st_size)
    elif damage == "missing":
        cached.unlink()
    elif damage == "added":
        (folder / "evil.jar").write_bytes(b"x")
    else:
        (folder / jars.MANIFEST).write_text("")
    assert jars.kafka_jars(VERSION) == folder
    assert cached.read_bytes() == kafka_jar.read_bytes()
    assert names(folder) == before


def test_on_a_terminal_a_bar_says_how_much_has_come(
    kafka_jar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 3_000_000
    kafka_jar.write_bytes(b"x" * size)
    digest = hashlib.sha1(kafka_jar.read_bytes()).hexdigest()
    kafka_jar.with_name(f"{kafka_jar.name}.sha1").write_text(digest)
    monkeypatch.setattr(Handler, "come_first", size // 2)
    Handler.rest.clear()
    program = "import sys, dataclasses; from eo_kafka.broker import jars; "
    program += "jars.fetched(dataclasses.replace(jars._kafka(sys.argv[1]), size=int(sys.argv[2])))"
    total = size + len("the jar of slf4j-simple")
    what = f"fetching Kafka {VERSION}"

    def hear(said: str) -> None:
        if any("50%" in one for one in drawn(what, said)):
            Handler.rest.set()

    code, said = on_a_terminal([sys.executable, "-c", program, VERSION, str(total)], hear=hear)
    assert (code, "hunter2" in said) == (0, False), said
    assert "100%" in drawn(what, said)[-1]
    assert said.splitlines()[-1].startswith("2 jars, ")


def test_of_many_at_once_one_fetches(kafka_jar: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda _: jars.kafka_jars(VERSION), range(4)))
    assert len(folders) == 1
    assert sum(path.endswith(f"{kafka_jar.name}") for path in Handler.requests) <= 2  # HEAD, GET


def test_a_version_nobody_published(kafka_jar: Path) -> None:
    with pytest.raises(BrokerError, match=r"does not have this version"):
        jars.kafka_jars("9.9.8")


def test_no_network(kafka_jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(jars.REPOSITORY_VARIABLE, "http://127.0.0.1:9/")
    with pytest.raises(BrokerError, match=r"cannot be reached .* Check the network"):
        jars.kafka_jars(VERSION)


@pytest.mark.parametrize("version", ["", "4.3", "../../etc", "4.3.1\n"])
def test_what_is_not_a_version(version: str) -> None:
    with pytest.raises(BrokerError, match="is not a Kafka version"):
        jars.kafka_jars(version)


def fake_java(home: Path, version: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21"])
def test_java_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(BrokerError, match="needs Java 17 or newer"):
        find_java()


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrokerError, match="No Java was found"):
        find_java()


@pytest.mark.parametrize("has_filters", [True, False], ids=["3.11.4", "3.11.2"])
def test_an_archive_is_unpacked_by_pythons_without_filters(tmp_path, monkeypatch, has_filters):
    """Debian 12's, for one."""
    (tmp_path / "file").write_text("inside")
    with tarfile.open(tmp_path / "archive", "w") as made:
        made.add(tmp_path / "file", "file")
    if not has_filters:
        extract = tarfile.TarFile.extractall
        monkeypatch.delattr(tarfile, "data_filter", raising=False)

        def extract_all(self: tarfile.TarFile, path: Path) -> None:
            extract(self, path)

        monkeypatch.setattr(tarfile.TarFile, "extractall", extract_all)
    with tarfile.open(tmp_path / "archive") as packed:
        jars.unpack(packed, tmp_path / "folder")
    assert (tmp_path / "folder" / "file").read_text() == "inside"
