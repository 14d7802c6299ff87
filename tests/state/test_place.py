"""Where a job's checkpoint is, as its ledger keeps it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eo_kafka.errors import ForeignLedger
from eo_kafka.state.ledger import owner, records
from eo_kafka.state.ledger.job import read_job
from eo_kafka.state.ledger.ledger import fold
from eo_kafka.state.snapshots.checkpoint import open_checkpoint
from eo_kafka.state.snapshots.place import place_of


def test_one_folder_has_one_name(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in (
        "a",
        "./a/",
        f"{tmp_path}//a",
        f"file:{tmp_path}/a",
        f"file://{tmp_path}/a/",
        "b/../a",
    ):
        assert place_of(open_checkpoint(url)) == f"file:{tmp_path}/a"
    (tmp_path / "link").symlink_to("a")  # it leads to another disk after a deployment
    assert place_of(open_checkpoint("link")) == f"file:{tmp_path}/link"
    assert place_of(None) == ""


def test_a_remote_folder_too_and_without_secrets() -> None:
    at = ["s3a://b/c", "s3n://b/c", "s3://b/c", "hdfs://u:word@nn/c", "file:/\udc80"]
    found = [place_of(SimpleNamespace(location=one)) for one in at]
    assert found == [*["s3://b/c"] * 3, "hdfs://u:***@nn/c", "file:/?"]
    assert fold([(records.OWNER_KEY, records.encode_owner("q", found[-1]))]).checkpoint == found[-1]


def test_a_lost_checkpoint_is_written_back_where_it_was() -> None:
    options = read_job("j", {"kafka.bootstrap.servers": "localhost:9092"})
    mine = fold([(records.OWNER_KEY, records.encode_owner("q", "file:/one"))])
    owner.check_place(options, mine, "file:/one")
    with pytest.raises(ForeignLedger) as raised:
        owner.check_place(options, mine, "file:/two")
    for says in (
        "'file:/two' holds no query",
        "'file:/one'",
        "its own 'jobName'",
        "snapshots restore j",
    ):
        assert says in str(raised.value)
    older = fold([(records.OWNER_KEY, records.encode_owner("q"))])
    owner.check_place(options, older, "file:/two")
    given_up = fold([(records.OWNER_KEY, None)], mine)
    owner.check_place(options, given_up, "file:/two")
