"""A view's writer whose write fails, as where it was stopped for longer than Kafka keeps a
transaction open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eo_kafka.clients.kafka import control_plane
from eo_kafka.errors import Fenced, OutcomeUnknown
from eo_kafka.state.snapshots import writer
from eo_kafka.state.view import Marker
from eo_kafka.state.view_writer import ViewWriter, open_view
from eo_kafka.testing.processes import wait_until


@pytest.fixture
def given(broker, make_topic, monkeypatch) -> tuple[str, dict[str, str]]:
    monkeypatch.setattr(writer, "TRANSACTION_TIMEOUT_MS", 1500)
    return f"job-{make_topic('viewed')}", {"kafka.bootstrap.servers": broker.bootstrap_servers}


def stopped(view: ViewWriter, monkeypatch, meanwhile: Callable[[], object]) -> None:
    """In its next write, when all records are acknowledged, until its transaction is gone."""
    flush, name = writer.flush, view._writer._mine.transactional_id
    control = control_plane.shared(view._settings)

    def slept(producer, timeout_s: float) -> int:
        monkeypatch.setattr(writer, "flush", flush)
        left = flush(producer, timeout_s)
        meanwhile()
        wait_until(lambda: not control.describe_one(name).is_open(view._writer._mine), "gone", 30)
        return left

    monkeypatch.setattr(writer, "flush", slept)


def test_it_goes_on_when_its_transaction_was_aborted_for_its_age(given, monkeypatch):
    view = ViewWriter(given[0], "shown", given[1])
    view.write([(b'{"k":1}', b'{"v":1}')], Marker("q", 1))
    stopped(view, monkeypatch, lambda: None)
    with pytest.raises(OutcomeUnknown, match="it was not done after 1 s"):
        view.write([(b'{"k":1}', b'{"v":2}')], Marker("q", 2))
    assert view.marker == Marker("q", 1)
    view.write([(b'{"k":1}', b'{"v":3}')], Marker("q", 3))
    found = open_view(given[0], "shown", given[1])
    assert (found.values, found.marker) == ({b'{"k":1}': b'{"v":3}'}, Marker("q", 3))


def test_it_leaves_the_view_to_who_has_taken_it_meanwhile(given, monkeypatch):
    view = ViewWriter(given[0], "shown", given[1])
    later: list[ViewWriter] = []
    stopped(view, monkeypatch, lambda: later.append(ViewWriter(given[0], "shown", given[1])))
    for batch in (1, 2):
        with pytest.raises(Fenced, match="Somebody else"):
            view.write([(b'{"k":1}', b'{"v":1}')], Marker("q", batch))
        assert view.marker is None
    later[0].write([(b'{"k":1}', b'{"v":2}')], Marker("q", 2))
    assert open_view(given[0], "shown", given[1]).marker == Marker("q", 2)


def test_it_goes_on_when_brokers_gave_no_answer_once(given, monkeypatch):
    view = ViewWriter(given[0], "shown", given[1])
    with monkeypatch.context() as silent, pytest.raises(OutcomeUnknown, match="No broker said"):
        silent.setattr(writer, "TIMEOUT_S", 0.0)
        view._writer.append([(b'{"k":1}', b'{"v":1}')])
    for batch in (1, 2):
        view.write([(b'{"k":1}', b'{"v":2}')], Marker("q", batch))
    assert open_view(given[0], "shown", given[1]).marker == Marker("q", 2)
