"""A clock that is wrong for this project's code only: Hazelcast's client, which other tests of this
process use, schedules what it does by `time.time()`, and would do nothing for as long."""

from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest


def set_ahead(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Every module of ours that is loaded sees a time so much later."""
    shifted = SimpleNamespace(**vars(time))
    shifted.time = lambda: time.time() + seconds
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "eo_kafka" and vars(module).get("time") is time:
            monkeypatch.setattr(module, "time", shifted)
