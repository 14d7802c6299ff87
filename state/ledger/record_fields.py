"""Values of the ledger's records: versioned JSON, read strictly.

A record that does not decode is an error with its key in it, never a guess: nobody but us may
write here, and a wrong reading could commit or drop a batch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from ...core.errors import CorruptLedger, cut
from ...core.options import json_object

VERSION = 1
_INT_MAX = 2**63
# Bytes; the longest is a transactional id, whose prefix may be as long as a topic's name.
TEXT_MAX = 1000
# Bytes of a record that a producer of ours sends. Topics are asked for less, and may allow it.
RECORD_MAX = 64 << 20
OFFSETS_MAX = RECORD_MAX  # what could be written must be readable: the next start reads it
T = TypeVar("T")


def encode_fields(fields: dict[str, Any]) -> bytes:
    """A record's value, with the version that this program writes."""
    return json.dumps({"v": VERSION, **fields}, separators=(",", ":")).encode()


def decode_fields(
    key: bytes,
    value: bytes,
    build: Callable[[dict[str, Any]], T],
    encode: Callable[[T], bytes],
) -> T:
    """What `build` makes of the value under `key`, if `encode` gives the same value again. Raises
    CorruptLedger."""
    try:
        fields = json_object(value.decode())
        version = whole(fields["v"])
        if version > VERSION:
            raise CorruptLedger(
                f"Ledger record {cut(repr(key))} is of format {version}, and this eo-kafka "
                f"reads format {VERSION}: a newer one runs, or ran, this job. Run that version "
                "everywhere; or, if somebody else wrote into the ledger topic, restore the topic. "
                "Nothing was decided or dropped."
            )
        if version != VERSION:
            raise ValueError(f"version {version} is not {VERSION}")
        found = build(fields)
        # Two values never mean the same: what a reading would pass over is seen here.
        if encode(found) != value:
            raise ValueError("it says more than a record of this version, or says it otherwise")
        return found
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptLedger(
            f"Ledger record {cut(repr(key))} cannot be decoded "
            f"({type(error).__name__}: {cut(error)}). "
            "Nothing was decided or dropped. If a newer eo-kafka wrote it, run that version; "
            "if somebody else wrote into the ledger topic, restore the topic."
        ) from None


def whole(value: Any) -> int:
    """Raises TypeError, ValueError; as those below."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    if abs(value) > _INT_MAX:
        raise ValueError("a number has more than 64 bits")
    return value


def string(value: Any, longest: int = TEXT_MAX) -> str:
    """At most `longest` bytes."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    if len(value.encode()) > longest:  # and half a surrogate pair raises
        raise ValueError(f"a text has {len(value)} characters")
    return value


def array(value: Any) -> list[Any]:
    """Of whatever."""
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def lines(value: Any) -> tuple[str, ...]:
    """Where sources stand, a line each, as Spark writes them."""
    return tuple(string(line, OFFSETS_MAX) for line in array(value))


def topics(value: Any) -> tuple[tuple[str, str], ...]:
    """Names of topics, each with its id."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    named = ((sys.intern(name), sys.intern(string(of))) for name, of in value.items())
    return _shared(tuple(sorted(named)))


@lru_cache(1024)
def _shared(found: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Equal ones are the same one: each task of each batch that is kept names the topics again."""
    return found
