"""What `eo_kafka.start` says where there is nothing to restore."""

from __future__ import annotations

import logging
from types import SimpleNamespace

from pyspark.sql.connect.proto import WriteStreamOperationStart

from eo_kafka.connectors import restored_start


def test_a_job_without_a_snapshot_says_that_its_query_begins_anew(
    tmp_path, monkeypatch, caplog
) -> None:
    monkeypatch.setattr(restored_start, "restore_missing", lambda *_: None)
    given = {"checkpointlocation": str(tmp_path / "new")}
    message = WriteStreamOperationStart(options=given, query_name="firsts", output_mode="append")
    writer = SimpleNamespace(_write_proto=message, start=lambda: "running")
    with caplog.at_level(logging.INFO, "eo_kafka"):
        assert restored_start.start(writer) == "running"
    assert [record.getMessage() for record in caplog.records] == [
        f"Job 'firsts' has no snapshot: its query begins anew in '{tmp_path}/new'."
    ]
