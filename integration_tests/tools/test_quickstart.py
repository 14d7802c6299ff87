"""docs/quickstart.md, typed by a newcomer: every file and every command, in their order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from newcomer import INSTALLED, Newcomer


def test_the_quick_start_works_as_it_is_written(tmp_path: Path) -> None:
    newcomer = Newcomer(tmp_path)
    assert newcomer.commands[INSTALLED - 1] == "export PYSPARK_PYTHON=$(command -v python)"
    with closing(newcomer):
        said = list(newcomer.follow())
    broker, *_, kill, _, _, verify = said
    assert broker.output.startswith("bootstrap.servers=127.0.0.1:")
    assert "Topic 'shouted' has been created with 4 partitions." in broker.output
    assert kill.command == "pkill -9 -f shout.py"
    assert "Equal by key: nothing lost, nothing twice, nothing else." in verify.output
