"""A state topic as it looks after crashes and cleaning: the end of the log is no record of ours.

"Recovery never ends" is what users of Quix and Faust report most; each of their cases that can
occur here is a test with its name. Real Kafka, no Spark.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from test_restore import FILES, LARGE, Counted, Topic, content_of

from eo_kafka.clients.kafka import outages
from eo_kafka.errors import CorruptSnapshot, ReadTimeout
from eo_kafka.state.ledger import log_reader
from eo_kafka.state.ledger.blob_names import SnapshotHead
from eo_kafka.state.ledger.log_reader import read_records
from eo_kafka.state.snapshots import blobs
from eo_kafka.state.snapshots.checkpoint import open_checkpoint
from eo_kafka.state.snapshots.writing_back import Purpose, restore
from harness import control_plane, delete_records, wait_until

T = TypeVar("T")
AT_ONCE_S = 20  # far below the watchdog's minute
CLEANED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "1",
    "file.delete.delay.ms": "1",
}
SNAPSHOT = Topic(FILES)
NOBODYS = [(b"%040x/0" % number, b"x") for number in range(5)]


class StateTopic:
    """A topic, and what a restart asks of it."""

    def __init__(self, servers: str, name: str) -> None:
        self.name = name
        self.settings = {"bootstrap.servers": servers}
        self.id = f"coordinator-{uuid.uuid4().hex}"

    def producer(self, **extra: object) -> Producer:
        """Of the job's coordinator: taking the id ends what an earlier holder left open."""
        producer = Producer({**self.settings, "transactional.id": self.id, **extra})
        producer.init_transactions(30)
        return producer

    def send(self, producer: Producer, records: list, *, end: str = "commit") -> None:
        """One transaction; `end` may be `commit`, `abort` or `never`."""
        producer.begin_transaction()
        for key, value in records:
            producer.produce(self.name, value, key, 0)
        assert producer.flush(30) == 0
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)

    def plain(self, records: list) -> None:
        """Without a transaction."""
        producer = Producer({**self.settings, "enable.idempotence": True})
        for key, value in records:
            producer.produce(self.name, value, key, 0)
        assert producer.flush(30) == 0

    def end(self, *, committed: bool = True) -> int:
        with control_plane(self.settings["bootstrap.servers"]) as control:
            # Kafka writes the markers of a transaction after it has answered
            wait_until(
                lambda: not control.describe_one(self.id).state.is_completing, "they are there"
            )
            return control.end_offset(self.name, 0, committed=committed)

    def read(self, start: int, end: int) -> list[tuple[int, bytes, bytes | None]]:
        return at_once(lambda: list(read_records(self.settings, self.name, 0, start, end)))

    def keys(self, start: int = 0, end: int | None = None) -> set[bytes]:
        end = self.end() if end is None else end
        return at_once(lambda: blobs.keys_between(self.settings, self.name, start, end))

    def restored(self, folder: Path, end: int | None = None) -> dict[str, bytes]:
        """What a restore of SNAPSHOT writes."""
        end = self.end() if end is None else end
        head = SnapshotHead(1, 2, "q", SNAPSHOT.manifest, 0, len(FILES), 0, 0, 0)
        target = open_checkpoint(str(folder))
        words = (self.settings, self.name, end, head, target, Counted(), Purpose("job"))
        at_once(lambda: restore(*words))
        return content_of(folder)


def at_once(work: Callable[[], T]) -> T:
    started = time.monotonic()
    found = work()
    assert time.monotonic() - started < AT_ONCE_S, "it waited for what never comes"
    return found


@pytest.fixture
def state(broker, make_topic) -> StateTopic:
    return StateTopic(
        broker.bootstrap_servers, make_topic("state", config={"cleanup.policy": "compact"})
    )


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "checkpoint"


def test_quix_1017_a_control_record_is_the_end_of_the_log(state, folder):
    state.send(state.producer(), SNAPSHOT.records)
    last = state.read(0, state.end())[-1][0]
    assert last == state.end() - 2, "there is no marker at the end"
    assert state.restored(folder) == FILES
    assert state.keys() == {key for key, _ in SNAPSHOT.records}


def test_quix_1067_not_one_record_is_ever_received(state):
    """So there is no position to compare with the end."""
    state.send(state.producer(), SNAPSHOT.records, end="abort")
    end = state.end()
    assert end == len(SNAPSHOT.records) + 1
    assert state.read(0, end) == []
    assert state.read(end - 1, end) == [], "the range is one control record"
    assert state.keys() == set()
    with pytest.raises(CorruptSnapshot, match="0 of 1 records"):
        at_once(lambda: blobs.read_blob(state.settings, state.name, 0, end, SNAPSHOT.manifest))


def delete_before(state: StateTopic, offset: int) -> None:
    delete_records(state.settings["bootstrap.servers"], state.name, offset)


@pytest.fixture
def deletable(broker, make_topic) -> StateTopic:
    """Kafka deletes from the beginning only where the policy says so: somebody changed it."""
    policy = {"cleanup.policy": "compact,delete"}
    return StateTopic(broker.bootstrap_servers, make_topic("state", config=policy))


