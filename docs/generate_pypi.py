"""Writes docs/pypi.md, the page on PyPI: `python docs/generate_pypi.py`.

It is README without what PyPI cannot show: pictures and links by paths of the repository.
"""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent / "pypi.md"
README = PAGE.parents[1] / "README.md"


def page() -> str:
    """The whole text."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)\n\n", "", README.read_text())
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)


if __name__ == "__main__":
    PAGE.write_text(page())
