"""What a Redis server does to the example of docs/targets.md: nothing is shown in part."""

from __future__ import annotations

import os
import signal

import pyarrow as pa
import pytest
import redis

import target_places  # noqa: F401 - the examples can be imported then

# isort: split
import redis_target

from target_job import redis_job
from target_places import redis_server  # noqa: F401 - a fixture

# ruff: noqa: F811


def test_a_key_that_is_no_list_takes_neither_rows_nor_the_marker(redis_server, broker, monkeypatch):
    """Redis takes back nothing of a MULTI when a command in it fails."""
    monkeypatch.setattr("eo_kafka.sinks.insisting.APPLY_TIMEOUT_S", 1.0)
    job = redis_job(redis_server, broker.bootstrap_servers)
    redis_server.client.set(job.given["target.list"], "not a list")
    with pytest.raises(Exception, match="WRONGTYPE"):
        job.run(0)
    redis_server.client.delete(job.given["target.list"])
    job.run(0, 1)
    assert job.there() == job.expected(0, 1)


def test_a_server_without_memory_shows_all_or_nothing(redis_server):
    target = redis_target.RedisTarget({"url": redis_server.url, "list": "full"})
    target.stage("eo-a-1", 0, pa.table({"id": range(1000)}))
    memory = redis_server.client.info("memory")["used_memory"]
    redis_server.client.config_set("maxmemory", memory - 1000)
    with pytest.raises(redis.ResponseError, match="maxmemory"):
        target.apply("eo-a", {"eo-a-1": 1}, None, b"after")
    assert (target.marker("eo-a"), redis_server.client.llen("full")) == (None, 0)
    redis_server.client.config_set("maxmemory", 0)
    target.apply("eo-a", {"eo-a-1": 1}, None, b"after")
    assert redis_server.client.llen("full") == 1000


def test_a_server_that_hangs_does_not_hang_the_query(redis_server, monkeypatch):
    monkeypatch.setattr(redis_target, "TIMEOUT_S", 1.0)
    target = redis_target.RedisTarget({"url": redis_server.url, "list": "l"})
    assert target.marker("eo-a") is None
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(redis.TimeoutError):
            target.marker("eo-a")
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:s3cr3t@h:6379/0",
        "redis://h:6379/0?password=s3cr3t",
        "rediss://h:6379/0?password=x@s3cr3t",
    ],
)
def test_the_place_shows_no_password(url):
    place = redis_target.RedisTarget({"url": url, "list": "orders"}).place
    assert place == "list 'orders' of Redis h:6379/0"