def test_quix_1114_the_position_is_below_the_low_watermark(deletable, folder):
    state = deletable
    producer = state.producer()
    state.send(producer, NOBODYS)
    state.send(producer, SNAPSHOT.records)
    begin = len(NOBODYS) + 1
    delete_before(state, begin)
    assert state.read(0, state.end())[0][0] == begin
    assert state.restored(folder) == FILES
    # And if something of it is gone, that is said.
    delete_before(state, begin + 3)
    gone = {key for key, _ in SNAPSHOT.records[:3]}
    assert not gone & state.keys()
    with pytest.raises(CorruptSnapshot, match="cut by retention"):
        state.restored(folder.with_name("another"))
    delete_before(state, state.end())
    with pytest.raises(CorruptSnapshot, match="cut by retention"):
        state.restored(folder.with_name("another"))


def test_quix_1146_faust_658_no_rebalance_can_disturb_it(state, tmp_path):
    """Readers come and go at the same time; none is a member of a group."""
    state.send(state.producer(), SNAPSHOT.records)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: state.restored(tmp_path / str(number)), range(4)))
    assert found == [FILES] * 4
    admin = AdminClient(state.settings)
    groups = admin.list_consumer_groups().result(30)
    assert not [one.group_id for one in groups.valid if "eo-kafka" in one.group_id]


def test_faust_47_exactly_once_leaves_aborted_records_at_the_end(state, folder):
    producer = state.producer()
    for number, record in enumerate(SNAPSHOT.records):
        state.send(producer, NOBODYS[: number % 5], end="abort")
        state.send(producer, [record])
    state.send(producer, NOBODYS, end="abort")
    assert state.read(0, state.end())[-1][0] < state.end() - len(NOBODYS)
    assert state.restored(folder) == FILES
    assert state.keys() == {key for key, _ in SNAPSHOT.records}


def test_faust_155_the_end_is_not_off_by_one(state):
    state.plain(NOBODYS)
    assert state.end() == len(NOBODYS)
    for start in range(len(NOBODYS) + 1):
        for end in (start, start + 1, len(NOBODYS)):
            if end <= len(NOBODYS):
                assert [one[0] for one in state.read(start, end)] == list(range(start, end))


def test_faust_176_compaction_removed_the_records_before_the_end(broker, make_topic, folder):
    state = StateTopic(broker.bootstrap_servers, make_topic("state", config=CLEANED))
    producer = state.producer()
    state.send(producer, SNAPSHOT.records)
    for _ in range(3):
        state.send(producer, NOBODYS)
    state.send(producer, [(key, None) for key, _ in NOBODYS])
    end = state.end()

    def cleaned() -> bool:
        state.send(producer, NOBODYS, end="abort")  # a new segment needs a new record
        # Nothing is left of what was written three times and then deleted.
        return state.read(0, end)[-1][0] < len(SNAPSHOT.records)

    wait_until(cleaned, "the cleaner has run", 90)
    whole = {key for key, _ in SNAPSHOT.records}
    for upto in (end, end - 1, len(SNAPSHOT.records) + 1, len(SNAPSHOT.records), state.end()):
        assert state.keys(0, upto) == whole
        assert state.restored(folder.with_name(str(upto)), upto) == FILES
    for start in (len(SNAPSHOT.records), end - 3, end - 1):
        assert state.read(start, end) == []


@pytest.fixture
def large(deletable) -> StateTopic:
    """More than the client fetches ahead."""
    value = bytes(512 * 1024)
    for first in range(0, 160, 40):
        deletable.plain([(b"%040x/0" % number, value) for number in range(first, first + 40)])
    return deletable


def test_faust_651_segments_are_deleted_while_it_reads(large):
    end = large.end()
    reading = read_records(large.settings, large.name, 0, 0, end, blobs.AT_ONCE)
    first = next(reading)[0]
    delete_before(large, end - 2)
    rest = at_once(lambda: [offset for offset, _, _ in reading])
    assert (first, rest[-1]) == (0, end - 1)
    assert rest == sorted(rest)
    assert len(rest) < end - 1, "all had been fetched before: nothing was deleted under it"


def test_faust_74_the_reader_is_slower_than_the_broker(large, monkeypatch):
    """What takes the records may take its time; the watchdog is about the broker."""
    monkeypatch.setattr(log_reader, "STALL_TIMEOUT_S", 3.0)
    found = []
    for offset, _, _ in read_records(large.settings, large.name, 0, 0, large.end(), 32):
        found.append(offset)
        if offset == 60:
            time.sleep(4)  # longer than the watchdog's bound
    assert found == list(range(160))


def test_not_one_tombstone_is_passed_over(state):
    """A message without a value counts as false in Python."""
    state.plain([(b"%040x/0" % number, None) for number in range(100)])
    assert [offset for offset, _, _ in read_records(state.settings, state.name, 0, 0, 100, 7)] == [
        *range(100)
    ]


