"""What the documents say of the code is still so."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import re
import shlex
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import eo_kafka
from eo_kafka.tools.new import project
from eo_kafka.tools.run import command
from eo_kafka.tools.run.supervisor import LAST_S, STOP_S, ExitCode

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("core", "clients", "connectors", "formats", "sources", "sinks", "state", "tools", "broker"),
    "testing",
)
README = ROOT / "README.md"
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def script(name: str) -> ModuleType:
    """A script in docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["generate_options", "generate_pypi", "generate_templates"])
def test_a_page_that_is_generated_is_up_to_date(name):
    generator = script(name)
    assert generator.PAGE.read_text() == generator.page(), f"run python docs/{name}.py"


def test_pictures_of_templates_are_what_their_models_say():
    generator = script("generate_templates")
    for template in project.questions():
        picture = (ROOT / "templates" / template / "picture.txt").read_text()
        assert picture == f"{generator.picture(template)}\n", (
            "run python docs/generate_templates.py"
        )


def test_readme_fits_on_a_screen_and_a_half():
    text = README.read_text()
    assert len(text.splitlines()) <= 110
    assert len(text.split()) <= 600


def test_pictures_and_the_demos_figures_are_those_of_the_measurements():
    draw = script("draw")
    for name, picture in draw.PICTURES.items():
        assert (ROOT / "docs" / name).read_text() == picture(), "run python docs/draw.py"
        assert f"](docs/{name})" in README.read_text()
    assert f"```text\n{draw.side_by_side()}\n```" in README.read_text(), "run python docs/draw.py"


def test_every_page_is_in_the_sites_navigation_and_says_its_question():
    """Pages that a program writes are in the navigation, too; they say what they are."""
    navigation = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    for page in sorted((ROOT / "docs").rglob("*.md")):
        if page.name == "pypi.md":
            continue
        name = page.relative_to(ROOT / "docs").as_posix()
        assert f": {name}\n" in navigation or f"- {name}\n" in navigation, name
        if page.parent.name in ("docs", "how-to"):
            _, question, *_ = page.read_text().split("\n\n")
            assert question.endswith("?") and len(question) < 150, f"{name}: {question}"


def test_every_public_name_is_explained():
    """Each has its place on the page of the API, and a docstring in Google's sections."""
    page = (ROOT / "docs" / "api.md").read_text()
    for name in eo_kafka._HOMES:
        assert f"::: eo_kafka.{name}\n" in page, name
        if name in ("from_avro", "to_avro"):
            found: Any = getattr(import_module("eo_kafka.formats.columns"), name)
        else:
            found = getattr(eo_kafka, name)
        sections = ["Args:", "Raises:", "Examples:"]
        if not isinstance(found, type) and inspect.signature(found).return_annotation != "None":
            sections.append("Returns:")
        for section in sections:
            assert f"\n{section}\n" in inspect.getdoc(found), f"{name} has no {section}"


def test_settings_of_supervisors_are_those_of_the_command():
    """How systemd and Kubernetes start `eo-kafka run`, and with which codes they do not again."""
    page = (ROOT / "docs" / "how-to" / "run-a-job.md").read_text()
    (unit,) = re.findall(r"```ini\n(.*?)```", page, re.DOTALL)
    (pod,) = [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    final = [ExitCode.USAGE, ExitCode.PERSON, ExitCode.SUPERSEDED, ExitCode.CANCELLED]
    (rule,) = pod["spec"]["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["values"] == final
    assert f"\nRestartPreventExitStatus={' '.join(map(str, map(int, final)))}\n" in unit
    assert pod["spec"]["completions"] > pod["spec"]["backoffLimit"], "0 is no end: SIGTERM gives it"
    assert pod["spec"]["parallelism"] == 1
    probe = container["livenessProbe"]
    assert probe["timeoutSeconds"] >= 10 and probe["failureThreshold"] > 3, "it starts a Python"
    told = shlex.split(re.search(r"ExecStart=(.*)", unit)[1])
    for words in (told, container["command"]):
        assert words[0].endswith("eo-kafka") and words[1] == "run"
        parser = argparse.ArgumentParser(exit_on_error=False)
        command.add_arguments(parser)
        wanted = command.checked(parser.parse_args(words[2:]))
        assert wanted.function == "shout:build" and wanted.config["checkpoint"] == "/data/shout"
    times = wanted.grace_s + STOP_S + LAST_S  # the longest that an end takes
    assert pod["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > times
    assert int(re.search(r"TimeoutStopSec=(\d+)", unit)[1]) > times


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
        for folder in ("tests", "integration_tests", "examples")
        for path in (ROOT / folder).rglob("*.py")
    ]
    for name in re.findall(r"\b(test_\w+)\b(?!\.py)", text):
        known = any(f"def {name}" in source for source in code)
        assert known or any((ROOT / "tests").rglob(f"{name}.py")), name
    folders = "|".join((*PACKAGES, "tests", "integration_tests"))
    for path in re.findall(rf"`((?:{folders})/[\w/]+\.py)", text):
        assert (ROOT / path).exists(), path


def test_the_file_map_is_what_the_modules_say():
    generator = script("generate_file_map")
    assert generator.PAGE.read_text() == generator.page(), "run python docs/generate_file_map.py"
    assert set(PACKAGES) < set(generator.FOLDERS)
