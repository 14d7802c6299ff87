"""The checkout is the package, by path; what runs is the installed one, whatever the checkout is
called and wherever a process was started."""

from __future__ import annotations

import importlib.util
import inspect
import os
import pickle
import re
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

import eo_kafka
from eo_kafka import errors
from eo_kafka.core import errors as core_errors

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "clients", "connectors", "formats", "sources", "sinks", "state", "tools")
# The root's __init__.py is the face of a package to pytest too, which imports it: it loads nothing.
INNER = """
import sys
from pathlib import Path

import eo_kafka


def test_what_is_offered_comes_from_where_it_is_installed():
    for name in eo_kafka._HOMES:
        getattr(eo_kafka, name)
    here = Path(__file__).parents[1]
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    ours = {Path(file) for file in files if file and here in Path(file).parents}
    assert ours - {here / "__init__.py"} == {Path(__file__)}
"""


@pytest.mark.parametrize("name", ["eo-kafka", "main", "eo_kafka"])
def test_a_checkout_of_any_name_tests_what_is_installed(name, tmp_path):
    checkout = tmp_path / name
    for package in PACKAGES:
        shutil.copytree(ROOT / package, checkout / package)
    for file in ("__init__.py", "errors.py", "registration.py", "pyproject.toml"):
        shutil.copy(ROOT / file, checkout)
    (checkout / "tests").mkdir()
    (checkout / "tests" / "test_inner.py").write_text(INNER)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    ran = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout


def test_a_process_started_in_the_checkout_takes_what_is_installed():
    code = "import eo_kafka.tools.cli, pyspark_eo_kafka as m; print(eo_kafka.__file__, m.__file__)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == [
        eo_kafka.__file__,
        importlib.util.find_spec("pyspark_eo_kafka").origin,
    ]
    assert os.path.relpath(eo_kafka.__file__, ROOT) != "__init__.py"


def test_the_package_offers_every_error():
    ours = {
        name
        for name, found in vars(core_errors).items()
        if inspect.isclass(found) and issubclass(found, core_errors.EoKafkaError)
    }
    assert set(errors.__all__) == ours
    assert all(getattr(errors, name) is getattr(core_errors, name) for name in ours)


def test_no_error_that_users_see_has_a_name_that_they_cannot_import():
    """All stand in one file; those of `eo-kafka broker` never leave its command."""
    derived = re.compile(rf"^class \w+\(({'|'.join(errors.__all__)})\):", re.MULTILINE)
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("clients", "connectors", "core", "formats", "sinks", "sources", "state")
        for path in (ROOT / package).rglob("*.py")
        if derived.search(path.read_text())
    }
    assert found == {"core/errors.py"}


def test_a_traceback_shows_the_name_that_programs_import():
    sent = pickle.loads(pickle.dumps(errors.Fenced("why")))
    assert (type(sent), str(sent)) == (errors.Fenced, "why")
    assert traceback.format_exception_only(sent) == ["eo_kafka.errors.Fenced: why\n"]
