"""A Redis list as an exactly-once target: a batch's rows and the marker in one MULTI."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from eo_kafka.targets import MarkerChanged, NotStaged, Target

if TYPE_CHECKING:
    import pyarrow as pa
    import redis

STAGED, MARKER = "eo:staged:", "eo:marker:"


class RedisTarget(Target):
    """Appends each row as JSON. `target.url`: the server, with `appendonly yes` and `appendfsync
    always`, or what it has shown may be gone after a crash. `target.list`: the list's key."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url, self._list = options["url"], options["list"]
        self._client: redis.Redis | None = None

    @property
    def place(self) -> str:
        host = self._url.rpartition("@")[2].removeprefix("redis://")  # without a password
        return f"list '{self._list}' of Redis {host}"

    @property
    def client(self) -> redis.Redis:
        if self._client is None:
            import redis

            self._client = redis.Redis.from_url(self._url)
        return self._client

    def stage(self, name: str, number: int, rows: pa.Table) -> None:
        lines = [json.dumps(row, default=str) for row in rows.to_pylist()]
        self.client.hset(f"{STAGED}{name}", str(number), "\n".join(lines))

    def staged(self, writer: str) -> Mapping[str, int]:
        keys = [key.decode() for key in self.client.scan_iter(f"{STAGED}{writer}*", count=1000)]
        return {key.removeprefix(STAGED): self.client.hlen(key) for key in set(keys)}

    def marker(self, writer: str) -> bytes | None:
        return self.client.get(f"{MARKER}{writer}")

    def apply(
        self, writer: str, names: Mapping[str, int], before: bytes | None, after: bytes
    ) -> None:
        import redis

        marker, keys = f"{MARKER}{writer}", [f"{STAGED}{name}" for name in names]
        with self.client.pipeline() as pipeline:
            pipeline.watch(marker, *keys)  # EXEC does nothing if one of them changes from here on
            if pipeline.get(marker) != before:
                raise MarkerChanged
            lines: list[bytes] = []
            for key, chunks in zip(keys, names.values(), strict=True):
                found = pipeline.hgetall(key)
                if len(found) != chunks:
                    raise NotStaged(key)
                for number in range(chunks):
                    lines += found[str(number).encode()].split(b"\n")
            pipeline.multi()
            if lines:
                pipeline.rpush(self._list, *lines)
            pipeline.set(marker, after)
            try:
                pipeline.execute()
            except redis.WatchError:
                raise MarkerChanged from None

    def discard(self, names: Collection[str]) -> None:
        if names:
            self.client.delete(*(f"{STAGED}{name}" for name in names))
