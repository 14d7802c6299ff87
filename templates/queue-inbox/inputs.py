"""What the job reads, for sample.py: a queue."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import job
import orders
from rows import Made


def write(made: Iterable[Made]) -> None:
    """Publish what generate.py has made."""
    config = job.config("job", "dev")
    published = [*made]
    orders.publish(config["url"], config["source"], published)
    with _noted().open("a") as file:
        file.writelines(f"{key}\n" for _, key, _ in published)


def written() -> int:
    """How many messages were published. A queue forgets them: it is noted beside the job."""
    return len(_noted().read_text().splitlines()) if _noted().exists() else 0


def _noted() -> Path:
    return job.FOLDER / "published.txt"
