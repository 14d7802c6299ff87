"""Builds wheel and sdist of the version at hand into dist/, checks both, and runs jobs with the
wheel in a new virtual environment. Uploads nothing. Run by `make release`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from build.util import project_wheel_metadata

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def main() -> None:
    version = project_wheel_metadata(ROOT, isolated=False)["Version"]
    heading = changelog_heading((ROOT / "CHANGELOG.md").read_text(), version)
    shutil.rmtree(DIST, ignore_errors=True)
    # the wheel is made of the sdist: so the sdist holds all that there is to install
    python("-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    python("-m", "twine", "check", "--strict", wheel, sdist)
    (smoke_test,) = (ROOT / "integration_tests").rglob("test_wheel.py")
    python("-m", "pytest", "-q", smoke_test, EO_KAFKA_TEST_WHEEL=str(wheel))
    print(f"\n{wheel.name} and {sdist.name} in {DIST} are good. Nothing was uploaded.")
    if "unreleased" in heading:
        print(f"Before a release: CHANGELOG.md still says '{heading}'.")


def changelog_heading(changelog: str, version: str) -> str:
    """The heading of the version's section. Exits if there is none, or nothing below it."""
    found = re.search(rf"^## {re.escape(version)}(?: .*)?$", changelog, re.MULTILINE)
    if found is None:
        sys.exit(f"CHANGELOG.md has no section '## {version}'.")
    if not changelog[found.end() :].partition("\n## ")[0].strip():
        sys.exit(f"CHANGELOG.md says nothing below '{found[0]}'.")
    return found[0]


def python(*words: str | Path, **variables: str) -> None:
    """Run this interpreter, from the root. Raises if it fails."""
    subprocess.run([sys.executable, *words], check=True, cwd=ROOT, env={**os.environ, **variables})


if __name__ == "__main__":
    main()
