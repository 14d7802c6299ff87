"""What a query is told whose ledger is another one's."""

from __future__ import annotations

import pytest

from eo_kafka.errors import ForeignLedger
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.state.ledger.job import of_job
from eo_kafka.state.ledger.owner import check_owner


def test_the_way_that_keeps_a_snapshot_is_named_before_those_that_give_it_up() -> None:
    options = SinkOptions.parse(of_job("firsts", {"kafka.bootstrap.servers": "h:1"}), True)
    with pytest.raises(ForeignLedger, match="delete the new checkpoint and restore") as told:
        check_owner(options, "old", "new")
    ways = ("snapshots restore firsts CHECKPOINT", "new 'jobName'", "'onReset'", "job reset firsts")
    places = [str(told.value).index(way) for way in ways]
    assert places == sorted(places)
