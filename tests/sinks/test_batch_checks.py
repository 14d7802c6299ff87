"""When a batch is the one that is written, and when it only has its number."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from eo_kafka.core.digest import Digest
from eo_kafka.core.transaction import Begun, Decision, DecisionState, Identity, Participant
from eo_kafka.errors import BatchMismatch, CheckpointError, DataLossError, LedgerError
from eo_kafka.sinks.batches import batch_checks, batch_identity, source_checks
from eo_kafka.sinks.batches.batch_identity import BatchIdentity, next_batch, plans_in
from eo_kafka.sinks.batches.committable import TaskReport, Torn, WritePlan
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import one_phase, one_phase_recovery
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.state.ledger.blob_names import Blob, SnapshotHead
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.state.snapshots.checkpoint import LocalCheckpoint, open_checkpoint
from eo_kafka.state.snapshots.offset_log import PlannedBatch

FILE = '{"logOffset":4}'
MAP = '{"map":"m","cluster":"c","sequences":[1],"anchors":[""]}'


def options(**given: str) -> SinkOptions:
    settings = {"kafka.bootstrap.servers": "localhost:9092", "topic": "out", "jobName": "job"}
    return SinkOptions.parse({**settings, **given}, streaming=True)


def line(offset: int, topic: str = "in", name: str = "") -> str:
    """As Spark writes it; of a source with a `name`, that comes first."""
    return f"{name}:" * bool(name) + json.dumps({topic: {"0": offset}})


def part(partition: int, *rows: bytes) -> Participant:
    digest = digest_of(*rows)
    return Participant(partition, 0, 1, Identity(f"t{partition}", 1, 1), len(rows), digest)


def digest_of(*rows: bytes) -> str:
    digest = Digest()
    for row in rows:
        digest.add(b"out", -1, None, row)
    return digest.text()


def report(partition: int, *rows: bytes, batch: int = 5) -> TaskReport:
    return TaskReport(
        partition, batch, 0, True, "q", 2, 5, 0, len(rows), digest_of(*rows) if rows else "", None
    )


def ledger(
    ends: Sequence[str] = (),
    starts: Sequence[str] = (),
    parts: Sequence[Participant] = (),
    state: DecisionState = DecisionState.DONE,
    **fields: object,
) -> Ledger:
    at = ("main", 5, 0, state, 1, 5, 1, 0, tuple(parts), tuple(ends), tuple(starts))
    return Ledger(decisions={("main", 5): Decision(*at, target="topic 'out'", **fields)})


def now(
    ends: Sequence[str] = (),
    starts: Sequence[str] = (),
    batch: int = 5,
    watermark_ms: int | None = None,
    time_ms: int | None = None,
    folder: Path = Path("/cp"),
) -> BatchIdentity:
    checkpoint = LocalCheckpoint("file:/cp", folder) if ends else None
    planned = PlannedBatch(tuple(ends), watermark_ms, time_ms=time_ms)
    return BatchIdentity(batch, "topic 'out'", tuple(starts), planned, checkpoint)


def test_the_batch_that_a_job_starts_from_wrote_its_rows_elsewhere(caplog) -> None:
    found, again = ledger([line(9)]), [report(0, b"a")]
    seed = found.decisions["main", 5] = replace(found.decisions["main", 5], target="")
    batch_checks.check_written(options(), now([line(9)]), found, again)
    assert not caplog.records
    found.decisions["main", 4] = replace(seed, batch=4)
    batch_checks.check_written(options(), now([line(9)]), found, again)
    assert "its rows are not those that were written" in caplog.text


def test_an_empty_batch_that_comes_again_with_rows_is_told(caplog) -> None:
    """Of a query that began at `latest`, say, with an end that does not say where it begins."""
    batch_checks.check_written(options(), now([line(9)]), ledger([line(9)]), [report(0, b"a")])
    (told,) = caplog.messages
    assert "it had 0 rows, and this one has 1" in told and "other code or options" in told


def test_equal_offsets_excuse_rows_that_differ_but_not_in_silence(caplog) -> None:
    found = ledger([line(9)], [line(5)], [part(0, b"a"), part(1, b"b")])
    mine = now(['{"in":{"0":9}}'], [line(5)])
    batch_checks.check_written(options(), mine, found, [report(0, b"b", b"a")])
    assert not caplog.records, "the same rows, in other tasks"
    batch_checks.check_written(options(), mine, found, [report(0, b"b")])
    (told,) = caplog.messages
    for part_of_it in ("Batch 5", "'job'", "it had 2 rows, and this one has 1", "rand()", "copy"):
        assert part_of_it in told


@pytest.mark.parametrize(
    ("ends", "starts"),
    [
        ([line(10)], [line(5)]),  # the checkpoint is older, and more has come since
        ([line(9)], [line(4)]),
        ([line(9, "other")], [line(5)]),
        ([line(9), line(1, "more")], [line(5)]),
    ],
)
def test_other_offsets_stop_the_query_whatever_the_rows(ends, starts) -> None:
    found = ledger([line(9)], [line(5)], [part(0, b"a")])
    with pytest.raises(BatchMismatch) as raised:
        batch_checks.check_written(options(), now(ends, starts), found, [report(0, b"a")])
    sentence = str(raised.value)
    assert 'held {"in":{"0":5}} to {"in":{"0":9}}, and this one holds' in sentence
    assert "'eo-kafka job redo job CHECKPOINT --bootstrap-servers ...'" in sentence


def test_with_a_snapshot_the_way_back_is_to_restore_it() -> None:
    found = ledger([line(9)])
    blob = Blob("0" * 40, 1)
    found.snapshot = SnapshotHead(3, 1, "q", blob, 0, 1, 1, 1, 0)
    with pytest.raises(BatchMismatch, match=r"lacks option 'jobName'.*snapshots restore job"):
        batch_checks.check_written(options(), now([line(8)]), found, [])


def test_sources_that_have_names_are_known_by_them() -> None:
    one, other = line(9, name="one"), line(7, "other", name="other")
    found = ledger([one, other], [line(5, name="one")], [part(0, b"a")])
    starts = [line(5, name="one")]
    batch_checks.check_written(options(), now([other, one], starts), found, [report(0, b"b")])
    assert now([one, other]).topics_asked_for == {"in", "other"}
    for ends in (
        [line(9, name="other"), line(7, "other", name="one")],
        [one, line(8, "other", name="other")],
        [one],
    ):
        with pytest.raises(BatchMismatch, match="and this one holds"):
            batch_checks.check_written(options(), now(ends, starts), found, [report(0, b"a")])
    with pytest.raises(BatchMismatch, match="the records between are at stake"):
        mine = now([line(20, name="one"), other], [line(8, name="one"), other], batch=6)
        batch_checks.check_decided(options(), mine, found)


def test_a_source_that_came_while_batches_are_repeated_must_wait() -> None:
    found = ledger([line(9, name="one")])
    found.snapshot = SnapshotHead(3, 1, "q", Blob("0" * 40, 1), 0, 1, 1, 1, 0)
    mine = now([line(9, name="one"), line(1, "more", name="more")])
    with pytest.raises(BatchMismatch, match="start it then with the sources that it had"):
        batch_checks.check_written(options(), mine, found, [])


@pytest.mark.parametrize("lines", [[], [FILE], [line(9), FILE], [f"files:{FILE}"]])
def test_where_offsets_prove_nothing_the_rows_are_compared(lines) -> None:
    found = ledger(lines, parts=[part(0, b"a", b"b"), part(1, b"c")])
    mine = now(lines)
    batch_checks.check_written(options(), mine, found, [report(0, b"c", b"a"), report(3, b"b")])
    with pytest.raises(BatchMismatch, match="both have 3 rows, and not the same ones"):
        batch_checks.check_written(options(), mine, found, [report(0, b"a", b"b", b"x")])
    with pytest.raises(BatchMismatch, match="it had 3 rows, and this one has 0"):
        batch_checks.check_written(options(), mine, found, [report(0)])


def test_rows_that_differ_name_the_command_that_helps() -> None:
    found = ledger([FILE], parts=[part(0, b"a")])
    way = r"the same input .* computed again .*job repair job --b"
    with pytest.raises(BatchMismatch, match=rf"'file:/cp' was restored from an older .* {way}"):
        batch_checks.check_written(options(), now([FILE]), found, [report(0, b"b")])
    with pytest.raises(BatchMismatch, match=rf"'batchId' is for one write.* {way}"):
        batch_checks.check_written(options(), now(), found, [report(0, b"b")])


def test_a_source_that_has_read_nothing_yet_says_nothing_of_the_rows() -> None:
    found = ledger([line(9), "-"], parts=[part(0, b"a")])
    batch_checks.check_written(options(), now([line(9), "-"]), found, [report(0, b"b")])


def test_what_was_passed_over_must_be_known() -> None:
    with pytest.raises(LedgerError, match="the ledger no longer has it"):
        batch_checks.check_written(options(), now([line(9)]), Ledger(), [report(0)])


def test_a_file_sources_numbers_may_differ_while_the_rows_are_the_same() -> None:
    found = ledger([FILE], parts=[part(0, b"a")])
    batch_checks.check_written(options(), now(['{"logOffset":7}']), found, [report(0, b"a")])


def test_a_maps_position_proves_as_much_as_kafkas() -> None:
    found = ledger([MAP], parts=[part(0, b"a")])
    batch_checks.check_written(options(), now([MAP]), found, [report(0, b"b")])
    with pytest.raises(BatchMismatch):
        other = MAP.replace("[1]", "[2]")
        batch_checks.check_written(options(), now([other]), found, [report(0, b"a")])


def test_a_second_target_of_one_name_is_refused() -> None:
    found = ledger(parts=[part(0, b"a")])
    with pytest.raises(
        BatchMismatch, match=r"went to topic 'out'.*goes to topic 'b'.*its own 'job"
    ):
        batch_checks.check_written(options(topic="b"), now(), found, [report(0, b"a")])
    # A new name would let this very query write the batch once more; of a copy it is the way.
    found.owner, found.checkpoint = "q", "file:/a"
    ways = r"'file:/a'.*do not start it with topic 'out', give it its own 'jobName'.*Only if there "
    ways += r"is no other query: .*start it once more with the old one.*it is written twice"
    with pytest.raises(BatchMismatch, match=ways):
        batch_checks.check_written(replace(options(topic="b"), query_id="q"), now(), found, [])


def test_another_target_is_refused_before_the_fence_if_its_batch_is_written(tmp_path) -> None:
    def check(topic: str, state: DecisionState = DecisionState.DONE, **fields: object) -> None:
        mine = options(topic=topic, checkpointlocation=str(tmp_path))
        batch_checks.check_target(mine, ledger(state=state, **fields))

    folder = tmp_path / "offsets"
    folder.mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    check("b")
    (folder / "5").write_text("")
    check("out")
    for may_change in (DecisionState.DECIDED, DecisionState.VOID):
        check("b", may_change)
    check("b", accepted=True)
    with pytest.raises(BatchMismatch, match=r"went to topic 'out'.*goes to topic 'b'"):
        check("b")
    (folder / "6").write_text("")
    check("b")  # it runs a batch of its own


def test_what_a_person_has_accepted_is_not_compared() -> None:
    found = ledger([line(9)], parts=[part(0, b"a")], accepted=True)
    batch_checks.check_written(options(), now([line(8)]), found, [report(0)])


@pytest.mark.parametrize("state", list(DecisionState))
def test_a_batch_that_is_mended_must_be_the_one_that_was_decided(state) -> None:
    """A torn batch (DECIDED) is half written; one that is VOID may be any."""
    found = ledger([line(50)], state=state)
    if state is DecisionState.VOID:
        batch_checks.check_decided(options(), now([line(49)]), found)
        return
    with pytest.raises(BatchMismatch, match="another one: it held offsets up to"):
        batch_checks.check_decided(options(), now([line(49)]), found)


@pytest.mark.parametrize("start", [8, 10])
def test_a_new_batch_begins_where_the_last_one_ended(start) -> None:
    found = ledger([line(9)])
    batch_checks.check_decided(options(), now([line(20)], [line(9)], batch=6), found)
    with pytest.raises(BatchMismatch, match=r"Batch 6 of job 'job' is not decided: it begins at"):
        batch_checks.check_decided(options(), now([line(20)], [line(start)], batch=6), found)


def test_batches_that_the_ledger_lacks_stop_the_query(caplog) -> None:
    """The ledger went back, as with its broker's disk, and the checkpoint did not."""
    found, later = ledger([line(9)]), now([line(20)], [line(15)], batch=8)
    with pytest.raises(BatchMismatch, match=r"ends with batch 5, .* batches 6 to 7 the ledger"):
        batch_checks.check_decided(options(), later, found)
    with pytest.raises(BatchMismatch, match=r"of batch 6 the ledger .* above 5 .*'\.6\.crc'"):
        batch_checks.check_decided(options(), now([FILE], [FILE], batch=7), found)
    batch_checks.check_decided(options(failOnDataLoss="false"), later, found)
    assert "of batches 6 to 7 the ledger knows nothing" in caplog.text
    found.snapshot = SnapshotHead(3, 1, "q", Blob("0" * 40, 1), 0, 1, 1, 1, 0)
    with pytest.raises(BatchMismatch, match="restore the newest snapshot"):
        batch_checks.check_decided(options(), later, found)


