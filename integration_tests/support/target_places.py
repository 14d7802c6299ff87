"""Redis and Delta tables for the tests of targets of one's own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import redis
from deltalake import DeltaTable

from eo_kafka.broker.settings import free_port
from eo_kafka.testing.processes import wait_until

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "examples" / "targets"))  # as an application's own modules
REDIS, DELTA = "redis_target:RedisTarget", "delta_target:DeltaTarget"
SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])


class RedisServer:
    """A real one, with the durability that the example asks for; the rest as Redis has it."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.client = redis.Redis.from_url(self.url)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("no redis-server here (Debian's package redis-server)")
        words = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)]
        words += ["--appendonly", "yes", "--appendfsync", "always", "--loglevel", "warning"]
        self._process = subprocess.Popen([program, *words])
        wait_until(self._answers, "Redis answers")

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was not started"
        return self._process.pid

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False


@pytest.fixture
def redis_server(tmp_path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.kill()


def delta_rows(path: str) -> list[tuple[object, ...]]:
    """What readers see."""
    return [tuple(row.values()) for row in DeltaTable(path).to_pyarrow_table().to_pylist()]
