"""When a decision may go without a snapshot."""

from __future__ import annotations

import io
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StructType

from eo_kafka.connectors.foreach_batch import of_foreach_batch
from eo_kafka.connectors.kafka_sink import KafkaStreamWriter
from eo_kafka.core.transaction import Decision, DecisionState
from eo_kafka.errors import CheckpointError, OptionsError, SnapshotFailed
from eo_kafka.sinks.batches.committable import TaskReport
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import snapshot_interval
from eo_kafka.sinks.protocol.snapshot_interval import (
    BATCHES_MAX,
    STARTS_MAX,
    is_ambiguous,
    is_due,
)
from eo_kafka.state.ledger.blob_names import Blob, SnapshotHead
from eo_kafka.state.ledger.ledger import DECISIONS_KEPT, Ledger
from eo_kafka.state.snapshots.offset_log import WATERMARK_POLICY, PlannedBatch
from eo_kafka.state.snapshots.restoring import _check_can_go_on

GIVEN = {
    "kafka.bootstrap.servers": "localhost:9092",
    "topic": "out",
    "jobName": "job",
    "snapshots": "true",
}
QUERY = "a query"
RUN = "a run of it"


def options(interval: str = "1 minute") -> SinkOptions:
    return SinkOptions.parse({**GIVEN, "snapshotInterval": interval}, streaming=True)


def line(offset: int, topic: str = "t") -> str:
    return json.dumps({topic: {"0": offset}})


def decision(batch: int, lines: Sequence[str], state: DecisionState = DecisionState.DONE):
    return Decision("main", batch, 0, state, batch, 5, 1, 0, (), tuple(lines))


def ledger(head: int | None, batches: Mapping[int, Sequence[str]], age_ms: int = 0) -> Ledger:
    made = int(time.time() * 1000) - age_ms
    blob = Blob("0" * 40, 1)
    snapshot = None
    if head is not None:
        snapshot = SnapshotHead(head, 1, QUERY, blob, 0, 1, 1, 1, made, run=RUN)
    decisions = {("main", batch): decision(batch, lines) for batch, lines in batches.items()}
    return Ledger(owner=QUERY, decisions=decisions, snapshot=snapshot)


def report(batch: int, query: str = QUERY, run: str = RUN) -> TaskReport:
    return TaskReport(0, batch, 0, False, query, 1, 5, 0, 0, "", None, run=run)


class Files:
    """A checkpoint of a few files."""

    def __init__(self, files: Mapping[str, bytes], url: str = "/checkpoint") -> None:
        self.url = url
        self._files = files

    def paths(self) -> list[str]:
        return sorted(self._files)

    def open(self, path: str) -> io.BytesIO:
        return io.BytesIO(self._files[path])


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_interval, "_known", {})


THREE = {3: [line(30)], 4: [line(40)], 5: [line(50)]}


def due(found: Ledger, batch: int = 6, lines: Sequence[str] = (line(60),), **extra: object) -> bool:
    query, run = str(extra.get("query", QUERY)), str(extra.get("run", RUN))
    given = options(str(extra.get("interval", "1 day")))
    files = extra.get("files", Files({}))
    planned = PlannedBatch(tuple(lines), *extra.get("planned", ()))
    return is_due(given, found, report(batch, query, run), planned, files)


def test_within_the_interval_no_snapshot_is_due() -> None:
    assert not due(ledger(3, THREE))


