"""The example of maps, as its reader runs it: what it prints, and its exit code."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

pytestmark = pytest.mark.full
ORDERS = Path(__file__).parents[2] / "examples" / "orders" / "orders.py"


def run(*where: str) -> str:
    prefix = f"j-{uuid.uuid4().hex[:6]}-"  # of a map with a journal, where that matters
    done = subprocess.run(
        [sys.executable, str(ORDERS), "--orders", "400", "--prefix", prefix, *where],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_orders_are_counted_once_from_topics_into_a_topic(broker) -> None:
    said = run("--bootstrap-servers", broker.bootstrap_servers)
    # 180 orders a minute, so 400 are of three minutes, and of seven customers in each
    assert "400 orders, 21 totals: right" in said
    assert "'region': 'north'" in said


def test_orders_are_counted_once_from_imaps_into_an_imap(grid) -> None:
    said = run("--backend", "hazelcast", "--members", ",".join(grid.addresses))
    assert "400 orders, 21 totals: right" in said
