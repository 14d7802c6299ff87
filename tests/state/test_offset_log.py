"""What an entry of Spark's offset log says."""

from __future__ import annotations

from pathlib import Path

import pytest

from eo_kafka.errors import CheckpointError, CheckpointUnreadable
from eo_kafka.state.snapshots.checkpoint import LocalCheckpoint
from eo_kafka.state.snapshots.offset_log import NOT_PLANNED, PlannedBatch, parse, planned_batch

POLICY = '{"conf":{"spark.sql.streaming.multipleWatermarkPolicy":"%s"}}'


def checkpoint(root: Path, content: bytes | None) -> LocalCheckpoint:
    if content is not None:
        (root / "offsets").mkdir()
        (root / "offsets" / "7").write_bytes(content)
    return LocalCheckpoint(str(root), root)


def test_a_batch_has_its_sources_ends_a_watermark_and_settings(tmp_path: Path) -> None:
    header = (
        '{"batchWatermarkMs":5,"batchTimestampMs":9,"conf":{"spark.sql.shuffle.partitions":"7"}}'
    )
    text = f'v1\n{header}\n{{"t":{{"0":5}}}}\n-\n{{"u":{{"0":"é"}}}}'

    found = planned_batch(checkpoint(tmp_path, text.encode()), 7)

    ends = ('{"t":{"0":5}}', "-", '{"u":{"0":"é"}}')
    assert found == PlannedBatch(ends, 5, {"spark.sql.shuffle.partitions": "7"}, 9)
    assert found.state_partitions == 7


@pytest.mark.parametrize("content", [None, b"\xff\xfe\xfa"])
def test_offsets_that_cannot_be_read_are_said(tmp_path: Path, content: bytes | None) -> None:
    with pytest.raises(CheckpointError, match="offsets of batch 7.*as Spark sees it") as told:
        planned_batch(checkpoint(tmp_path, content), 7)
    assert not told.value.retriable


def test_offsets_that_cannot_be_read_for_a_moment_or_are_gone_may_come_back(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, b"v1")
    planned_batch(folder, 7)
    (tmp_path / "offsets" / "7").unlink()
    with pytest.raises(CheckpointUnreadable, match="is gone, or a part of it.* no 'offsets/7' now"):
        planned_batch(folder, 7)
    (tmp_path / "offsets" / "7").mkdir()
    for missing in (None, NOT_PLANNED):
        with pytest.raises(CheckpointUnreadable, match="'offsets/7' .* cannot be read now .*21"):
            planned_batch(folder, 7, missing)


def test_what_spark_has_purged_may_be_missing(tmp_path: Path) -> None:
    assert planned_batch(checkpoint(tmp_path, None), 7, NOT_PLANNED) is NOT_PLANNED


@pytest.mark.parametrize(
    "content",
    [
        'v1\n{"conf":{}}\n{}',
        'v1\n{"conf":{"spark.sql.shuffle.partitions":"x"}}\n{}',
        'v1\n{"conf":7,"batchWatermarkMs":"x"}\n{}',
        "v1\n{\n{}",
        "v1\n[]\n{}",
    ],
)
def test_of_a_header_of_another_form_nothing_is_known(content: str) -> None:
    found = parse(content)
    assert (found.ends, found.watermark_ms, found.state_partitions) == (("{}",), None, None)


def test_a_file_without_sources_has_none() -> None:
    assert parse("v1") == parse("") == NOT_PLANNED


@pytest.mark.parametrize(("policy", "least"), [("min", True), ("max", False)])
def test_of_several_watermarks_the_least_counts_by_default(policy: str, least: bool) -> None:
    assert parse(f"v1\n{POLICY % policy}").takes_least_watermark is least
    assert NOT_PLANNED.takes_least_watermark
