"""Tries the job out: `write` gives it something to do, `read` shows what it made, `check` compares.

`python sample.py write`; the Kafka is that of config.toml's section dev.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaException

import inputs
import job
import outputs
import topics
from generate import TOPICS, records
from pipeline import Settings
from rows import START, Made, Row
from streams import typed
from wanted import wanted

WIDTH = 96
TIME = re.compile(r"\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)\.\d+Z")


def write(count: int) -> None:
    """Create what is missing, and write the next of generate.py's records."""
    config = job.config("job", "dev")
    topics.create({config[role]: policy for role, policy in TOPICS.items()})
    outputs.create()
    before = inputs.written()
    inputs.write(first(before + count)[before:])
    print(f"Records {before + 1} to {before + count} are written.")


def read(limit: int) -> None:
    """Show the newest of what the job has written, of each of its outputs."""
    config = job.config("job", "dev")
    for role, rows in outputs.read().items():
        print(f"{config[role]}:\n{shown(rows[-limit:])}")


def check() -> None:
    """Compare all that the job wrote with what it should have, of all that `write` gave it."""
    config = job.config("job", "dev")
    made, count = first(inputs.written()), 0
    if not made:
        raise SystemExit("There is no input yet: python sample.py write")
    found = outputs.read()
    for role, expected in wanted(made, typed(Settings, config), found).items():
        rows = found[role]
        if TOPICS.get(role) == "compact":
            rows = [*dict(rows).items()]  # the newest of each key
        differences = multiset(expected), multiset(rows)
        lost, odd = differences[0] - differences[1], differences[1] - differences[0]
        if lost or odd:
            raise SystemExit(
                f"{config[role]}: {lost.total()} records are missing, {odd.total()} should not be "
                f"there. Missing: {[*lost][:3]}. Not right: {[*odd][:3]}. Has the job read all of "
                "its input? python job.py --once"
            )
        count += len(rows)
    print(f"Of {len(made)} records the job made {count}: those that model.py says, each once.")


def first(count: int) -> list[Made]:
    """The first of generate.py's records."""
    return [*itertools.islice(records(count, START), count)]


def multiset(rows: Iterable[Row]) -> Counter[str]:
    """Rows as text, with how often each is there."""
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def shown(rows: Iterable[Row]) -> str:
    """A line for each, with times of day."""
    lines = []
    for key, value in rows:
        pairs = value.items() if isinstance(value, dict) else [("", value or "removed")]
        told = " ".join(f"{name}={_told(one)}" if name else str(one) for name, one in pairs)
        lines.append(TIME.sub(r"\1", f"  {key:12} {told}"))
    return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines)


def _told(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(" ".join(map(str, one.values())) for one in value)
    return str(value)


def main() -> None:
    """One of the three."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("write", "read", "check"))
    parser.add_argument("--count", type=int, default=400, help="of records to write (400)")
    parser.add_argument("--limit", type=int, default=10, help="of records to show of a topic (10)")
    arguments = parser.parse_args()
    try:
        if arguments.what == "write":
            write(arguments.count)
        elif arguments.what == "read":
            read(arguments.limit)
        else:
            check()
    except KafkaException as error:
        servers = job.config("job", "dev")["bootstrap_servers"]
        raise SystemExit(
            f"Kafka at {servers} (config.toml, [dev]): {error.args[0].str()}"
        ) from None


if __name__ == "__main__":
    main()
