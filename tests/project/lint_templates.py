"""mypy --strict on a project of each template, as `eo-kafka new` writes it: `make lint` runs it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from eo_kafka.tools.new import project

SETTINGS = Path(__file__).parents[2] / "pyproject.toml"


def main() -> int:
    """The exit code."""
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        for template in project.questions():
            made = Path(folder, template)
            project.make(template, made, template, {})
            names = [path.name for path in sorted(made.glob("*.py"))]
            command = [sys.executable, "-m", "mypy", "--config-file", SETTINGS, *names]
            cache = ["--cache-dir", SETTINGS.parent / ".mypy_cache" / "templates"]
            ran = subprocess.run([*command, *cache], cwd=made, capture_output=True, text=True)
            print(f"{template}: {ran.stdout or ran.stderr}", end="")
            code |= ran.returncode
    return code


if __name__ == "__main__":
    sys.exit(main())
