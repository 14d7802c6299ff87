"""What a sink sees in the checkpoint of a query that another sink has begun."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import preflight


@pytest.mark.parametrize(
    ("noted", "told"),
    [
        ([], ""),
        ([0], ""),
        ([7, 8, 9], ""),  # Spark has deleted those before
        ([0, 5, 10, 11, 12], "between 0 and 12: "),
        ([5, 6, 8, 9], "What it sent after batch 9, the newest"),
    ],
)
def test_batches_that_sparks_sink_did_not_note_are_told_of_at_the_first_start(
    noted: Sequence[int],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """asyncProgressTrackingEnabled. The batch that is to be written is planned, and not done."""
    planned = [*noted, max(noted, default=-1) + 1]
    for log, batches in (("offsets", planned), ("commits", noted)):
        (tmp_path / log).mkdir()
        for batch in batches:
            (tmp_path / log / f"{batch}").write_text("v1\n{}\n{}")
    given = {"kafka.bootstrap.servers": "localhost:9092", "topic": "out", "jobName": "job"}
    options = replace(
        SinkOptions.parse(given, streaming=True), query_id="a query", checkpoint=str(tmp_path)
    )
    monkeypatch.setattr(preflight, "exists", lambda *_: False)

    with caplog.at_level(logging.WARNING):
        preflight._check_first_start(options, None, "a ledger")

    assert [told in message for message in caplog.messages] == [True] * bool(told)