@pytest.mark.parametrize("state", [DecisionState.DECIDED, DecisionState.VOID])
def test_no_batch_follows_one_whose_rows_are_not_there(state, caplog) -> None:
    found, later = ledger([line(9)], state=state), now([line(20)], [line(9)], batch=6)
    with pytest.raises(BatchMismatch, match=r"Batch 5 of job .* delete 'commits/5' .*'\.5\.crc'"):
        batch_checks.check_decided(options(), later, found)
    batch_checks.check_decided(options(), now(batch=6), found)  # numbered by hand
    batch_checks.check_decided(options(failOnDataLoss="false"), later, found)
    assert "To go on without it" in caplog.text
    found.snapshot = SnapshotHead(5, 1, "q", Blob("0" * 40, 1), 0, 1, 1, 1, 0)
    with pytest.raises(BatchMismatch, match="restore the newest snapshot"):
        batch_checks.check_decided(options(), later, found)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (DecisionState.DECIDED, "some of its 3 rows are not in the output"),
        (DecisionState.VOID, "none of its 3 rows is in the output"),
    ],
)
@pytest.mark.parametrize("batch", [6, 8])
def test_a_function_of_foreach_batch_passes_over_no_batch_that_is_lost(batch, state, said) -> None:
    found = ledger([line(9)], parts=[part(0, b"a", b"b"), part(1, b"c")], state=state)
    passing, later = replace(options(), may_pass_batches=True), now([line(20)], batch=batch)
    way = rf"the function.* Batch {batch} is not decided.* let the function write it.*'commits/5'"
    with pytest.raises(BatchMismatch, match=f"Batch 5 of job 'job' .*{said}.*{way}"):
        batch_checks.check_decided(passing, later, found)
    lenient = replace(passing, fail_on_data_loss=False)
    batch_checks.check_decided(lenient, later, found)
    found.decisions["main", batch + 1] = replace(found.decisions["main", 5], batch=batch + 1)
    with pytest.raises(BatchMismatch, match="Batch 5 of job"):
        batch_checks.check_decided(passing, later, found)


