"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from pipeline import Settings
from rows import Made, Row, moment


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, of all that it reads, in any order."""
    listed = [*records]
    orders = {key: value for of, key, value in listed if of == "source"}
    payments = {value["order"]: value for of, _, value in listed if of == "payments"}
    ends = [max(moment(one["ordered"]) for one in orders.values())]
    ends.append(max(moment(one["paid"]) for one in payments.values()))
    watermark = min(ends) - timedelta(minutes=job.lateness_minutes)  # of two topics the older one
    found: list[Row] = []
    for key, order in orders.items():
        until = moment(order["ordered"]) + timedelta(minutes=job.pay_minutes)
        value = {"customer": order["customer"], "cents": order["cents"]}
        payment = payments.get(key)
        if payment is not None and moment(payment["paid"]) <= until:
            found.append((key, {**value, "in_time": True, "method": payment["method"]}))
        elif until < watermark:  # else a payment can still come
            found.append((key, {**value, "in_time": False}))
    return {"sink": found}