@pytest.mark.parametrize(
    ("head", "batches", "age_ms", "extra"),
    [
        (3, THREE, 0, {"interval": "0"}),
        (3, THREE, 86_400_001, {}),
        (3, THREE, -3_600_000, {}),  # the clock was set back
        (None, THREE, 0, {}),
        (3, THREE, 0, {"query": "another"}),
        (3, THREE, 0, {"run": "another"}),  # which may be of other code
        (0, {batch: [line(batch)] for batch in range(6)}, 0, {}),  # its start is not recorded
        (3, {3: [line(30)], 5: [line(50)]}, 0, {}),
        (3, {3: [line(30)], 4: [line(40)]}, 0, {}),
        (3, {**THREE, 4: []}, 0, {}),
        (6, {**THREE, 6: [line(60)]}, 0, {}),  # the batch is run again, under a new round
    ],
)
def test_otherwise_one_is(
    head: int | None, batches: Mapping[int, Sequence[str]], age_ms: int, extra: dict[str, str]
) -> None:
    assert due(ledger(head, batches, age_ms), **extra)


def test_batches_between_snapshots_have_a_limit() -> None:
    many = {batch: [line(batch)] for batch in range(1, BATCHES_MAX + 1)}

    assert not due(ledger(1, many), BATCHES_MAX + 1, [line(BATCHES_MAX + 1)])
    many[BATCHES_MAX + 1] = [line(BATCHES_MAX + 1)]
    assert due(ledger(1, many), BATCHES_MAX + 2, [line(BATCHES_MAX + 2)])


A, B = "a", "b"


@pytest.mark.parametrize(
    ("recorded", "mine"),
    [
        ([[line(1)]], [line(1)]),  # a no-data batch
        ([[line(1, A), line(1, B)]], [line(2, A), line(1, B)]),  # one source had nothing to read
        ([[line(1)]], [line(2), line(2)]),
        ([[line(1), line(1)]], [line(2), line(3)]),  # two sources at one place, then at two
        # One reads the topic twice as fast: its batch 1 started where the other's batch 2 did.
        ([[line(1), line(2)], [line(2), line(4)]], [line(3), line(6)]),
        ([[line(1)], [line(2)], [line(1)]], [line(3)]),  # it went back, and on to somewhere else
        ([[line(1)]], [json.dumps({"t": {"0": 2, "1": 5}})]),  # a new partition
        ([[json.dumps({"t": {"0": 2, "1": 5}})]], [line(3)]),  # one is gone
        ([[line(1)]], ['{"t":{"0":2}}']),  # as Spark's own source writes it
        ([[line(1)]], ['{"offset":200,"timestamp":2000}']),
        ([[line(1)]], ["-"]),
        ([["one:" + line(1)]], ["other:" + line(2)]),  # another source came in its place
        ([["one:" + line(1)]], ["one:" + line(2), "other:" + line(2, B)]),
    ],
)
def test_batches_that_a_source_could_not_tell_apart(
    recorded: list[list[str]], mine: list[str]
) -> None:
    assert is_ambiguous(recorded, mine)


@pytest.mark.parametrize(
    ("recorded", "mine"),
    [
        ([[line(1)], [line(2)]], [line(3)]),
        ([[line(1), line(1)]], [line(2), line(2)]),  # a self-join that reads in step
        ([[line(1, A), line(7, B)], [line(2, A), line(9, B)]], [line(3, A), line(10, B)]),
        # With names, in whatever order Spark wrote them
        ([["a:" + line(1, A), "b:" + line(7, B)]], ["b:" + line(9, B), "a:" + line(2, A)]),
    ],
)
def test_batches_that_it_can(recorded: list[list[str]], mine: list[str]) -> None:
    assert not is_ambiguous(recorded, mine)


def described(name: str, **more: object) -> bytes:
    fields = {"operatorInfo": {"operatorId": 0, "operatorName": name}, "stateStoreInfo": []}
    return b"v1\n" + json.dumps({**fields, **more}).encode()


def time_mode(mode: str, *states: str) -> bytes:
    states = [{"stateName": name} for name in ("window", *states)]
    properties = json.dumps({"timeMode": mode, "outputMode": "Append", "stateVariables": states})
    return described("transformWithStateInPySparkExec", operatorPropertiesJson=properties)


