"""Decimals of a precision and a scale, of which none is rounded."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, Inexact, InvalidOperation


def quantizer(precision: int, scale: int) -> Callable[[Decimal], Decimal]:
    """Gives a number the digits of a scale. What it gives raises InvalidOperation for one that is
    too large, and Inexact for one with more digits than the scale."""
    unit = Decimal(1).scaleb(-scale)
    context = Context(prec=precision, traps=[InvalidOperation, Inexact])
    return lambda number: number.quantize(unit, context=context)
