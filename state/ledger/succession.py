"""What a query with another id may do with a job's ledger, and which queries it was taken from.

A new checkpoint is a new query: a full refresh of a declarative pipeline makes one, and so does
somebody who deletes a checkpoint. Option `onReset` says what is meant. The record says who was
replaced, so that none of them takes the ledger back: its checkpoint is behind what was written
since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...core.options import Option, one_of
from .record_fields import array, decode_fields, encode_fields, lines, string, topics

SUCCESSION_KEY = b"succession"
STOP, NEW_JOB, CONTINUE = "stop", "new-job", "continue"
ON_RESET = Option(
    "onReset",
    one_of(STOP, NEW_JOB, CONTINUE),
    STOP,
    "What a new checkpoint means (a full refresh of a pipeline, a deleted checkpoint) where the "
    "job has a ledger: `stop` (the query is refused), `new-job` (the ledger begins anew; everything"
    " is read and written again, from where the readers' `startingOffsets` say; without them what "
    "came since would be passed over, and the query is refused) or `continue` (nothing is repeated:"
    " a query without state goes on where the last one ended; its readers need this option and "
    "`jobName`, too).",
)


@dataclass(frozen=True)
class Succession:
    """`name`: the owner's query name, if it has one. `replaced`: the ids of the owners before,
    oldest first. `continued_from`: where the last of them had ended, a line a source, if the owner
    went on from there, and `source_ids`, as a decision has them."""

    replaced: tuple[str, ...] = ()
    continued_from: tuple[str, ...] = ()
    source_ids: tuple[tuple[str, str], ...] = ()
    name: str = ""


def encode_succession(found: Succession) -> bytes:
    """The value under SUCCESSION_KEY."""
    fields = {
        "continuedFrom": found.continued_from,
        "sourceIds": dict(found.source_ids),
        "name": found.name,
    }
    known = {field: value for field, value in fields.items() if value}
    return encode_fields({"replaced": found.replaced, **known})


def decode_succession(value: bytes) -> Succession:
    """Raises CorruptLedger."""

    def build(fields: dict[str, Any]) -> Succession:
        return Succession(
            replaced=tuple(string(query) for query in array(fields["replaced"])),
            continued_from=lines(fields.get("continuedFrom", [])),
            source_ids=topics(fields.get("sourceIds", {})),
            name=string(fields.get("name", "")),
        )

    return decode_fields(SUCCESSION_KEY, value, build, encode_succession)
