"""Windows over Spark's transformWithState that give late rows out as rows."""

from .aggregates import avg, count, fold, max, min, sum
from .query import session, sliding, tumbling
from .watermarks import by_partition, custom, lag

__all__ = [
    "avg",
    "by_partition",
    "count",
    "custom",
    "fold",
    "lag",
    "max",
    "min",
    "session",
    "sliding",
    "sum",
    "tumbling",
]
