"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from pipeline import Settings
from rows import EPOCH, Made, Row, moment


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, of all that it reads, in any order."""
    orders: list[Row] = []
    payments: dict[str, list[dict[str, Any]]] = defaultdict(list)
    newest = {"source": EPOCH, "payments": EPOCH}
    for of, key, value in records:
        newest[of] = max(newest[of], moment(value["ordered" if of == "source" else "paid"]))
        if of == "source":
            orders.append((key, value))
        else:
            payments[value["order"]].append(value)
    lateness = timedelta(minutes=job.lateness_minutes)
    watermark = min(newest.values()) - lateness  # of two topics the older one
    found: list[Row] = []
    for key, order in orders:
        ordered = moment(order["ordered"])
        until = ordered + timedelta(minutes=job.pay_minutes)
        value = {"customer": order["customer"], "cents": order["cents"]}
        in_time = [one for one in payments[key] if ordered <= moment(one["paid"]) <= until]
        found += [(key, {**value, "in_time": True, "method": one["method"]}) for one in in_time]
        if not in_time and until < watermark:  # else a payment can still come
            found.append((key, {**value, "in_time": False}))
    return {"sink": found}