def test_a_task_that_commits_by_itself_looks_before_it_writes() -> None:
    with pytest.raises(BatchMismatch, match="of batch 6 the ledger knows nothing"):
        batch_checks.check_next(options(), 7, 5, "file:/cp")
    for newest, checkpoint in ((6, "file:/cp"), (7, "file:/cp"), (-1, "file:/cp"), (5, None)):
        batch_checks.check_next(options(), 7, newest, checkpoint)
    batch_checks.check_next(options(failOnDataLoss="false"), 7, 5, "file:/cp")
    batch_checks.check_next(replace(options(), may_pass_batches=True), 7, 5, "file:/cp")


def test_a_function_of_foreach_batch_need_not_write_each_batch() -> None:
    found = ledger([line(9)])
    passing = replace(options(), may_pass_batches=True)
    batch_checks.check_decided(passing, now([line(20)], [line(15)], batch=8), found)
    batch_checks.check_decided(options(), now(batch=20261126), found)  # numbered by hand
    batch_checks.check_decided(options(), now([line(20)], [line(15)], batch=8), Ledger())


def test_a_source_topic_that_was_replaced_stops_the_query(caplog) -> None:
    found = ledger([line(9)], source_ids=(("in", "A"), ("other", "O")))
    batch = now([line(12)], [line(9)], batch=6)
    source_checks.check_sources(options(), batch, found, [("in", "A"), ("new", "N")])
    with pytest.raises(DataLossError, match=r"\['in'\], as the sink's .* batch 5.* old"):
        source_checks.check_sources(options(), batch, found, [("in", "B")])
    knows = now([line(12)], ['{"in": {"0": 9}, "@id in A": {}}'], batch=6)
    with pytest.raises(DataLossError, match="The source reads the new topic from its beginning"):
        source_checks.check_sources(options(), knows, found, [("in", "B")])
    source_checks.check_sources(options(failOnDataLoss="false"), batch, found, [("in", "B")])
    unknown = ledger([line(9)], source_ids=(("in", "None"),))  # as brokers without ids have it
    source_checks.check_sources(options(), batch, unknown, [("in", "B")])
    assert "Batch 6 goes on, as the sink's" in caplog.text