V1, V2 = "state/0/_metadata/metadata", "state/1/_metadata/v2/4"


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({V1: described("applyInPandasWithState")}, "applyInPandasWithState"),
        ({V1: described("somethingNew")}, "somethingNew"),
        ({V1: described("dedupe"), V2: time_mode("ProcessingTime")}, "transformWithState"),
        (
            {V2: time_mode("EventTime", "eo_kafka_watermark_not_repeatable")},
            "transformWithStateInPySparkExec",
        ),
        ({V1: b"v3\nnonsense"}, "not known here"),
    ],
)
def test_state_that_may_depend_on_the_clock_makes_each_batch_take_one(
    files: dict[str, bytes], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert due(ledger(3, THREE), files=Files(files))

    assert [why in message and "has no effect" in message for message in caplog.messages] == [True]


def test_a_start_with_another_watermark_policy_is_looked_at_anew() -> None:
    """Within one process: a notebook, a driver that starts the query anew after an error."""
    marked = time_mode("EventTime", "eo_kafka_watermark_not_repeatable")
    others = ledger(3, THREE)
    others.snapshot = replace(others.snapshot, run="a second run")

    assert not due(ledger(3, THREE), files=Files({V2: time_mode("EventTime")}))
    assert due(others, run="a second run", files=Files({V2: marked}))
    assert not due(ledger(3, THREE), files=Files({})), "the first run's is known"


def test_what_is_remembered_of_starts_does_not_grow_for_ever() -> None:
    for number in range(2 * STARTS_MAX):
        found = ledger(3, THREE)
        found.snapshot = replace(found.snapshot, run=f"{number}")
        assert not due(found, run=f"{number}")

    assert len(snapshot_interval._known) == STARTS_MAX
    assert f"{2 * STARTS_MAX - 1}" in [*snapshot_interval._known][-1]


def test_state_that_goes_by_records_and_watermarks_does_not() -> None:
    files = {V1: described("stateStoreSave"), V2: time_mode("EventTime")}

    assert not due(ledger(3, THREE), files=Files(files))


def test_a_source_that_would_not_follow_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    mixed = {batch: [line(batch), '{"logOffset":1}'] for batch in (3, 4, 5)}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert due(ledger(3, mixed), lines=[line(6), '{"logOffset":2}'])

    (message,) = caplog.messages
    assert "does not repeat recorded batches" in message


def test_a_checkpoint_that_cannot_be_read_decides_nothing() -> None:
    class Gone(Files):
        def paths(self) -> list[str]:
            raise OSError("gone")

    with pytest.raises(SnapshotFailed, match="could not be read: gone"):
        due(ledger(3, THREE), files=Gone({}))


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5 minutes", 300_000),
        ("30 s", 30_000),
        ("500ms", 500),
        ("interval 1 minute 30 seconds", 90_000),
        ("1 HOUR", 3_600_000),
        ("2d", 172_800_000),
        ("0", 0),
        ("0 seconds", 0),
    ],
)
def test_times_are_written_as_sparks_triggers_are(text: str, ms: int) -> None:
    assert options(text).snapshot_interval_ms == ms


