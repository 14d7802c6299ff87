"""Templates, without Spark: odd records, as models see them, and what their image must hold."""

from __future__ import annotations

import base64
import configparser
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from eo_kafka.tools.new import project

ROOT = Path(__file__).parents[2]
UNTOLD = b"__debezium_unavailable_value"
SPELLINGS = {
    "text": UNTOLD.decode(),
    "texts": [UNTOLD.decode()],
    "bytes": base64.b64encode(UNTOLD).decode(),
    "hex": UNTOLD.hex(),
    "integers": [*UNTOLD],
    "doubles": [*map(float, UNTOLD)],
    "uuids": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],  # of Java's UUID.nameUUIDFromBytes
}


def said(template: str, folder: Path, code: str) -> Any:
    """What a project's code prints, of JSON."""
    project.make(template, folder / "my-job", "my-job", {})
    command = [sys.executable, "-c", f"import json\n{code}"]
    done = subprocess.run(command, cwd=folder / "my-job", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def expected(template: str, folder: Path, records: list[Any]) -> Any:
    """What a template's model makes of records."""
    code = f"from model import expected\nprint(json.dumps(expected({records!r}, None)))"
    return said(template, folder, code)["sink"]


def test_what_debezium_does_not_tell_is_seen_however_it_is_spelt(tmp_path: Path) -> None:
    pattern = said("cdc", tmp_path, "import debezium; print(json.dumps(debezium._untold()))")
    for name, value in SPELLINGS.items():
        assert re.search(pattern, json.dumps({"id": 1, name: value}, separators=(",", ":"))), name
    for value in ("unavailable", "X19k", [95, 95, 100], [*UNTOLD[:-1]], UNTOLD[1:].decode()):
        assert not re.search(pattern, json.dumps({"id": 1, "a": value}, separators=(",", ":")))


@pytest.mark.parametrize("template", ["cdc", "upsert-postgres"])
def test_a_row_that_gets_another_key_is_there_under_that_key_only(
    template: str, tmp_path: Path
) -> None:
    old, new = {"id": 1, "name": "Ada"}, {"id": 2, "name": "Ada"}
    created = {"op": "c", "before": None, "after": old}
    moved = {"op": "u", "before": old, "after": new}
    rows = expected(template, tmp_path, [("source", "k", created), ("source", "k", moved)])
    assert [row for row in rows if row[1]] == [["2", new]]


def test_models_know_records_without_a_value(tmp_path: Path) -> None:
    assert expected("backfill", tmp_path / "b", [("source", "k", None)]) == [["k", None]]
    purchase = {"customer": "c", "item": "rug"}
    records = [("customers", "c", None), ("source", "k", None), ("source", "l", purchase)]
    assert expected("enrich", tmp_path / "e", records) == [["k", None], ["l", purchase]]


def needed(line: str, found: set[str]) -> set[str]:
    """The names of what a requirement needs, with those that these need."""
    one = Requirement(line)
    if str(one) in found:
        return found
    found.add(str(one))
    for line in importlib.metadata.requires(one.name) or ():
        other = Requirement(line)
        extras = [{"extra": extra, "python_version": "3.11"} for extra in ("", *one.extras)]
        if other.marker is None or any(other.marker.evaluate(extra) for extra in extras):
            other.marker = None  # met
            needed(str(other), found)
    return found


@pytest.mark.parametrize("template", project.questions())
def test_the_image_of_a_job_holds_what_its_template_needs(template: str) -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    *_, path = (
        one
        for folder in project.folders(template)
        if (one := project.TEMPLATES / folder / "requirements.txt").exists()
    )
    job, _, tests = path.read_text().partition("# for the tests")
    both = job if "also for the setting" not in tests else job + tests
    extras = {name for found in re.findall(r"eo-kafka\[(.+)\]", both) for name in found.split(",")}
    lines = (ROOT / "docker" / "job" / "requirements.txt").read_text().splitlines()
    held = {line.partition("==")[0].lower() for line in lines}
    for extra in extras - {"testing"}:
        for line in setup["options.extras_require"][extra].strip().splitlines():
            if not line.startswith("#"):
                names = {canonicalize_name(Requirement(one).name) for one in needed(line, set())}
                assert names <= held, f"{extra}: {names - held}"
