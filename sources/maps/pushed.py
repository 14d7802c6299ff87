"""What Spark's filters restrict a batch of a map to, and the members' predicate for it. No I/O.

None of these leaves out what the filters would let through; what it lets through besides, Spark
sorts out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from hazelcast.predicate import Predicate

IN = "in"


class Comparison(NamedTuple):
    """Of a field of JSON values, by its path, with a whole number, or several."""

    field: str
    operator: str  # =, <, <=, >, >= or `in`
    values: tuple[int, ...]


@dataclass(frozen=True)
class Pushed:
    """A restriction of a batch; None: of all. Pickled to the tasks."""

    partitions: frozenset[int] | None = None
    keys: frozenset[str] | None = None  # which nothing but text, JSON and class names has as text
    comparisons: tuple[Comparison, ...] = ()

    def reads(self, partition: int) -> bool:
        """Whether a partition is read."""
        return self.partitions is None or partition in self.partitions


NOTHING_PUSHED = Pushed()


def predicate(wanted: str | None, comparisons: tuple[Comparison, ...]) -> Predicate | None:
    """What members are to evaluate: option `predicate`, and pushed comparisons. Members cannot look
    into JSON that is stored as text or bytes, so that those values all come."""
    from hazelcast import predicate as of

    operators: Mapping[str, object] = {
        "=": of.equal,
        "<": of.less,
        "<=": of.less_or_equal,
        ">": of.greater,
        ">=": of.greater_or_equal,
        IN: of.in_,
    }
    made = [] if wanted is None else [of.sql(wanted)]
    for one in comparisons:
        compared = operators[one.operator](one.field, *one.values)  # type: ignore[operator]
        no_json = of.not_(of.instance_of("com.hazelcast.core.HazelcastJsonValue"))
        made.append(of.or_(no_json, compared))
    return None if not made else of.and_(*made) if len(made) > 1 else made[0]
