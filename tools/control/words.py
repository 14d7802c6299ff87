"""The records of a job's control topic: what is wished, and what the supervisor tells. No I/O.

Not in the ledger: who writes there fences the driver that works. The topic is compacted, and holds
the newest wish and the newest answer.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

from ...core.errors import cut
from ...core.options import json_object

DRIVER_ENDED = "Driver ended"  # so begins what a supervisor says of one that nobody asked to end
WISH_KEY, TOLD_KEY = b"wish", b"told"
VERSION = 1
TEXT_MAX = 4000
_AT_MAX_MS = 253_402_300_800_000  # the year 10000, which no clock shows
T = TypeVar("T")
_TYPES = {"str": str, "bool": bool, "int": int}


class Do(str, Enum):
    """What a person wishes."""

    SUSPEND = "suspend"
    RESUME = "resume"
    RESTART = "restart"
    CANCEL = "cancel"


class Stands(str, Enum):
    """What holds for a job, also for a supervisor that starts later."""

    RUN = "run"
    SUSPENDED = "suspended"
    CANCELLED = "cancelled"


OUTCOME = {
    Do.SUSPEND: Stands.SUSPENDED,
    Do.RESUME: Stands.RUN,
    Do.RESTART: Stands.RUN,
    Do.CANCEL: Stands.CANCELLED,
}


class UnknownWords(Exception):
    """A record that another version wrote, or nobody of us."""


def now_ms() -> int:
    """Since 1970, by this machine's clock."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Wish:
    """`by`: who, on which machine. `snapshot`: the name to export the last state under."""

    do: str
    by: str
    snapshot: str = ""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    at_ms: int = field(default_factory=now_ms)

    @property
    def outcome(self) -> Stands:
        """What holds when it is fulfilled."""
        return OUTCOME[Do(self.do)]


@dataclass(frozen=True)
class Told:
    """What the supervisor in charge says. `wish` is the id of the one it is at; `done`: that is
    answered; `ok`: and fulfilled. `stands` is what holds now."""

    phase: str
    stands: str = Stands.RUN.value
    wish: str = ""
    done: bool = False
    ok: bool = False
    said: str = ""
    host: str = ""
    pid: int = 0
    at_ms: int = field(default_factory=now_ms)


def stands(wish: Wish | None, told: Told | None) -> Stands:
    """What holds: by the newest wish, unless that was answered otherwise. By the answer alone if
    Kafka has deleted the wish."""
    if wish is None:
        return Stands(told.stands) if told is not None and told.done else Stands.RUN
    if told is not None and told.wish == wish.id and told.done:
        return Stands(told.stands)
    return wish.outcome


def printable(text: str) -> str:
    """As a record may hold it."""
    return "".join(one if one.isprintable() else " " for one in text)[:TEXT_MAX]


def encode(record: Wish | Told) -> bytes:
    """The value under its key."""
    return json.dumps({"v": VERSION, **asdict(record)}, separators=(",", ":")).encode()


def decode_wish(value: bytes) -> Wish:
    """Raises UnknownWords."""
    found = _decode(value, Wish)
    _check(found.do in {one.value for one in Do}, f"'{cut(found.do)}' is asked for")
    return found


def decode_told(value: bytes) -> Told:
    """Raises UnknownWords."""
    found = _decode(value, Told)
    _check(found.stands in {one.value for one in Stands}, f"it stands '{cut(found.stands)}'")
    return found


def _decode(value: bytes, kind: type[T]) -> T:
    try:
        written: dict[str, Any] = json_object(value.decode())
        version = written.pop("v")
        _check(version == VERSION, f"its format is {cut(version)}, and this one reads {VERSION}")
        types = {one.name: _TYPES[str(one.type)] for one in fields(kind)}  # type: ignore[arg-type]
        for name, content in written.items():
            _check(type(content) is types[name], f"{name} is {type(content).__name__}")
            if isinstance(content, str):  # it is shown on terminals
                _check(len(content) <= TEXT_MAX and content.isprintable(), f"{name} is no text")
            if name == "at_ms":
                _check(0 <= content < _AT_MAX_MS, "at_ms is no time")
        return kind(**written)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UnknownWords(not_understood(f"{type(error).__name__}: {cut(error)}")) from None


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise UnknownWords(not_understood(otherwise))


def not_understood(why: str) -> str:
    """What is said of such a record."""
    return (
        f"A record of the control topic is not understood ({why}). Another version of eo-kafka "
        "wrote it, or somebody else did. It is not obeyed: ask again with this version."
    )
