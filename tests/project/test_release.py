"""What `make release` looks at before it builds."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from pathlib import Path

import pytest

import eo_kafka

ROOT = Path(__file__).parents[2]
CHANGELOG = """# Changelog

## 1.10.0 (unreleased)

- More.

## 1.1.0

## 1.0.0 (2026-01-01)

- All.
"""


@pytest.fixture(scope="module")
def release():
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_stands_in_one_place_and_the_changelog_has_it(release):
    version = metadata.version("eo-kafka")
    assert eo_kafka.__version__ == version
    assert f"version = {version}" not in (ROOT / "setup.cfg").read_text()
    assert release.changelog_heading((ROOT / "CHANGELOG.md").read_text(), version)


@pytest.mark.parametrize("version", ["1.10.0", "1.0.0"])
def test_a_section_of_the_version_is_found(release, version):
    assert release.changelog_heading(CHANGELOG, version).startswith(f"## {version} (")


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("1.1", "no section '## 1.1'"),
        ("1.10", "no section"),
        ("2.0.0", "no section"),
        ("1.1.0", "says nothing below '## 1.1.0'"),
    ],
)
def test_a_version_of_which_nothing_is_said_is_not_built(release, version, sentence):
    with pytest.raises(SystemExit, match=sentence):
        release.changelog_heading(CHANGELOG, version)
