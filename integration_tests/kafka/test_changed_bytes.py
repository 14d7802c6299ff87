"""A byte that changes on a broker's disk: who reads it is told, and is not given another value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.core import librdkafka
from eo_kafka.core.offsets import OffsetRange, TopicPartition
from eo_kafka.errors import SourceError
from eo_kafka.sources.reader import read_range
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.testing.records import committed_messages
from harness import produce


@pytest.fixture(scope="module")
def one() -> Iterator[KafkaBroker]:
    """A broker of our own, as its files are changed."""
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def damaged(one: KafkaBroker) -> str:
    """A topic of three batches of records, one byte of the second of which has changed."""
    topic = topic_maker(one.bootstrap_servers)("damaged")
    for value in (b"before", b"as it was written", b"behind"):
        produce(one.bootstrap_servers, topic, [value])
    (log,) = one.directory.glob(f"**/{topic}-0/*.log")
    at = log.read_bytes().index(b"as it was")
    with log.open("r+b") as file:
        file.seek(at)
        file.write(b"A")
    return topic


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_changed_byte_is_not_read(
    one: KafkaBroker, damaged: str, is_compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_compiled:
        monkeypatch.setattr(librdkafka, "available", lambda: "the test wants the plain loop")
    given = {"kafka.bootstrap.servers": one.bootstrap_servers, "subscribe": damaged}
    wanted = OffsetRange(TopicPartition(damaged, 0), 0, 3)
    with pytest.raises(SourceError, match="failed at offset 1: .*CRC"):
        print([batch.to_pylist() for batch in read_range(SourceOptions.parse(given, True), wanted)])


def test_the_checker_of_tests_is_told_of_a_changed_byte(one: KafkaBroker, damaged: str) -> None:
    with pytest.raises(AssertionError, match="CRC"):
        print(committed_messages(one.bootstrap_servers, damaged))