def test_the_watchdog_lets_a_long_read_be(state, monkeypatch):
    """A log without a gap, read for longer than the watchdog's bound."""
    state.plain([(b"%040x/0" % number, b"x") for number in range(100)])
    monkeypatch.setattr(log_reader, "STALL_TIMEOUT_S", 3.0)
    found = []
    for offset, _, _ in read_records(state.settings, state.name, 0, 0, state.end(), 1):
        found.append(offset)
        time.sleep(0.04)
    assert found == list(range(100))


# --- a coordinator that died in the middle of a transaction -----------------------------------


@pytest.fixture(autouse=True)
def no_broker_is_away(monkeypatch) -> None:
    """One that a test before this one has stopped would make each read wait for minutes."""
    monkeypatch.setattr(outages, "_watched", set())


@pytest.fixture
def died(state) -> Iterator[StateTopic]:
    """Its last transaction is neither committed nor aborted, and names what the one before does."""
    producer = state.producer()
    state.send(producer, SNAPSHOT.records)
    wrong = [(key, value[::-1]) for key, value in SNAPSHOT.records]
    state.send(producer, wrong, end="never")
    assert state.end() < state.end(committed=False)
    yield state
    state.producer().flush(0)  # ends it


def test_a_restore_does_not_wait_for_an_open_transaction(died, folder):
    assert died.restored(folder) == FILES
    assert died.keys() == {key for key, _ in SNAPSHOT.records}


def test_a_read_behind_an_open_transaction_ends_when_that_does(died, folder):
    """The next coordinator's fence ends it; whoever reads to the high watermark waits for that."""
    end = died.end(committed=False)
    got: list[object] = []

    def read() -> None:
        for record in read_records(died.settings, died.name, 0, 0, end):
            got.append(record)
        got.append("ended")

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: len(got) >= len(SNAPSHOT.records), "what is committed is read")
    assert got[-1] != "ended"
    died.producer()
    reader.join(AT_ONCE_S)
    assert got[-1] == "ended"
    assert len(got) == len(SNAPSHOT.records) + 1, "a record of the aborted transaction was seen"
    assert died.restored(folder) == FILES


def test_a_transaction_that_never_ends_is_said(died, monkeypatch):
    monkeypatch.setattr(log_reader, "STALL_TIMEOUT_S", 2.0)
    end = died.end(committed=False)
    with pytest.raises(ReadTimeout) as stalled:
        died.read(0, end)
    assert f"{died.name}-0 stopped at offset" in str(stalled.value)
    assert f"of {end}" in str(stalled.value)
    assert "holding a transaction open" in str(stalled.value)
    assert stalled.value.retriable


def test_what_an_aborted_snapshot_left_is_never_used(state, folder):
    producer = state.producer()
    wrong = [(key, value[::-1]) for key, value in SNAPSHOT.records]
    state.send(producer, wrong, end="abort")
    with pytest.raises(CorruptSnapshot, match="0 of 1 records"):
        state.restored(folder)
    state.send(producer, SNAPSHOT.records)
    state.send(producer, wrong, end="abort")
    assert state.restored(folder) == FILES


# --- tombstones -------------------------------------------------------------------------------


def test_a_tombstone_takes_a_key_away_until_it_is_written_again(state, folder):
    producer = state.producer()
    state.send(producer, SNAPSHOT.records + NOBODYS)
    gone = [(key, None) for key, _ in NOBODYS]
    state.send(producer, gone)
    assert state.keys() == {key for key, _ in SNAPSHOT.records}
    state.send(producer, NOBODYS[:2])
    assert state.keys() == {key for key, _ in SNAPSHOT.records + NOBODYS[:2]}
    assert state.keys(start=len(SNAPSHOT.records)) == {key for key, _ in NOBODYS[:2]}
    assert state.restored(folder) == FILES


def test_a_blob_that_was_deleted_and_cleaned_away_is_named(broker, make_topic, folder):
    """Half-compacted: the manifest is there, and one of its files is not."""
    state = StateTopic(broker.bootstrap_servers, make_topic("state", config=CLEANED))
    producer = state.producer()
    state.send(producer, SNAPSHOT.records)
    lost = SNAPSHOT.records[SNAPSHOT.at(LARGE, 1)][0]
    state.send(producer, [(lost, None)])

    def cleaned() -> bool:
        state.send(producer, NOBODYS, end="abort")
        return lost not in {key for _, key, _ in state.read(0, state.end())}

    wait_until(cleaned, "the cleaner has run", 90)
    with pytest.raises(CorruptSnapshot, match="1 of 8 files") as refused:
        state.restored(folder)
    assert LARGE in str(refused.value)
    assert not list(folder.iterdir())


def test_a_topic_that_is_not_there_is_said(broker, monkeypatch):
    monkeypatch.setattr("eo_kafka.state.ledger.log_reader.STALL_TIMEOUT_S", 2.0)
    state = StateTopic(broker.bootstrap_servers, f"nowhere-{uuid.uuid4().hex}")
    with pytest.raises(ReadTimeout, match=state.name):
        state.read(0, 1)
