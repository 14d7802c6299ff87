"""A job that writes a table, whose rows are big: it needs room on the server's disk."""

from __future__ import annotations

import json
import random
import sys
from typing import ClassVar

from table_job import TableJob


class BigJob(TableJob):
    """Rows of 20 kB that do not compress, so that a batch needs room."""

    script: ClassVar[str] = __file__

    def rows(self, batch: int, partition: int) -> list[tuple[int, str, str]]:
        return [
            (key, word + noise(key), operation)
            for key, word, operation in super().rows(batch, partition)
        ]


def noise(key: int) -> str:
    return random.Random(key).randbytes(10_000).hex()


def main() -> None:
    """A driver of one batch in a process of its own."""
    given, database, batch = json.loads(sys.argv[1])
    BigJob(given, database).run(batch)


if __name__ == "__main__":
    main()
