"""The three jobs' records: what is written into their inputs, and what must come out. Pure.

copy    each record as it is; the order of an input partition's records is kept
count   records by key and minute of event time, each minute once, when it is closed
bank    transfers between accounts, each as a debit and a credit: the sum is always 0

The key of each record follows from its value.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from eo_kafka.testing.history import Row

PARTITIONS = 3
KEYS = 12
ACCOUNTS = 20
WINDOW_S = 60  # of event time; one record is one second
WATERMARK_DELAY_S = 600
ABORTED = "aborted-"  # how the value of a record begins that nobody may ever see

Entry = tuple[str | None, str | None]  # key and value


@dataclass(frozen=True)
class Workload:
    """`make(number, random)` is the key and value of an input record; `outputs` what one of them
    becomes (None: not one by one); `expected` all that must come out, and how often."""

    name: str
    transform: str  # what the driver does; see job.py
    make: Callable[[int, random.Random], tuple[str, str]]
    outputs: Callable[[Row], list[Entry]] | None
    expected: Callable[[Iterable[Row]], Counter[Entry]]
    ordered: bool = False  # rows of an input partition keep their order in each output partition
    repartitioned: bool = False  # the number of writing tasks is the supervisor's choice
    sink_options: Mapping[str, str] | None = None


def _copy(number: int, chance: random.Random) -> tuple[str, str]:
    return f"k{chance.randrange(KEYS)}", f"copy-{number}"


def _reading(number: int, chance: random.Random) -> tuple[str, str]:
    key = f"k{chance.randrange(4)}"
    return key, json.dumps({"key": key, "second": number})


def _transfer(number: int, chance: random.Random) -> tuple[str, str]:
    giver, taker = chance.sample(range(ACCOUNTS), 2)
    amount = chance.randint(1, 1000)
    value = {"id": number, "giver": giver, "taker": taker, "amount": amount}
    return str(giver), json.dumps(value)


def entries(transfer: Row) -> list[Entry]:
    """The two ledger entries of a transfer: by account, `id:account:amount`."""
    fields = json.loads(transfer.value or "")
    number, giver, taker = fields["id"], str(fields["giver"]), str(fields["taker"])
    return [
        (giver, f"{number}:{giver}:{-fields['amount']}"),
        (taker, f"{number}:{taker}:{fields['amount']}"),
    ]


def amount(entry: Entry) -> int:
    """What an entry adds to its account."""
    return int((entry[1] or "").rsplit(":", 1)[1])


def closed_windows(rows: Iterable[Row]) -> Counter[Entry]:
    """By key, `key@start=count` of each window that the watermark has passed when all rows are
    read."""
    readings = [json.loads(row.value or "") for row in rows]
    newest = max((one["second"] for one in readings), default=0)
    counts = Counter((one["key"], one["second"] // WINDOW_S * WINDOW_S) for one in readings)
    return Counter(
        (key, f"{key}@{start}={count}")
        for (key, start), count in counts.items()
        if start + WINDOW_S <= newest - WATERMARK_DELAY_S
    )


def _each(outputs: Callable[[Row], list[Entry]]) -> Callable[[Iterable[Row]], Counter[Entry]]:
    return lambda rows: Counter(entry for row in rows for entry in outputs(row))


def same(row: Row) -> list[Entry]:
    """The record as it is."""
    return [(row.key, row.value)]


COPY = Workload("copy", "copy", _copy, same, _each(same), ordered=True)
COPIES = ("copy", "idempotent", "direct")  # one of these is enough at a time
WORKLOADS = {
    one.name: one
    for one in (
        COPY,
        Workload("count", "count", _reading, None, closed_windows),
        Workload("bank", "bank", _transfer, entries, _each(entries), repartitioned=True),
        replace(COPY, name="idempotent", sink_options={"commit": "idempotent"}),
        replace(COPY, name="direct", transform="direct"),
    )
}
