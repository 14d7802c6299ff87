"""README and docs, typed by a newcomer: each block of code and each command, in their order, with
what they print where the page shows it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQueryListener, StreamingQueryManager

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.settings import free_port
from harness import committed, produce
from newcomer import (
    NOT_PRINTED,
    ROOT,
    SETTINGS,
    SETTINGS_LANGUAGES,
    Newcomer,
    blocks,
    quick_start,
    version,
)
from pages import GIVEN, NOTHING

# Typed by another test, which has the servers for it
ELSEWHERE = {
    "docs/quickstart.md": "test_the_quick_start_works",
    "docs/tutorial.md": "test_the_tutorial_works",
    "README.md": "test_readme_works",
    "docs/pypi.md": "test_a_page_that_is_generated_is_up_to_date",  # README
    "docs/tools.md": "test_the_page_of_the_commands_shows_what_they_print",
    "docs/security.md": "test_the_page_that_says_how_to_log_in_logs_in",
    "docs/postgres.md": "test_the_page_works_as_it_is_written",
    "docs/queues.md": "test_the_page_of_queues_works_as_it_is_written",
    "docs/files.md": "test_the_page_of_files_works",
    "docs/targets.md": "test_the_page_of_targets_works",
    "docs/testing.md": "test_the_page_shows_parts_of_the_example",
    "docs/pipelines.md": "test_the_page_of_pipelines_works",
    "docs/how-to/acls.md": "test_the_page_that_says_how_to_grant_them_grants_what_a_job_needs",
}
WITH_BLOCKS = [
    page
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if blocks(page := path.relative_to(ROOT).as_posix())
]
LANGUAGES = {"python", "diff", "sh", "console", "text", *SETTINGS_LANGUAGES}
PAGES = [page for page in WITH_BLOCKS if page not in ELSEWHERE]
SET_BY_PAGES = (
    "spark.sql.python.filterPushdown.enabled",
    "spark.sql.streaming.stateStore.providerClass",
)
MakeNewcomer = Callable[[str], Newcomer]


@pytest.mark.smoke
def test_no_block_of_any_page_is_left_out() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "integration_tests").rglob("test_*.py"))
    tests += (ROOT / "tests" / "project" / "test_docs.py").read_text()
    for page in WITH_BLOCKS:
        fences = [line for line in (ROOT / page).read_text().splitlines() if "```" in line[:8]]
        found = blocks(page)
        assert len(fences) == 2 * len(found), page
        assert {block.language for block in found} <= LANGUAGES, page
        assert page not in ELSEWHERE or f"def {ELSEWHERE[page]}(" in tests, page
        assert page in ELSEWHERE or page in GIVEN or page.startswith("docs/how-to/"), page
        for block in found:
            if block.language == "python":
                compile(block.content, page, "exec")
        shown = [block for block in found if block.language == "text"]
        assert page not in NOT_PRINTED or len(shown) == 1, page
        is_read = any(block.language in SETTINGS_LANGUAGES for block in found)
        assert page in ELSEWHERE or is_read == (page in SETTINGS), page
        assert page not in SETTINGS or f"def {SETTINGS[page]}(" in tests, page
        assert page not in NOT_PRINTED or f"def {NOT_PRINTED[page]}(" in tests, page


@pytest.fixture
def quiet(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """The tests' session, with no query, no listener and no setting left in it."""
    listeners, add = [], StreamingQueryManager.addListener

    def added(manager: StreamingQueryManager, listener: StreamingQueryListener) -> None:
        listeners.append(listener)
        add(manager, listener)

    monkeypatch.setattr(StreamingQueryManager, "addListener", added)
    yield spark
    stop_queries(spark)
    for listener in listeners:
        spark.streams.removeListener(listener)
    for name in SET_BY_PAGES:
        spark.conf.unset(name)


@pytest.fixture
def newcomer(own: KafkaBroker, quiet: SparkSession, tmp_path: Path) -> Iterator[MakeNewcomer]:
    """Follows a page, with a Kafka of its own and all that the page takes for granted."""
    made = []

    def make(page: str) -> Newcomer:
        addresses = {"localhost:9092": own.bootstrap_servers}
        made.append(Newcomer(page, tmp_path, {"spark": quiet}, addresses))
        for block in GIVEN.get(page, NOTHING).blocks():
            made[0].type_all(block)
        return made[0]

    yield make
    stop_queries(quiet)  # before the servers that they use
    made[0].close()


def stop_queries(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_a_page_works_as_it_is_written(
    page: str, own: KafkaBroker, quiet: SparkSession, newcomer: MakeNewcomer
) -> None:
    given, follower = GIVEN.get(page, NOTHING), newcomer(page)
    for _ in follower.follow():
        for query in quiet.streams.active:
            query.processAllAvailable()
        if given.one_query:
            stop_queries(quiet)
    for frame in follower.names.values():
        if isinstance(frame, DataFrame) and not frame.isStreaming:
            frame.collect()
    servers = follower.addresses["localhost:9092"]  # that of the page, if it starts one
    for topic, rows in given.rows:
        assert committed(servers, topic).total() == rows, topic


def test_readme_works(own: KafkaBroker, newcomer: MakeNewcomer, tmp_path: Path) -> None:
    _, change, _figures, restorable, *_ = blocks("README.md")
    assert version(change.content, "-").replace('("kafka")', '("eo-kafka")') == version(
        change.content, "+"
    ), "one word"
    follower = newcomer("README.md")
    servers, said = own.bootstrap_servers, []

    def ran(*values: bytes) -> Counter[bytes]:
        produce(servers, "orders", list(values))
        query = follower.names["query"]
        query.processAllAvailable()
        query.stop()
        return committed(servers, "counts")

    for typed in follower.follow():
        if "writeStream" in typed.command:
            if "eo_kafka.start" not in typed.command:
                assert ran(b"c") == {b"a": 1, b"b": 1, b"c": 1}
            else:
                assert ran(b"a", b"d") == {b"a": 1, b"b": 1, b"c": 1, b"d": 1}
                shutil.rmtree(tmp_path / "checkpoints")
                follower.type_all(restorable)
                assert ran(b"d", b"e") == {b"a": 1, b"b": 1, b"c": 1, b"d": 1, b"e": 1}
        said.append(typed)
    doctor, decisions, *_ = [one.output for one in said if one.command.startswith("eo-kafka")]
    assert "\nproblem" not in doctor, doctor
    assert "DONE" in decisions, decisions


@pytest.mark.full
def test_the_tutorial_works(tmp_path: Path) -> None:
    """It compares what the job made with its model, and runs the project's own test."""
    addresses = {"9092": str(free_port())}
    with closing(Newcomer("docs/tutorial.md", tmp_path, addresses=addresses)) as follower:
        said = list(follower.follow())
    outputs = {typed.command: typed.output for typed in said}
    assert "DONE" in outputs[next(word for word in outputs if word.startswith("eo-kafka job"))]
    assert "1 passed" in outputs["cd my-job && pytest"]
    assert "Of 2000 records" in outputs["python tickets/sample.py check"]
    assert "Equal by key" in said[-1].output


def test_the_quick_start_works(tmp_path: Path) -> None:
    with closing(quick_start(tmp_path)) as follower:
        said = list(follower.follow())
    (broker,) = [one for one in said if one.command.startswith("eo-kafka broker")]
    assert broker.output.startswith("bootstrap.servers=127.0.0.1:")
    assert "Topic 'shouted' has been created with 4 partitions." in broker.output
    assert "Equal by key: nothing lost, nothing twice, nothing else." in said[-1].output
