"""What `check_target` runs in processes that it kills: `python -m ... JSON`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path


def main() -> None:
    """Stage files of Arrow under a name each, or apply, once it is told; says how it ended."""
    import pyarrow as pa

    from ..sinks.targets.custom import CustomTarget
    from ..targets import MarkerChanged, NotStaged

    words = json.loads(sys.argv[1])
    target = CustomTarget(words["reference"], words["settings"], (), True).made()
    _say("ready")
    sys.stdin.readline()  # two of them begin at the same moment
    try:
        for name, number, path in words.get("stage", []):
            with pa.OSFile(str(Path(path)), "rb") as file, pa.ipc.open_file(file) as found:
                target.stage(name, number, found.read_all())
        if "apply" in words:
            writer, names, before, after = words["apply"]
            as_bytes = None if before is None else before.encode()
            _say("begin")
            target.apply(writer, names, as_bytes, after.encode())
            _say(str(time.monotonic()))
    except (MarkerChanged, NotStaged) as refused:
        _say(type(refused).__name__)
    else:
        _say("done")


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
