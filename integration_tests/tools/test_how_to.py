"""The pages of docs/how-to/, typed by somebody who follows them: each command and all code,
in their order, and what they print where the page shows it."""

from __future__ import annotations

import io
import re
import shlex
import uuid
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from textwrap import dedent

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQueryListener, StreamingQueryManager

from conftest import Bootstrap
from eo_kafka.tools.cli import main

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"
ELSEWHERE = {"acls.md"}  # integration_tests/kafka/test_authorization.py has the broker for it
PAGES = sorted(path.name for path in FOLDER.glob("*.md") if path.name not in ELSEWHERE)
BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
NOT_TYPED = ("pip install",)  # it would change what these tests run in


class Reader:
    """Follows one page. The topics that it creates, and all that is named after them, get names
    that nobody else has."""

    def __init__(self, page: str, servers: str, folder: Path, spark: SparkSession) -> None:
        text = (FOLDER / page).read_text()
        created = re.findall(r"^eo-kafka topic create (.*?) --", text, re.MULTILINE)
        topics = [word.split(":")[0] for line in created for word in line.split()]
        mine = uuid.uuid4().hex[:6]
        for topic in topics:
            text = re.sub(rf"\b{topic}\b", f"{topic}_{mine}", text)
        text = text.replace("localhost:9092", servers).replace("/data/", f"{folder}/")
        self._page = page
        self._blocks = [(kind, dedent(content)) for kind, content in BLOCK.findall(text)]
        self._names: dict[str, object] = {"spark": spark}

    def follow(self) -> None:
        """Type all of it."""
        assert self._blocks, self._page
        said = ""
        for kind, content in self._blocks:
            if kind:
                said = self._type(kind, content)
            else:
                assert said.strip() == content.strip(), self._page

    def _type(self, kind: str, content: str) -> str:
        """What it prints."""
        with redirect_stdout(io.StringIO()) as said:
            if kind == "python":
                exec(compile(content, self._page, "exec"), self._names)
            else:
                assert kind == "sh", f"{self._page}: nobody runs a block of '{kind}'"
                for line in content.replace("\\\n", " ").splitlines():
                    self._run(line.partition(" #")[0])
        return said.getvalue()

    def _run(self, command: str) -> None:
        if command and not command.startswith(NOT_TYPED):
            program, *words = shlex.split(command)
            assert (program, main(words)) == ("eo-kafka", 0), command


@pytest.fixture
def quiet(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """The tests' session, with no query and no listener left in it."""
    listeners, add = [], StreamingQueryManager.addListener

    def added(manager: StreamingQueryManager, listener: StreamingQueryListener) -> None:
        listeners.append(listener)
        add(manager, listener)

    monkeypatch.setattr(StreamingQueryManager, "addListener", added)
    yield spark
    for query in spark.streams.active:
        query.stop()
    for listener in listeners:
        spark.streams.removeListener(listener)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_it_is_written(
    page: str, broker: Bootstrap, quiet: SparkSession, tmp_path: Path
) -> None:
    Reader(page, broker.bootstrap_servers, tmp_path, quiet).follow()