@pytest.mark.parametrize("text", ["5", "-1 s", "1.5 s", "soon", "5 parsecs", "", "1 s or so"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(OptionsError, match="'snapshotInterval' must be a time like '5 minutes'"):
        options(text)


def test_an_interval_needs_snapshots() -> None:
    with pytest.raises(OptionsError, match="option 'snapshots' is not true"):
        SinkOptions.parse({**GIVEN, "snapshots": "false", "snapshotInterval": "5 s"}, True)


def test_the_ledger_keeps_what_a_restore_repeats() -> None:
    batches = range(DECISIONS_KEPT * 2)
    found = ledger(7, {batch: [line(batch)] for batch in batches})

    assert [key for key, _ in found.tombstones("main")] == [
        f"decision/main/{batch}/0".encode() for batch in range(7)
    ]
    assert len(found.tombstones("main", keep=0)) == len(batches), "a reset forgets all"
    found.snapshot = None
    assert len(found.tombstones("main")) == DECISIONS_KEPT


def test_batches_behind_a_gap_are_forgotten_again() -> None:
    """Snapshots were switched off: no restore of the old one can pass the gap."""
    kept = {batch: [line(batch)] for batch in (7, 8)}
    off = range(9, 9 + DECISIONS_KEPT * 2)
    found = ledger(7, {**kept, **{batch: [] for batch in off}})

    gone = {key for key, _ in found.tombstones("main")}

    assert gone == {f"decision/main/{batch}/0".encode() for batch in off[:DECISIONS_KEPT]}
    assert [one.batch for one in found.since_snapshot("main")] == [7, 8]


def test_what_is_recorded_since_the_snapshot_ends_at_a_gap() -> None:
    found = ledger(3, {2: [line(2)], **THREE, 7: [line(70)]})

    assert [one.batch for one in found.since_snapshot("main")] == [3, 4, 5]
    assert found.since_snapshot("other") == []
    found.decisions["main", 4] = decision(4, [])
    assert [one.batch for one in found.since_snapshot("main")] == [3]
    found.snapshot = None
    assert found.since_snapshot("main") == []


def test_a_restore_over_a_gap_is_refused() -> None:
    _check_can_go_on(whole := ledger(3, THREE), whole.snapshot, options())
    torn = ledger(3, {**THREE, 7: [line(70)]})

    with pytest.raises(CheckpointError, match=r"batch 3, and batches up to 7 .* from 6 on"):
        _check_can_go_on(torn, torn.snapshot, options())


TWO = {batch: [line(10 * batch, A), line(10 * batch, B)] for batch in (3, 4, 5)}
MAX = {WATERMARK_POLICY: "max"}


@pytest.mark.parametrize(
    ("batches", "operator", "at_snapshot", "planned", "expected"),
    [
        (TWO, "stateStoreSave", 100, (100,), False),  # it did not move
        (TWO, "stateStoreSave", 100, (200,), True),
        (TWO, "stateStoreSave", None, (200,), True),
        (TWO, "stateStoreSave", None, (None,), True),  # nothing is known
        (TWO, "stateStoreSave", 100, (200, MAX), False),
        (TWO, None, 100, (200,), False),  # a query without state
        (THREE, "stateStoreSave", 100, (200,), False),  # one source, one watermark
        (THREE, "symmetricHashJoin", 100, (200,), True),  # of one source with itself
    ],
)
def test_where_a_replay_could_have_an_older_watermark_one_is_due(
    batches: Mapping[int, Sequence[str]],
    operator: str | None,
    at_snapshot: int | None,
    planned: tuple[object, ...],
    expected: bool,
) -> None:
    found = ledger(3, batches)
    found.decisions["main", 3] = replace(found.decisions["main", 3], watermark_ms=at_snapshot)
    files = Files({"state/0/_metadata/metadata": described(operator)} if operator else {})
    lines = [line(60, topic) for topic in (A, B)] if batches is TWO else [line(60)]
    assert due(found, lines=lines, planned=planned, files=files) is expected


def test_a_task_says_which_start_of_the_query_it_is_of() -> None:
    """By Spark's job group; where a function of foreachBatch may have set one, as it was told."""
    context = SimpleNamespace(
        **dict.fromkeys(("partitionId", "taskAttemptId", "attemptNumber"), lambda: 0),
        getLocalProperty={
            "spark.jobGroup.id": "a run",
            "sql.streaming.queryId": QUERY,
            "streaming.sql.batchId": "5",
        }.get,
    )
    schema = StructType().add("value", "string")
    assert KafkaStreamWriter(GIVEN, schema, False)._task(context).run == "a run"
    given = {**GIVEN, "foreachbatchid": "5 told"}
    made = of_foreach_batch(given, schema, False)
    assert (made._batch, made._stream._task(context).run) == (5, "told")
