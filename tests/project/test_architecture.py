"""The import rule and the house numbers, so that they stay true."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A folder may import itself, these, and what these may import.
BELOW = {
    "entry": (
        *("connectors/files", "connectors/maps", "connectors/queues", "connectors/tables"),
        "connectors/targets",
    ),
    # the facade, which imports what it offers when that is used
    "": (
        *("connectors/direct", "connectors/files", "connectors/maps", "connectors/monitoring"),
        *("connectors/queues", "connectors/tables", "connectors/targets", "targets", "tools"),
        "windows",
    ),
    "core/process": (),
    "core": ("core/process",),
    "targets": ("core",),
    "targets/files": ("targets", "formats/json"),
    "windows": ("core",),
    "clients/kafka/login": ("core",),
    "clients/kafka": ("clients/kafka/login",),
    "clients/amqp": ("core",),
    "clients/hazelcast": ("core",),
    "clients/postgres": ("core",),
    "state/ledger": ("clients/kafka",),
    "state/snapshots": ("state/ledger",),
    "state": ("state/snapshots",),
    "formats/shared": ("core", "clients/kafka", "clients/hazelcast", "state"),
    "formats/json": ("formats/shared",),
    "formats/avro": ("formats/shared",),
    "formats/protobuf": ("formats/shared",),
    "formats/hazelcast": ("formats/shared",),
    "formats": ("formats/json", "formats/avro", "formats/protobuf", "formats/hazelcast"),
    "sources/fetch": ("state",),
    "sources/settings": ("state",),
    "sources": ("sources/fetch", "sources/settings"),
    "sources/maps": ("sources", "clients/hazelcast"),
    "sources/queues": ("sources", "clients/amqp"),
    "sinks": ("state",),
    "sinks/rows": ("sinks",),
    "sinks/transactions": ("sinks/rows",),
    "sinks/batches": ("sinks",),
    "sinks/protocol": ("sinks/transactions", "sinks/batches"),
    "sinks/maps": ("sinks/protocol", "clients/hazelcast"),
    "sinks/tables": ("sinks/protocol", "clients/postgres"),
    "sinks/targets": ("sinks/protocol", "targets"),
    "sinks/files": ("sinks/targets", "targets/files"),
    "connectors": ("formats", "sources", "sources/maps", "sinks/protocol", "sinks/maps"),
    "connectors/direct": (
        *("connectors", "connectors/files", "connectors/maps", "connectors/tables"),
        "connectors/targets",
    ),
    "connectors/files": ("connectors/targets", "sinks/files"),
    "connectors/maps": ("connectors",),
    "connectors/queues": ("connectors", "sources/queues"),
    "connectors/monitoring": ("connectors",),
    "connectors/tables": ("connectors", "sinks/tables"),
    "connectors/targets": ("connectors", "sinks/targets"),
    "broker": ("clients/kafka",),
    "tools/shared": ("broker", "sources", "sinks/maps", "sinks/tables", "sinks/files"),
    "tools/transactions": ("tools/shared",),
    "tools/control": ("tools/shared",),
    "tools/snapshots": ("tools/shared",),
    "tools/jobs": ("tools/transactions", "tools/run"),
    "tools/verify": ("tools/shared",),
    "tools/new": ("tools/shared",),
    "tools/prepare": ("formats", "sources", "sinks/rows"),
    "tools/doctor": ("tools/transactions", "tools/prepare"),
    "tools/explain": (
        *("tools/doctor", "connectors/monitoring", "connectors/direct", "sources/queues"),
    ),
    "tools/run": ("tools/control", "tools/snapshots", "connectors/monitoring"),
    "tools/ui": ("tools/doctor", "tools/jobs"),
    "tools": (
        *("tools/doctor", "tools/explain", "tools/jobs", "tools/new", "tools/snapshots"),
        *("tools/ui", "tools/verify"),
    ),
    "testing": ("tools/verify", "tools/run"),  # sinks/targets by tools/shared
}
PACKAGES = sorted({folder.split("/")[0] for folder in BELOW} - {"", "entry"})
FOLDERS = sorted({*PACKAGES, *BELOW} - {"", "entry"})  # all that are sub-packages
FILE_LINES_MAX = 340
FUNCTION_LINES_MAX = 60
CLIENTS = {
    *("Producer", "Consumer", "ShareConsumer", "AdminClient"),
    *("SerializingProducer", "DeserializingConsumer", "DeserializingShareConsumer"),
}
PRODUCT = [*sorted(ROOT.glob("*.py"))] + [
    path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
]
CODE = [*sorted((ROOT / "entry").glob("*.py")), *PRODUCT]
_DOTTED = re.compile(r"eo_kafka(?:\.\w+)+")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    parts = [part for part in path.relative_to(ROOT).with_suffix("").parts if part != "__init__"]
    return ".".join(["eo_kafka", *parts])


MODULES = {module_of(path): path for path in PRODUCT}


def absolute(path: Path, node: ast.ImportFrom) -> str:
    """The module that `from ... import` names in `path`."""
    if not node.level:
        return node.module or ""
    parts = ["eo_kafka", *path.relative_to(ROOT).parts[:-1]]
    return ".".join(
        [*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])]
    )


@cache
def imports(path: Path) -> list[str]:
    """The modules that a file names: in an import, or in a string, as one that is loaded later."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node)
            names = [f"{module}.{name.name}" for name in node.names]
            inner = [name for name in names if name in MODULES]
            found += inner if len(inner) == len(names) else [module, *inner]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [name for name in _DOTTED.findall(node.value) if name in MODULES]
    return found


