"""Records docs/demo/quickstart.txt: `python docs/record_quickstart.py`, then `docs/draw.py`.

It follows docs/quickstart.md for real and keeps what each command prints. Spark's log
and progress bars, which go to stderr, are left out. docs/draw.py makes the picture of it.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "integration_tests" / "support"))
from newcomer import quick_start  # noqa: E402 - what the test of the page uses, too


def main() -> None:
    """Write each command behind the number of its terminal, and below it what it printed."""
    lines = []
    with tempfile.TemporaryDirectory() as folder, closing(quick_start(Path(folder))) as newcomer:
        for typed in newcomer.follow():
            lines += [f"{typed.terminal}$ {typed.command}", *typed.output.splitlines()]
    text = newcomer.as_on_the_page("\n".join(lines))
    (DOCS / "demo" / "quickstart.txt").write_text(text + "\n")


if __name__ == "__main__":
    main()
