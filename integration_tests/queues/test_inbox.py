"""An inbox whose writer was stopped in a transaction for longer than Kafka keeps one open."""

from __future__ import annotations

import pytest

from eo_kafka.clients.kafka import control_plane, fenced
from eo_kafka.connectors.queues.reader import checked
from eo_kafka.errors import Fenced, ReadTimeout
from eo_kafka.sources.queues import inbox as inbox_module
from eo_kafka.sources.queues.id_window import IdWindows
from eo_kafka.sources.queues.inbox import Inbox
from eo_kafka.sources.queues.message import Record
from eo_kafka.sources.queues.options import QueueOptions
from eo_kafka.testing.processes import wait_until
from harness import committed_messages

LATE, NEXT = (Record(name, b"v", []) for name in (b"late", b"next"))


@pytest.fixture
def options(broker, make_topic, monkeypatch) -> QueueOptions:
    monkeypatch.setattr(inbox_module, "TRANSACTION_TIMEOUT_MS", 1500)
    monkeypatch.setattr(fenced, "_CLOCKS_MS", -60_000)  # the clock stands still meanwhile
    given = {"url": "amqp://host/shop", "queue": "orders", "inbox": f"inbox-{make_topic('in')}"}
    return checked({"kafka.bootstrap.servers": broker.bootstrap_servers, **given}).queue


def opened(options: QueueOptions) -> Inbox:
    found = Inbox(options, IdWindows((options.inbox, options.poison_topic), options.window))
    found.try_out()
    return found


@pytest.mark.parametrize("taken", [False, True])
def test_it_is_made_anew_unless_another_driver_has_it(options, monkeypatch, taken):
    first, flush = opened(options), inbox_module.flush
    control, mine = control_plane.shared(options.kafka), first._mine
    later: list[Inbox] = []

    def slept(producer, timeout_s: float) -> int:
        monkeypatch.setattr(inbox_module, "flush", flush)
        left = flush(producer, timeout_s)
        if taken:
            later.append(opened(options))
        name = mine.transactional_id
        wait_until(lambda: not control.describe_one(name).is_open(mine), "it is gone", 30)
        return left

    monkeypatch.setattr(inbox_module, "flush", slept)
    with pytest.raises(Fenced if taken else ReadTimeout):
        first.append([LATE], [])
    assert first.is_lost != taken
    (later or [opened(options)])[0].append([NEXT], [])
    found = committed_messages(options.kafka["bootstrap.servers"], options.inbox)
    assert [one.key() for one in found] == [b"next"]
