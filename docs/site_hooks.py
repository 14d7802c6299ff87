"""Prepares pages for `make docs`: adds those at the root, and unlinks what only a checkout has."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
AT_ROOT = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie at the root."""
    for name in AT_ROOT:
        text = (ROOT / name).read_text()
        files.append(File.generated(config, name.lower(), content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to pages of the site there, and show other files, which must exist, as code."""
    source = page.file.src_uri
    at_root = next((name for name in AT_ROOT if name.lower() == source), None)
    folder = ROOT if at_root else (ROOT / "docs" / source).parent

    def linked(match: re.Match[str]) -> str:
        text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
        path = (folder / target).resolve()
        if not path.exists():
            raise PluginError(f"{source} links to {target}, which is not there")
        name = path.relative_to(ROOT).as_posix()
        inside = name.lower() if name in AT_ROOT else name.removeprefix("docs/")
        if name == "README.md":
            inside = "index.md"
        if files.get_file_from_path(inside) and (name.startswith("docs/") or "/" not in name):
            here = os.path.dirname(source) or "."
            return f"[{text}]({os.path.relpath(inside, here)}{anchor})"
        return text if text.startswith("`") else f"{text} (`{name}`)"

    return LINK.sub(linked, markdown)
