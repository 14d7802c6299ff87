"""What the tests of formats share."""

from __future__ import annotations

import pytest

from eo_kafka.formats.avro import columns as avro_columns


@pytest.fixture(params=[False, True], ids=["plain", "compiled"])
def loops(request, monkeypatch) -> None:
    if request.param:
        avro_columns._warm_up()
    monkeypatch.setattr(avro_columns, "is_ready", lambda _: request.param)
