"""The memory of queues whose messages have ids of their publishers: the newest ids. No I/O."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from .backend import Read
from .message import Message, Record, told_kind

log = logging.getLogger(__name__)


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

    def __init__(self, names: Sequence[str], size: int, kind: str = "") -> None:
        """`kind`: what the ids are of, if that is known."""
        self._size, self._kind = size, kind
        self._windows = {name: Window(size) for name in names}

    @property
    def remembers_all(self) -> bool:
        """Whether no id was forgotten yet."""
        return not any(window.is_full for window in self._windows.values())

    def recall(self, ends: Mapping[str, int], read: Read) -> None:
        """The ids in the newest records."""
        for name, window in self._windows.items():
            newest = self._newest(name, ends[name], read)
            mine = [key for key, kind in newest if kind in (None, self._kind)]
            window.add(mine)
            if others := {kind for _, kind in newest if kind is not None} - {self._kind}:
                log.warning(
                    "Of the newest %d ids in topic '%s', %d are of another kind (%s) than those of "
                    "this query (%s; options 'messageId' and 'queue'), and are not compared. A "
                    "message of before that is delivered again now is kept again.",
                    *(len(newest), name, len(newest) - len(mine)),
                    *(", ".join(sorted(others)), self._kind),
                )

    def _newest(self, name: str, until: int, read: Read) -> list[tuple[bytes, str | None]]:
        """The oldest first, each with its kind, if that is known. Offsets are also of transactions'
        marks, and of what was aborted: so it goes back until there are enough."""
        found: list[tuple[bytes, str | None]] = []
        step = 1000
        while until and (missing := self._size - len(found)) > 0:
            begin = max(0, until - max(missing, step))
            records = read(name, begin, until)
            found = [(key, told_kind(headers)) for _, key, _, headers in records if key] + found
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
