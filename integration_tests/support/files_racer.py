"""Writes files as fast as it can beside others of the same job, and of another one:
`test_files_races.py` pauses and kills it. A marker is the list of all that was applied, so it says
what must be shown."""

from __future__ import annotations

import json
import os
import sys
import uuid
from contextlib import suppress

from eo_kafka.targets import MarkerChanged, NotStaged
from eo_kafka.targets.files import folder
from eo_kafka.targets.files.target import FilesTarget
from files_job import words

WRITERS = ("eo-one", "eo-two")  # two jobs, of several drivers each
KEPT = 2  # manifests: names are free again soon


def main() -> None:
    """Until it is killed: prints the number of each row whose `apply` returned."""
    folder.KEEP = KEPT
    target, writer = FilesTarget(json.loads(sys.argv[1])), sys.argv[2]
    while True:
        before = target.marker(writer)
        applied = json.loads(before) if before else []
        number = uuid.uuid4().int >> 66  # a long, told from all others
        name = f"{writer}-{os.getpid()}-{number}"
        target.stage(name, 0, words(number))
        with suppress(MarkerChanged, NotStaged):
            after = json.dumps([*applied, number]).encode()
            target.apply(writer, {name: 1}, before, after)
            print(number, flush=True)
        target.discard([name])


if __name__ == "__main__":
    main()
