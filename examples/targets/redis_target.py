"""A Redis list as an exactly-once target: a script shows a batch's rows, and sets the marker."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from eo_kafka.targets import MarkerChanged, NotStaged, Target

if TYPE_CHECKING:
    import pyarrow as pa
    import redis

STAGED, MARKER = "eo:staged:", "eo:marker:"
TIMEOUT_S = 60.0
# Nothing else runs meanwhile. Rows first: Redis takes nothing back, and if the list is none, or
# memory is full, its first RPUSH ends the script. MULTI would go on, and set the marker without it.
SHOW = """
local list, marker, before, after = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
if (redis.call('GET', marker) or '') ~= before then return 'MarkerChanged' end
for n = 3, #KEYS do
  if redis.call('HLEN', KEYS[n]) ~= tonumber(ARGV[n]) then return 'NotStaged' end
  for number = 0, tonumber(ARGV[n]) - 1 do
    if redis.call('HEXISTS', KEYS[n], number) == 0 then return 'NotStaged' end
  end
end
for n = 3, #KEYS do
  for number = 0, tonumber(ARGV[n]) - 1 do
    local rows = {}
    for row in redis.call('HGET', KEYS[n], number):gmatch('[^\\n]+') do
      rows[#rows + 1] = row
      if #rows == 5000 then redis.call('RPUSH', list, unpack(rows)); rows = {} end
    end
    if #rows > 0 then redis.call('RPUSH', list, unpack(rows)) end
  end
end
redis.call('SET', marker, after)
return 'shown'
"""


class RedisTarget(Target):
    """Appends each row as JSON. `target.url`: the server, with `appendonly yes`, `appendfsync
    always` and `maxmemory-policy noeviction`, or what it has shown may go. `target.list`: the
    list's key."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._url, self._list = options["url"], options["list"]
        self._client: redis.Redis | None = None

    @property
    def place(self) -> str:
        parts = urlsplit(self._url)  # without user and password, wherever they stand
        host = f"{parts.hostname or ''}:{parts.port or 6379}{parts.path}"
        return f"list '{self._list}' of Redis {host}"

    @property
    def client(self) -> redis.Redis:
        if self._client is None:
            import redis

            # A call that hung would hang the query. What comes of one that is given up, the marker
            # says: nothing is asked again by the client itself.
            self._client = redis.Redis.from_url(
                self._url, socket_timeout=TIMEOUT_S, socket_connect_timeout=10, retry=None
            )
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
        keys = [self._list, f"{MARKER}{writer}", *(f"{STAGED}{name}" for name in names)]
        given = [before or b"", after, *names.values()]
        said = self.client.eval(SHOW, len(keys), *keys, *given)
        if said == b"MarkerChanged":
            raise MarkerChanged
        if said == b"NotStaged":
            raise NotStaged

    def discard(self, names: Collection[str]) -> None:
        if names:
            self.client.delete(*(f"{STAGED}{name}" for name in names))
