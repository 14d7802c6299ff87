"""The import rule and the house numbers, so that they stay true."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# A package may import itself and these. `eo_kafka` alone stands for core.
MAY_IMPORT = {
    "core": {"core"},
    "state": {"core", "state"},
    "formats": {"core", "state", "formats"},
    "sources": {"core", "state", "sources"},
    "sinks": {"core", "state", "sinks"},
    "connectors": {"core", "formats", "state", "sources", "sinks", "connectors"},
    "broker": {"core", "broker"},
}
FILE_LINES_MAX = 340
FUNCTION_LINES_MAX = 60
CLIENTS = {"Producer", "Consumer", "AdminClient", "SerializingProducer", "DeserializingConsumer"}
FACADE = ROOT / "core" / "__init__.py"  # imports what it offers when that is used
CODE = [path for package in MAY_IMPORT for path in sorted((ROOT / package).glob("*.py"))]


def package_of(module: str) -> str | None:
    """The folder that an imported module of ours lies in."""
    parts = module.split(".")
    if parts[0] != "eo_kafka":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else "core"


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: imports are absolute"
            found.append(node.module)
            if node.module == "eo_kafka":
                found += [f"eo_kafka.{name.name}" for name in node.names]
    return found


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_imports_go_one_way(path):
    package = path.parent.name if path != FACADE else "connectors"
    for module in imports(path):
        target = package_of(module)
        assert target is None or target in MAY_IMPORT[package], f"{package} imports {module}"


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_only_connectors_know_sparks_data_source_interface(path):
    if path.parent.name != "connectors":
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
    for package in MAY_IMPORT:
        name = "eo_kafka" if package == "core" else f"eo_kafka.{package}"
        assert f"    {name} = {package}\n" in text
        assert f"    {name}\n" in text


def test_nothing_unpickles_what_comes_from_a_topic():
    for path in CODE:
        assert not {"pickle", "cloudpickle", "marshal"} & set(imports(path)), path


@pytest.mark.parametrize("path", CODE, ids=name_of)
def test_clients_of_librdkafka_are_made_in_one_place(path):
    """There each is told to create no topic by asking about it."""
    if name_of(path) == "core/kafka_config.py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("confluent_kafka"):
            assert not CLIENTS & {one.name for one in node.names}, node.lineno
        if isinstance(node, ast.Attribute):
            assert node.attr not in CLIENTS, node.lineno