@cache
def may_import(folder: str) -> frozenset[str]:
    return frozenset({folder}).union(*(may_import(below) for below in BELOW[folder]))


def folder_of(path: Path) -> str:
    return str(path.parent.relative_to(ROOT)).removeprefix(".")


def runs_up(path: Path, target: Path) -> bool:
    return folder_of(target) not in may_import(folder_of(path))


def arrows(path: Path) -> set[Path]:
    """The files of ours that a file imports."""
    return {MODULES[module] for module in imports(path) if module in MODULES} - {path}


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_imports_go_one_way(path):
    assert not [name_of(to) for to in arrows(path) if runs_up(path, to)]


def test_a_folder_below_knows_none_above():
    above = "connectors", "sinks/protocol", "broker", "tools"
    assert not {"tools", "connectors"} & may_import("sinks/maps")
    assert not set(above) & may_import("state")
    assert runs_up(ROOT / "state/view.py", ROOT / "sinks/options.py")
    assert not runs_up(ROOT / "sinks/options.py", ROOT / "state/view.py")


def test_every_file_lies_in_a_folder_of_the_rule():
    strays = {name_of(path) for path in CODE if folder_of(path) not in BELOW}
    assert strays == {"clients/__init__.py"}  # a package's face


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_only_connectors_know_sparks_data_source_interface(path):
    if not folder_of(path).startswith("connectors"):
        assert not [module for module in imports(path) if module == "pyspark.sql.datasource"]


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_files_and_functions_stay_short_and_say_what_they_are(path):
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says what it is"
    assert len(text.splitlines()) <= FILE_LINES_MAX
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or 0) - node.lineno + 1
            length -= len((ast.get_docstring(node, clean=False) or "").splitlines())
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"


def test_every_folder_is_installed():
    text = (ROOT / "setup.cfg").read_text()
    for folder in FOLDERS:
        assert (ROOT / folder / "__init__.py").exists()
        name = f"eo_kafka.{folder.replace('/', '.')}"
        assert f"    {name} = {folder}\n" in text
        assert f"    {name}\n" in text
    assert {folder_of(path) for path in CODE} == {*FOLDERS, "", "entry"}


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_imports_of_ours_are_relative(path):
    """An editor and a type checker follow them by path, whatever is installed."""
    for node in ast.walk(ast.parse(path.read_text())):
        modules = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
        assert not [name for name in modules if name.split(".")[0] == "eo_kafka"], node.lineno


def test_nothing_unpickles_what_comes_from_a_topic():
    """An error's class is all that is taken from such a module."""
    unpicklers = {"pickle", "cloudpickle", "marshal"}
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not unpicklers & {one.name for one in node.names}, path
            elif isinstance(node, ast.ImportFrom) and node.module in unpicklers:
                assert {one.name for one in node.names} == {"PickleError"}, path


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_clients_of_librdkafka_are_made_in_one_place(path):
    """There each is told to create no topic by asking about it."""
    if name_of(path) == "clients/kafka/config.py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("confluent_kafka"):
            assert not CLIENTS & {one.name for one in node.names}, node.lineno
        if isinstance(node, ast.Attribute):
            assert node.attr not in CLIENTS, node.lineno
