"""The memory of queues whose messages have ids of their publishers: the newest ids. No I/O."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from .backend import Read
from .message import Message, Record


class Window:
    """The newest ids of a topic's records."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ids: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._ids

    @property
    def is_full(self) -> bool:
        """Whether ids may have been forgotten."""
        return len(self._ids) >= self._size

    def add(self, keys: Iterable[bytes | None]) -> None:
        """The oldest first."""
        for key in keys:
            if key:
                self._ids.pop(key, None)  # one that is known is as new as its newest record
                self._ids[key] = None
        while len(self._ids) > self._size:
            self._ids.popitem(last=False)


class IdWindows:
    """One for each of the topics that messages are kept in, first the inbox; they have the ids as
    their keys."""

    topics: tuple[str, ...] = ()

    def __init__(self, names: Sequence[str], size: int) -> None:
        self._size = size
        self._windows = {name: Window(size) for name in names}

    @property
    def remembers_all(self) -> bool:
        """Whether no id was forgotten yet."""
        return not any(window.is_full for window in self._windows.values())

    def recall(self, ends: Mapping[str, int], read: Read) -> None:
        """The ids in the newest records."""
        for name, window in self._windows.items():
            window.add(self._newest(name, ends[name], read))

    def _newest(self, name: str, until: int, read: Read) -> list[bytes]:
        """The oldest first. Offsets are also of transactions' marks, and of what was aborted: so it
        goes back until there are enough."""
        found: list[bytes] = []
        step = 1000
        while until and (missing := self._size - len(found)) > 0:
            begin = max(0, until - max(missing, step))
            found = [key for _, key, _ in read(name, begin, until) if key] + found
            until, step = begin, step * 2
        return found

    def has(self, one: Message, *, is_poison: bool) -> bool:
        """Whether it is among the newest: of the inbox, and for poison of its topic, too. One that
        was poison and is none any more was put back into the queue."""
        windows = list(self._windows.values())[: None if is_poison else 1]
        return one.id is not None and any(one.id in window for window in windows)

    def doubt(self, one: Message) -> str | None:
        """None: one that is older than the windows is taken for new, which is logged."""

    def records(self, wanted: Mapping[str, Sequence[Record]]) -> dict[str, list[Record]]:
        """None: the ids are in what is kept."""
        return {}

    def note(self, wanted: Mapping[str, Sequence[Record]]) -> None:
        """The ids of what was kept."""
        for name, window in self._windows.items():
            window.add(one.key for one in wanted[name])
