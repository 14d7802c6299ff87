"""A TCP proxy before a broker that cuts, holds up, loses and repeats what a test chooses.

Packages were looked for: what there is forwards bytes and knows nothing of Kafka, or needs a binary
beside Python. Of the protocol this knows what all frames share: four bytes of length; in a request
then the API key, its version, and a correlation id with which the response begins.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from ..broker.embedded import KafkaBroker
from ..broker.settings import LOOPBACK, free_port


class Api(IntEnum):
    """Keys of Kafka's requests."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26
    DESCRIBE_CONFIGS = 32
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    DESCRIBE_TOPIC_PARTITIONS = 75


class Action(Enum):
    """What happens to a request that a fault hits."""

    PASS = "it goes through, and is only recorded"  # noqa: S105 - a word
    REFUSE = "the broker never sees it; its connection is cut"
    LOSE_RESPONSE = "the broker serves it; instead of the response the connection is cut"
    HOLD_RESPONSE = "the broker serves it; its connection stays open and carries no more responses"
    REPEAT = "the broker gets it twice; the client gets the second response"


@dataclass
class Fault:
    """Hits requests of one kind that contain some bytes, `after` so many and up to `times`."""

    api: Api
    action: Action
    containing: bytes = b""
    after: int = 0
    times: float = math.inf
    requests: list[bytes] = field(default_factory=list)  # those that it hit, with their length
    served: int = 0  # how many of them the broker has answered
    _seen: int = 0

    def hits(self, request: bytes) -> bool:
        if int.from_bytes(request[4:6], "big") != self.api or self.containing not in request:
            return False
        self._seen += 1
        if self._seen <= self.after or len(self.requests) >= self.times:
            return False
        self.requests.append(request)
        return True


class _Link:
    """One client's connection and ours to the broker for it."""

    def __init__(self, client: Any, broker: Any) -> None:
        self.client, self.to_client = client
        self.broker, self.to_broker = broker
        self.awaited: dict[bytes, Fault] = {}  # by correlation id

    def close(self) -> None:
        for writer in (self.to_client, self.to_broker):
            writer.transport.abort()


class Proxy:
    """Forwards to 127.0.0.1:`target` what arrives at its own `port`; `with` ends it."""

    def __init__(self, target: int) -> None:
        self.port = free_port()
        self.counts: Counter[int] = Counter()  # requests that arrived, by the key of their API
        self._target = target
        self._faults: list[Fault] = []
        self._links: set[_Link] = set()
        self._refusing = False
        self._struck = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._flows = {"requests": asyncio.Event(), "responses": asyncio.Event()}
        self.heal()
        self._server = self._run(asyncio.start_server(self._serve, LOOPBACK, self.port))
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._server.close)
        self.cut()
        self._call(self._loop.stop)
        self._thread.join(10)

    def add(self, api: Api, action: Action, containing: str = "", **limits: float) -> Fault:
        """Start a fault; `limits` are `after` and `times` of Fault."""
        fault = Fault(api, action, containing.encode(), **limits)  # type: ignore[arg-type]
        self._faults.append(fault)
        return fault

    def cut(self) -> None:
        """Cut all connections, and each new one as soon as it is made."""
        self._refusing = True
        self._call(self._close_links)

    def hang(self, flow: str) -> None:
        """Let no `requests` or no `responses` pass; connections stay, and new ones are made."""
        self._call(self._flows[flow].clear)

    def heal(self) -> None:
        """End every fault. What hung goes on; what was cut may connect again."""
        self._faults.clear()
        self._refusing = False
        self._call(self._open_flows)

    def struck(self) -> int:
        """How many connections were cut or refused, or requests and responses held up, since it was
        healed."""

        async def told() -> int:
            return self._struck

        return int(self._run(told()))

    def _close_links(self) -> None:
        for link in list(self._links):
            self._struck += 1
            link.close()

    def _open_flows(self) -> None:
        self._struck = 0
        for event in self._flows.values():
            event.set()

    async def _pass(self, flow: str) -> None:
        self._struck += not self._flows[flow].is_set()
        await self._flows[flow].wait()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def _call(self, function: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(function)

    async def _serve(self, *client: Any) -> None:
        if self._refusing:
            self._struck += 1
            client[1].transport.abort()
            return
        try:
            broker = await asyncio.open_connection(LOOPBACK, self._target)
        except OSError:
            client[1].transport.abort()
            return
        link = _Link(client, broker)
        self._links.add(link)
        pumps = [asyncio.ensure_future(pump(link)) for pump in (self._requests, self._responses)]
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        for pump in pumps:
            pump.cancel()
        self._links.discard(link)
        link.close()

    async def _requests(self, link: _Link) -> None:
        with suppress(EOFError, OSError):
            while True:
                request = await _frame(link.client)
                await self._pass("requests")
                self.counts[int.from_bytes(request[4:6], "big")] += 1
                fault = next((one for one in self._faults if one.hits(request)), None)
                if fault and fault.action is Action.REFUSE:
                    return
                if fault:
                    link.awaited[request[8:12]] = fault
                    if fault.action is Action.REPEAT:
                        link.to_broker.write(request)
                link.to_broker.write(request)
                await link.to_broker.drain()

    async def _responses(self, link: _Link) -> None:
        with suppress(EOFError, OSError):
            while True:
                response = await _frame(link.broker)
                await self._pass("responses")
                fault = link.awaited.pop(response[4:8], None)
                if fault:
                    fault.served += 1
                    if fault.action is Action.LOSE_RESPONSE:
                        return
                    if fault.action is Action.HOLD_RESPONSE:
                        await asyncio.Event().wait()  # until the client gives the connection up
                    if fault.action is Action.REPEAT:
                        continue
                link.to_client.write(response)
                await link.to_client.drain()


async def _frame(reader: Any) -> bytes:
    length: bytes = await reader.readexactly(4)
    rest: bytes = await reader.readexactly(int.from_bytes(length, "big"))
    return length + rest


@contextmanager
def proxied_broker(
    properties: Mapping[str, object] | None = None,
) -> Iterator[tuple[KafkaBroker, Proxy]]:
    """A broker with two listeners: its own, and one that it advertises at the proxy's port."""
    direct, behind, controller = free_port(), free_port(), free_port()
    with Proxy(behind) as proxy:
        own = f"PLAINTEXT://{LOOPBACK}:{direct}"
        listeners = {
            "listeners": f"{own},PROXIED://{LOOPBACK}:{behind},"
            f"CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"{own},PROXIED://{LOOPBACK}:{proxy.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PROXIED:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        }
        with KafkaBroker(direct, properties={**(properties or {}), **listeners}) as broker:
            yield broker, proxy
