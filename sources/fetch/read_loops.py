"""The compiled loops that read, and what they count (sources/fetch/read_kernels.py)."""

from __future__ import annotations

from ...core.loops import Loop

# what copying the taken messages will need, and what was seen on the way
ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, NAME_BYTES, CONTENT_BYTES, LAST, EVENTS, BEYOND = range(9)
UNREAD = 9  # the offset of a record whose headers librdkafka does not read
TOTALS = 10
NOT_READ = 2  # where `pack` says whether a record has headers: it has some that are not read

_MODULE = f"{__package__}.read_kernels"
take = Loop(_MODULE, "take", results=1)
pack = Loop(_MODULE, "pack", results=1)
discard = Loop(_MODULE, "discard")
