"""What the receiver needs of whoever delivers messages, and of what remembers them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from .message import Headers, Message, Record

# Of a topic: the offsets, keys, values and headers from one offset up to another.
Read = Callable[[str, int, int], Iterator[tuple[int, bytes, bytes | None, Headers]]]


class Backend(Protocol):
    """A queue. Lives in the process that plans the query; connects when it is first asked
    something. Raises EnvironmentRefused, ReadTimeout and SourceError."""

    def ready(self, *, is_first: bool = False) -> tuple[int, int]:
        """How many messages wait, at most, and how many others take some. That none wait is not
        certain before `take` has given none. `is_first`: before the first `take` of a batch."""

    def take(self, count: int) -> list[Message]:
        """About `count` messages, unacknowledged; fewer, or none, if none came for a moment."""

    def waited(self, taken: Sequence[Message]) -> bool:
        """Whether one of these, of the last `take`, was there when `ready` was asked first."""

    def acknowledge(self, taken: Sequence[Message]) -> None:
        """Exactly these, of the last `take`."""

    def rest(self) -> None:
        """No more is taken until the next batch is planned."""

    def drop(self) -> None:
        """Leave, whatever becomes of it: what is not acknowledged is delivered again."""


class Memory(Protocol):
    """Which messages were kept. It is read back after a fence, and changed by the one transaction
    that keeps them."""

    @property
    def topics(self) -> tuple[str, ...]:
        """That are its own; only the inbox's writer writes into them."""

    @property
    def remembers_all(self) -> bool:
        """Whether none was forgotten yet."""

    def recall(self, ends: Mapping[str, int], read: Read) -> None:
        """Read what was kept. `ends`: of the inbox, the poison topic and those of its own. Raises
        EnvironmentRefused."""

    def has(self, one: Message, *, is_poison: bool) -> bool:
        """Whether it was kept where it belongs, as far as is remembered. `is_poison`: there is a
        reason not to take it into the inbox."""

    def doubt(self, one: Message) -> str | None:
        """Why nobody can tell any more whether it was kept."""

    def records(self, wanted: Mapping[str, Sequence[Record]]) -> dict[str, list[Record]]:
        """What goes into its own topics, in the transaction that keeps `wanted`."""

    def note(self, wanted: Mapping[str, Sequence[Record]]) -> None:
        """That transaction is committed."""
