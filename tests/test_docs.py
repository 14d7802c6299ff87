"""What the documents say of the code is still so."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    *("core", "clients", "connectors", "formats", "sources", "sinks", "state", "tools", "broker"),
)
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_page_of_options_is_what_the_declarations_say():
    path = ROOT / "docs" / "generate_options.py"
    spec = importlib.util.spec_from_file_location("generate_options", path)
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.PAGE.read_text() == generator.page(), "run python docs/generate_options.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_tests_that_are_named_exist(page):
    text = page.read_text()
    code = [
        path.read_text()
        for folder in ("tests", "integration_tests")
        for path in (ROOT / folder).rglob("*.py")
    ]
    for name in re.findall(r"\b(test_\w+)\b(?!\.py)", text):
        known = any(f"def {name}" in source for source in code)
        assert known or (ROOT / "tests" / f"{name}.py").exists(), name
    folders = "|".join((*PACKAGES, "tests", "integration_tests"))
    for path in re.findall(rf"`((?:{folders})/[\w/]+\.py)", text):
        assert (ROOT / path).exists(), path


def test_every_module_is_on_the_file_map():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for package in PACKAGES[:-1]:
        for path in (ROOT / package).rglob("*.py"):
            if path.name != "__init__.py":
                assert f"{path.relative_to(ROOT)}" in text or f"`{path.name}`" in text, path
