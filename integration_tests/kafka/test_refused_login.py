"""Brokers that refuse a login which worked: for a while, as hosted ones do now and then, or for
good. A login that never worked is told at once: test_security.py."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import pytest

from conftest import topic_maker
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.settings.options import SourceOptions
from harness import assert_exactly_once, make_copy, wait_until
from secure_broker import PASSWORD, SOON, USER, SecureCopy

pytest_plugins = ["secure_broker"]

VALUES = [b"%d" % number for number in range(600)]


@pytest.fixture
def job(secure, tmp_path) -> SecureCopy:
    servers = secure.bootstrap_servers
    given = {"kind": SecureCopy, "per_batch": 15, "client": secure.sasl(SOON)}
    return make_copy(servers, topic_maker(servers), tmp_path, VALUES, **given)


@contextmanager
def refused(secure) -> Iterator[None]:
    """Nobody is let in, and who is in is sent out within two seconds."""
    secure.add_user(USER, "another")
    try:
        yield
    finally:
        secure.add_user(USER, PASSWORD)


@pytest.mark.parametrize(
    "sink", [{}, pytest.param({"commit": "idempotent"}, marks=pytest.mark.full)], ids=str
)
def test_a_job_outlasts_it(secure, job, spark, sink):
    job.sink_extra = sink
    with job.running(spark) as query:
        wait_until(lambda: len(query.recentProgress) > 3, "some batches", 150)
        with refused(secure):
            time.sleep(6)
            during = len(query.recentProgress)
        assert query.awaitTermination(300)
        assert len(query.recentProgress) > during, "the login was not refused in time"
    assert_exactly_once(job, VALUES)


def test_a_source_waits_for_it(secure):
    topic = topic_maker(secure.bootstrap_servers)("t", partitions=2)
    given = {f"kafka.{name}": value for name, value in secure.sasl(SOON).items()}
    lookup = OffsetLookup(SourceOptions.parse({**given, "subscribe": topic}, streaming=True))
    partitions = lookup.partitions()
    with refused(secure):
        time.sleep(3)  # it is sent out by now
        let_in = Timer(3, secure.add_user, (USER, PASSWORD))
        let_in.start()
        assert lookup.latest(partitions) == dict.fromkeys(partitions, 0)
        let_in.join()


@pytest.mark.full
def test_one_that_is_refused_for_good_is_told(secure, job, spark):
    with job.running(spark) as query:
        wait_until(lambda: len(query.recentProgress) > 3, "some batches", 150)
        with refused(secure):
            wait_until(lambda: not query.isActive, "it stops", 150)
        sentence = str(query.exception())
    assert re.search("does not let this principal in|did not let this principal in", sentence)
    assert "uthentication failed" in sentence
    assert PASSWORD not in sentence
    job.run(spark)
    assert_exactly_once(job, VALUES)
