"""What reading a map into Arrow costs beside the mere fetch of the same bytes.

    python -m benchmarks.maps [--entries 200000] [--rounds 5] [--members 1]

Run it from the root of the repository. Values are JSON of 100 bytes, keys are text. In each round,
in turns: the journal fetched and dropped, the journal read as one task of `format("eo-map")` reads
it; and the same for the entries. All in one process, on its own Hazelcast, so the ratios are of one
run; the rates are this machine's. "Fetched" ends at what the client hands over: an object for each
event, or for each key and value, as `hazelcast-python-client`'s own decoders make them; "frames" is
the least that is possible with its connection, the answer's frames and no object. "Jet" is
Hazelcast's own reader, a job in a JVM of its own that counts the journal's events from its first
one on, without the job's start (benchmarks/jet.py); it may take all cores, the others are one
process. Without javac it is left out.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from hazelcast.core import HazelcastJsonValue
from hazelcast.protocol.builtin import (
    CodecUtil,
    DataCodec,
    EntryListCodec,
    ListMultiFrameCodec,
    LongArrayCodec,
)

from benchmarks import jet
from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.broker.hazelcast_settings import PARTITIONS, journal
from eo_kafka.clients.hazelcast import internals
from eo_kafka.clients.hazelcast.client import client
from eo_kafka.sources.maps.entries import plan, read_entries
from eo_kafka.sources.maps.options import MapOptions
from eo_kafka.sources.maps.planner import MapPlanner
from eo_kafka.sources.maps.position import ranges
from eo_kafka.sources.maps.reader import read_journal, tasks

IN_FLIGHT = 8
MAP = "bench"


def main() -> None:
    arguments = _arguments()
    capacity = 4 * arguments.entries
    with HazelcastCluster(arguments.members, {MAP: journal(capacity)}) as grid:
        given = {
            "backend": "hazelcast",
            "map": MAP,
            "hazelcast.members": ",".join(grid.addresses),
            "tasks": "1",
        }
        stream = MapOptions.parse(given, streaming=True)
        hz = client(stream.hazelcast)
        _fill(hz, arguments.entries)
        start = MapPlanner(stream).end(None, None, now=False)
        end = MapPlanner(stream).end(start, None, now=False)
        (task,) = tasks(end.cluster, ranges(start, end), 1)
        (all_entries,) = plan(stream)
        ways: dict[str, Callable[[], int]] = {
            "journal, frames": lambda: _journal(hz, end.sequences, None),
            "journal, fetched": lambda: _journal(hz, end.sequences, _decoded_events),
            "journal, to Arrow": lambda: sum(b.num_rows for b in read_journal(stream, task)),
            "entries, frames": lambda: _entries(hz, None),
            "entries, fetched": lambda: _entries(hz, _decoded_entries),
            "entries, to Arrow": lambda: sum(b.num_rows for b in read_entries(stream, all_entries)),
        }
        timed = {name: _timed(way, arguments.entries) for name, way in ways.items()}
        if jet.javac() is None:
            print("Jet is left out: there is no javac beside Java.")
            _report(timed, arguments.entries, arguments.rounds)
            return
        with jet.Jet(grid, MAP, arguments.entries) as peer:
            timed["journal, Jet"] = peer.read
            _report(timed, arguments.entries, arguments.rounds)


def _timed(way: Callable[[], int], entries: int) -> Callable[[], float]:
    def seconds() -> float:
        begin = time.perf_counter()
        assert way() == entries, way
        return time.perf_counter() - begin

    return seconds


def _report(ways: dict[str, Callable[[], float]], entries: int, rounds: int) -> None:
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            seconds = way()
            if turn:  # the first one warms up
                rates[name].append(entries / seconds)
    for name, found in rates.items():
        print(f"{name:18} {median(found):10,.0f} a second")
    for kind in ("journal", "entries"):
        ours = rates[f"{kind}, to Arrow"]
        for other in ("fetched", "frames", "Jet"):
            if f"{kind}, {other}" not in rates:
                continue
            pairs = zip(ours, rates[f"{kind}, {other}"], strict=True)
            ratios = sorted(one / theirs for one, theirs in pairs)
            print(
                f"{kind}: to Arrow / {other}: {median(ratios):.2f} "
                f"(from {ratios[0]:.2f} to {ratios[-1]:.2f} in {rounds} rounds)"
            )


def _fill(hz: Any, entries: int) -> None:
    stored = hz.get_map(MAP).blocking()
    pad = "x" * 71
    for first in range(0, entries, 10_000):
        stored.put_all(
            {
                f"key-{number}": HazelcastJsonValue(f'{{"id": {number:9}, "text": "{pad}"}}')
                for number in range(first, min(first + 10_000, entries))
            }
        )
    assert len(stored.get("key-0").to_string()) == 100


def _pipelined(ask: Callable[[int], Any], partitions: Iterable[int]) -> Iterable[Any]:
    todo, asked = deque(partitions), deque()
    while todo or asked:
        while todo and len(asked) < IN_FLIGHT:
            asked.append(ask(todo.popleft()))
        yield asked.popleft().result()


def _decoded_events(message: Any) -> list[Any]:
    message.next_frame()
    items: list[Any] = ListMultiFrameCodec.decode(message, DataCodec.decode)
    CodecUtil.decode_nullable(message, LongArrayCodec.decode)
    return items


def _decoded_entries(message: Any) -> list[Any]:
    message.next_frame()
    message.next_frame()
    items: list[Any] = EntryListCodec.decode(message, DataCodec.decode, DataCodec.decode)
    return items


def _journal(hz: Any, ends: tuple[int, ...], decode: Any) -> int:
    """How many events; each partition's in one request, as the reader asks for them."""
    ours = internals._journal_items
    if decode is not None:
        internals._journal_items = decode
    try:
        found = _pipelined(
            lambda at: internals.read_journal(hz, MAP, at, 0, ends[at]),
            (at for at in range(PARTITIONS) if ends[at]),
        )
        return sum(len(one.items if decode is None else one) for one in found)
    finally:
        internals._journal_items = ours


def _entries(hz: Any, decode: Any) -> int:
    ours = internals.invoked

    def invoked(one: Any, request: Any, _: Any, partition: int) -> Any:
        return ours(one, request, decode, partition)

    if decode is not None:
        internals.invoked = invoked
    try:
        found = _pipelined(
            lambda at: internals.fetch_entries(hz, MAP, at, internals.FIRST_POINTERS, 5000),
            range(PARTITIONS),
        )
        return sum(len(one.items) // 2 if decode is None else len(one) for one in found)
    finally:
        internals.invoked = ours


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--members", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
