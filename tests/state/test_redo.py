"""An older checkpoint, brought to where the ledger is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from eo_kafka.core.transaction import Begun
from eo_kafka.errors import CheckpointError
from eo_kafka.state.snapshots.checkpoint import LocalCheckpoint
from eo_kafka.state.snapshots.redo import can_be_planned, plan_again, redo

WRITTEN = {batch: [json.dumps({"in": {"0": 10 * batch + 10}})] for batch in range(3, 8)}
HEADER = 'v1\n{"batchWatermarkMs":5}'


def checkpoint(folder: Path, planned: Mapping[int, str], committed: int) -> LocalCheckpoint:
    """One whose batches up to `committed` are committed, and the `planned` ones are as given."""
    (folder / "metadata").write_text('{"id":"q"}')
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    for batch, line in planned.items():
        (folder / "offsets" / str(batch)).write_text(f"{HEADER}\n{line}")
        (folder / "offsets" / f".{batch}.crc").write_text("Hadoop's")
        if batch <= committed:
            (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":7}')
    return LocalCheckpoint(str(folder), folder)


def logs(folder: Path) -> dict[str, str]:
    found = (path for path in folder.glob("*/*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


@pytest.mark.parametrize("newest", [3, 5, 6])
def test_what_the_checkpoint_lacks_or_holds_otherwise_is_written_as_it_was(tmp_path, newest):
    planned = {batch: WRITTEN[batch][0] for batch in range(3, newest)}
    other = '{"in":{"0":999}}'  # what came when it was run again, refused by the sink
    found = checkpoint(tmp_path, {**planned, newest: other}, newest - 1)
    assert redo(found, WRITTEN, 7) == list(range(newest, 8))
    after = logs(tmp_path)
    assert {name for name in after if not name.startswith("offsets/.")} == {
        f"{folder}/{batch}" for folder in ("offsets", "commits") for batch in range(3, 8)
    }
    assert f"offsets/.{newest}.crc" not in after, "a checksum of other content"
    for batch, lines in WRITTEN.items():
        assert after[f"offsets/{batch}"] == "\n".join([HEADER, *lines])
    assert redo(found, WRITTEN, 7) == []


def test_a_batch_that_was_planned_beyond_the_ledger_is_planned_again(tmp_path):
    planned = {batch: lines[0] for batch, lines in WRITTEN.items()}
    found = checkpoint(tmp_path, {**planned, 7: '{"in":{"0":1}}', 8: '{"in":{"0":2}}'}, 6)
    assert redo(found, WRITTEN, 7) == [7]
    assert "offsets/8" not in logs(tmp_path)


@pytest.mark.parametrize(
    "planned", [None, '{"in":{"0":1}}', WRITTEN[4][0].replace("}}", '}, "@tasks": 8}')]
)
def test_a_batch_that_was_interrupted_is_planned_as_it_was(tmp_path, planned):
    known = {3: WRITTEN[3][0]} | ({4: planned} if planned else {})
    found = checkpoint(tmp_path, known, 3)
    begun = Begun(4, f'v1\n{{"batchTimestampMs":9}}\n{WRITTEN[4][0]}')
    assert can_be_planned(begun)
    assert plan_again(found, begun)
    assert logs(tmp_path)["offsets/4"] == begun.plan
    assert "offsets/.4.crc" not in logs(tmp_path)
    assert not plan_again(found, begun)


def test_of_a_source_that_keeps_more_than_offsets_it_cannot_be():
    assert not can_be_planned(Begun(4, 'v1\n{}\n{"logOffset":1}'))


def test_one_that_died_in_the_middle_is_done_again(tmp_path, monkeypatch):
    found = checkpoint(tmp_path, {3: WRITTEN[3][0]}, 3)
    write, left = LocalCheckpoint.write, iter(range(6))

    def until(self, path, chunks):
        if next(left, None) is None:
            raise KeyboardInterrupt
        write(self, path, chunks)

    monkeypatch.setattr(LocalCheckpoint, "write", until)
    with pytest.raises(KeyboardInterrupt):
        redo(found, WRITTEN, 7)
    committed = {int(name.partition("/")[2]) for name in logs(tmp_path) if name[:7] == "commits"}
    planned = {int(name[8:]) for name in logs(tmp_path) if name[8:].isdigit()}
    assert planned == set(WRITTEN), "no batch counts as committed whose offsets are not there"
    assert committed < planned
    monkeypatch.undo()
    redo(found, WRITTEN, 7)
    assert {f"commits/{batch}" for batch in WRITTEN} <= logs(tmp_path).keys()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("state/0/0/3.delta", "keeps state, which the ledger does not hold"),
        ("commits/9", "has batch 9 as committed, and the ledger ends with batch 7"),
        ("_eo_kafka_restoring", "was not restored to its end"),
    ],
)
def test_what_it_cannot_do_is_refused_and_changes_nothing(tmp_path, path, words):
    found = checkpoint(tmp_path, {3: WRITTEN[3][0]}, 3)
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text("v1\n{}")
    before = logs(tmp_path)
    with pytest.raises(CheckpointError, match=words):
        redo(found, WRITTEN, 7)
    assert logs(tmp_path) == before


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({}, "does not say where the sources of batch 7 ended"),
        ({6: ['{"logOffset":1}'], 7: ['{"logOffset":2}']}, "a source of the query is not Kafka"),
        ({7: WRITTEN[7]}, "does not say where the sources of batch 6 ended"),
    ],
)
def test_what_the_ledger_does_not_know_is_said(tmp_path, written, words):
    with pytest.raises(CheckpointError, match=words):
        redo(checkpoint(tmp_path, {3: WRITTEN[3][0]}, 3), written, 7)


def test_what_the_ledger_knows_nothing_of_stays_as_it_is(tmp_path):
    """Batches 3 to 5 were decided by a version that recorded no offsets."""
    found = checkpoint(tmp_path, {3: WRITTEN[3][0], 4: WRITTEN[4][0]}, 4)
    assert redo(found, {batch: WRITTEN[batch] for batch in (6, 7)}, 7) == [6, 7]
    after = logs(tmp_path)
    assert after["offsets/4"] == f"{HEADER}\n{WRITTEN[4][0]}"
    assert {"offsets/6", "offsets/7", "commits/6", "commits/7"} <= after.keys()
    assert "offsets/5" not in after


def test_a_log_of_sources_with_names_is_not_written_in_the_form_of_those_without(tmp_path):
    """Nothing is there that says how this Spark writes it: of 4.2 and 4.3, version 2."""
    found = checkpoint(tmp_path, {}, -1)
    named = {batch: [f'clicks:{{"t":{{"0":{batch}}}}}'] for batch in range(2)}
    with pytest.raises(CheckpointError, match="its sources have names.*Nothing was changed"):
        redo(found, named, 1)
    assert logs(tmp_path) == {}
    assert redo(found, dict.fromkeys(range(2), WRITTEN[3]), 1) == [0, 1]