def test_what_a_batch_is_stands_in_the_checkpoint(tmp_path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text('{"id":"q"}')
    for batch, offset in ((4, 5), (5, 9)):
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{line(offset)}")
    (tmp_path / "metadata").write_text('{"id":"q"}')
    mine = options(checkpointLocation=str(tmp_path))

    def found(batch: int) -> BatchIdentity:
        first = report(0, batch=batch)
        return BatchIdentity.of(mine, TaskReport(**{**vars(first), "checkpoint": str(tmp_path)}))

    assert (found(5).starts, found(5).ends) == ((line(5),), (line(9),))
    assert found(5).topics_asked_for == {"in"}
    assert found(4).starts == ()  # purged
    end = '{"in": {"0": 9, "1": 4}, "@id in A": {}, "@epochs in 2,2": {}, "@from in 5,-1": {}}'
    (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\none:{end}")
    assert found(0).starts == ('one:{"in": {"0": 5, "1": 4}, "@id in A": {}}',)
    for other in line(9), "-", '{"logOffset":3}':  # of an older version, or of other sources
        (tmp_path / "offsets" / "0").write_text(f"v1\n{{}}\n{end}\n{other}")
        assert found(0).starts == ()
    with pytest.raises(CheckpointError, match="offsets of batch 6"):
        found(6)


def check_both(again: BatchIdentity, found: Ledger, refusal: str | None) -> None:
    """What is written, and what is decided and not finished, is told apart by the same."""
    for check in (
        lambda: batch_checks.check_written(options(), again, found, [report(0, b"a")]),
        lambda: batch_checks.check_decided(options(), again, found),
    ):
        if refusal:
            with pytest.raises(BatchMismatch, match=refusal):
                check()
        else:
            check()


@pytest.mark.parametrize(
    ("before", "here", "operator", "other"),
    [
        (1000, 2000, "applyInPandasWithState", True),
        (1000, 1000, "applyInPandasWithState", False),
        (1000, 2000, "dedupe", False),
        (1000, 2000, None, False),
        (None, 2000, "applyInPandasWithState", False),  # of a ledger of before
    ],
)
def test_with_timers_a_batch_of_another_time_of_day_is_another(
    tmp_path: Path, before: int | None, here: int, operator: str | None, other: bool
) -> None:
    if operator:
        (tmp_path / "state/0/_metadata").mkdir(parents=True)
        described = {"operatorInfo": {"operatorName": operator}, "stateStoreInfo": []}
        (tmp_path / "state/0/_metadata/metadata").write_text(f"v1\n{json.dumps(described)}")
    found = ledger([line(9)], [line(5)], [part(0, b"a")], time_ms=before)
    again = now([line(9)], [line(5)], time_ms=here, folder=tmp_path)
    check_both(again, found, rf"{before} ms.*{here} ms.*{operator}" if other else None)


@pytest.mark.parametrize(
    ("before", "here", "has_state", "other"),
    [
        (190, 130, True, True),
        (190, 130, False, False),  # nothing depends on it; `job redo` writes 0
        (190, 190, True, False),
        (0, 130, True, True),
        (None, 130, True, False),  # of a ledger of before
        (190, None, True, False),  # of a Spark that writes it otherwise
    ],
)
def test_with_state_a_batch_of_another_watermark_is_another(
    tmp_path: Path, before: int | None, here: int | None, has_state: bool, other: bool
) -> None:
    if has_state:
        (tmp_path / "state/0/_metadata").mkdir(parents=True)
        (tmp_path / "state/0/_metadata/metadata").touch()
    found = ledger([line(9)], [line(5)], [part(0, b"a")], watermark_ms=before)
    again = now([line(9)], [line(5)], watermark_ms=here, folder=tmp_path)
    check_both(again, found, rf"watermark at {before} ms.*at {here} ms" if other else None)


@pytest.mark.parametrize(
    ("ends", "partitions", "following", "is_passed"),
    [
        ([9, 9, 20], [4, 8, 8], 7, True),  # Spark's repartition, as batch 6
        ([9, 9, 9, 20], [4, 8, 2, 2], 8, True),
        ([9, 9, 20], [4, 4, 4], 6, False),  # batch 6 read nothing, and gave closed windows out
        ([9, 9, 20], [None, None, None], 6, False),
        ([9, 9], [4, 8], 6, False),  # batch 6 is about to run, and reads nothing
        ([9, 12, 20], [4, 8, 8], 6, False),
        ([9], [4], 6, False),
    ],
)
def test_repartitions_of_state_are_passed(
    tmp_path: Path, ends: list[int], partitions: list[int | None], following: int, is_passed: bool
) -> None:
    plans = planned_by_spark(tmp_path, ends, partitions)
    told = options(commit="idempotent", checkpointlocation=str(tmp_path))
    last = 4 + len(ends)
    found = ledger([line(9)])
    assert next_batch(told, found, plans) == following
    begun = one_phase_recovery.about_to_run(told, found, plans)
    assert (begun.batch if begun else 6) == following
    seen = batch_identity.planned(told, found, plans)
    one_phase_recovery.check_begins(told, found, plans)
    here = now([line(30)], [line(9)], folder=tmp_path, batch=last)
    if is_passed:
        batch_checks.check_next(told, last, 5, "file:/cp", seen)
        batch_checks.check_decided(told, here, found)
    elif last > 6:
        with pytest.raises(BatchMismatch, match="of batch 6 the ledger knows nothing"):
            batch_checks.check_next(told, last, 5, "file:/cp", seen)
        with pytest.raises(BatchMismatch, match="of batch 6 the ledger knows nothing"):
            batch_checks.check_decided(told, here, found)
    found.begun = begun
    assert found.interrupted("main") == begun


def planned_by_spark(
    checkpoint: Path, ends: list[int], partitions: list[int | None]
) -> batch_identity.Plans:
    """Batches from 5 on, with their ends and the number of the state's partitions."""
    (checkpoint / "offsets").mkdir()
    (checkpoint / "metadata").write_text('{"id":"q"}')
    for batch, (end, count) in enumerate(zip(ends, partitions, strict=True), 5):
        conf = {"conf": {"spark.sql.shuffle.partitions": f"{count}"}} if count else {}
        (checkpoint / f"offsets/{batch}").write_text(f"v1\n{json.dumps(conf)}\n{line(end)}")
    return plans_in(open_checkpoint(str(checkpoint)))


@pytest.mark.parametrize(("commit", "is_refused"), [("idempotent", True), ("two-phase", False)])
def test_what_an_older_checkpoint_reads_behind_a_repartition_is_not_written_by_tasks(
    tmp_path: Path, commit: str, is_refused: bool
) -> None:
    """Batch 5, which the ledger has up to 9, was a repartition in this checkpoint, which stood at
    4: batch 6 reads from there. Where no task commits by itself, the commit says so."""
    plans = planned_by_spark(tmp_path, [4, 9], [8, 8])
    told = options(commit=commit, checkpointlocation=str(tmp_path))
    found = ledger([line(9)])
    if not is_refused:
        one_phase_recovery.check_begins(told, found, plans)
    else:
        with pytest.raises(BatchMismatch, match=r"Batch 6 .*it begins at .*4.*ended at .*9"):
            one_phase_recovery.check_begins(told, found, plans)
    here = now([line(9)], [line(4)], folder=tmp_path, batch=6)
    with pytest.raises(BatchMismatch, match="it begins at"):
        batch_checks.check_decided(told, here, found)


def test_beside_another_batch_that_is_partly_committed_none_is_written() -> None:
    """Its checkpoint is one of before a repartition, and what batch 7 read may come as batch 6."""
    torn = Torn(replace(ledger([line(9)]).decisions["main", 5], batch=7), (), decided=False)
    plan = WritePlan(4, Identity("c", 1, 1), "q", 3, 10, {}, torn=torn)
    told = options(commit="idempotent")
    rows = iter([pa.record_batch({"value": [b"1"]})])
    with pytest.raises(BatchMismatch, match=r"Batch 7 .* had committed rows.* batch 6 is to be"):
        one_phase.write(told, plan, TaskIdentity("q", 6, 0, 1, None), rows)
    batch_checks.check_torn(told, 7, torn)
    batch_checks.check_torn(told, 6, replace(torn, decided=True))
    passing = replace(told, may_pass_batches=True)
    with pytest.raises(BatchMismatch, match="batch 6 .* the checkpoint is another one"):
        batch_checks.check_torn(passing, 6, torn)
    with pytest.raises(BatchMismatch, match=r"not write batch 7 .*'commits/7' .*runs batch 7"):
        batch_checks.check_torn(passing, 8, torn)


def test_what_a_later_batch_was_planned_with_stays_while_it_may_be_torn() -> None:
    found = ledger([line(9)])
    found.begun, mine = Begun(7, "v1\n{}\n" + line(20)), Begun(6, "v1\n{}\n" + line(30))
    assert one_phase_recovery.begins(found, mine, may_be_torn=True) == []
    assert len(one_phase_recovery.begins(found, mine, may_be_torn=False)) == 1


def test_a_source_that_got_another_name_is_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    before = [line(400, name="orders"), line(7, "other", name="other")]
    renamed = now([line(500, name="orders_v2"), before[1]], before, batch=6)
    with pytest.raises(
        BatchMismatch, match=r"'orders' .* gone, and source 'orders_v2' .*\"in\":\{\"0\":400\}"
    ):
        batch_checks.check_decided(options(), renamed, ledger(before))
    batch_checks.check_decided(options(failOnDataLoss="false"), renamed, ledger(before))
    assert "source 'orders_v2' has come" in caplog.text


@pytest.mark.parametrize(
    "ends",
    [
        [line(500, name="orders")],
        [line(500, name="orders"), line(5, name="more")],  # reads the same topic beside it
        [line(5, "another", name="more")],  # one went, and another one came
        [],
        [line(500)],  # sources without names are known by their places
    ],
)
def test_sources_may_come_and_go(ends: list[str]) -> None:
    source_checks.check_names(options(), now(ends, [line(400, name="orders")], batch=6))
    source_checks.check_names(options(), now([line(500, name="orders")], ends, batch=6))
