"""Writes docs/file_map.md from the modules' first lines: `python docs/generate_file_map.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = Path(__file__).parent / "file_map.md"
FOLDERS = (
    *("entry", "testing", "connectors", "tools", "broker", "windows", "formats"),
    *("sources", "sinks", "state", "clients", "core"),
)
HEAD = """# File map

Which file does what?

Made by `python docs/generate_file_map.py` from the first sentence of each module; a test fails when
this page is stale. The larger folders come in the order of imports: none imports from one above it.
`tests/project/test_architecture.py` says what each may import.
"""


def page() -> str:
    """The whole text."""
    sections = [_section(ROOT, "The root: `eo_kafka` itself")]
    for folder in FOLDERS:
        for place in [ROOT / folder, *_inner(ROOT / folder)]:
            sections.append(_section(place, f"{place.relative_to(ROOT)}/"))
    return HEAD + "".join(sections)


def first_sentence(path: Path) -> str:
    """What a module says it is."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def _inner(folder: Path) -> Iterator[Path]:
    return (path.parent for path in sorted(folder.glob("*/__init__.py")))


def _section(place: Path, title: str) -> str:
    files = [path for path in sorted(place.glob("*.py")) if path.name != "__init__.py"]
    face = place / "__init__.py"
    says = f"\n{first_sentence(face)}\n" if face.exists() else ""
    rows = "".join(f"| `{path.name}` | {first_sentence(path)} |\n" for path in files)
    table = f"\n| file | role |\n|---|---|\n{rows}" if rows else ""
    return f"\n## {title}\n{says}{table}"


if __name__ == "__main__":
    PAGE.write_text(page())
