"""How long tests took, as the integration tests' runs are ordered by it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import balance

REPORT = """<testsuites><testsuite>
<testcase classname="tests.project.test_docs" name="test_a[x]" time="2.04"/>
<testcase classname="tests.project.test_docs" name="test_b" time="0.3"/>
<testcase classname="tests.project.test_docs.TestClass" name="test_c" time="0.3"/>
<testcase classname="tests.project.test_docs" name="test_d" time="9"><skipped/></testcase>
<testcase classname="tests.test_no_such" name="test_e" time="9"/>
</testsuite></testsuites>"""


def config(turn: int | None = None, **attributes: object) -> SimpleNamespace:
    deselected: list[SimpleNamespace] = []

    def deselect(items: list[SimpleNamespace]) -> None:
        deselected.extend(items)

    hook = SimpleNamespace(pytest_deselected=deselect)
    return SimpleNamespace(getoption=lambda _: turn, hook=hook, deselected=deselected, **attributes)


@pytest.fixture
def durations(tmp_path, monkeypatch):
    path = tmp_path / "durations.json"
    monkeypatch.setattr(balance, "DURATIONS", path)
    monkeypatch.setattr(balance, "ROOT", tmp_path)
    return path


def test_a_report_replaces_what_is_known_of_its_tests(durations, tmp_path):
    """A turn's report has not all tests of a file."""
    (tmp_path / "tests/project").mkdir(parents=True)
    (tmp_path / "tests/project/test_docs.py").write_text("def test_a(x): ...\ndef test_f(x): ...")
    (tmp_path / "tests/project/test_architecture.py").touch()
    gone, other = {"": 5.0}, {"": 1.0}
    known = {"": 7.0, "test_old": 3.0, "test_a[x]": 9.0, "test_f[1]": 4.0}
    before = {"tests/project/test_docs.py": known, "tests/test_gone.py": gone}
    durations.write_text(json.dumps({**before, "tests/project/test_architecture.py": other}))
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    balance.take([report])
    assert balance.read() == {
        "tests/project/test_architecture.py": other,
        "tests/project/test_docs.py": {"": 0.6, "test_a[x]": 2.0, "test_f[1]": 4.0},
    }
    assert balance.minutes_of_groups() == {"unit": pytest.approx(7.6 / 60)}


def items(*names: str, smoke: str = "") -> list[SimpleNamespace]:
    return [
        SimpleNamespace(
            nodeid=name,
            name=name.partition("::")[2],
            get_closest_marker=lambda _, marked=name == smoke: marked or None,
        )
        for name in names
    ]


def test_the_longest_files_begin_and_those_nobody_has_measured_before_them(durations):
    durations.write_text(json.dumps({"short.py": {"": 1.0}, "long.py": {"a": 2.0, "": 1.5}}))
    given = items("short.py::a", "long.py::b", "long.py::a", "new.py::a")
    balance.pytest_collection_modifyitems(config(workerinput={}), given)
    order = [item.nodeid for item in given]
    assert order == ["new.py::a", "long.py::b", "long.py::a", "short.py::a"]


def test_a_run_without_workers_keeps_the_order_of_the_files(durations):
    durations.write_text(json.dumps({"b.py": {"": 1.0}}))
    given = items("b.py::a", "a.py::a")
    balance.pytest_collection_modifyitems(config(), given)
    assert [item.nodeid for item in given] == ["b.py::a", "a.py::a"]


def test_long_tests_have_one_of_three_turns_and_the_others_are_in_all(durations):
    measured = {"a.py": {"a": 9.0, "b": 8.0, "c": 7.0, "": 9.0}, "b.py": {"a": 8.5, "d": 2.9}}
    durations.write_text(json.dumps(measured))
    names = ["a.py::a", "a.py::b", "a.py::c", "a.py::short", "b.py::a", "b.py::d", "new.py::a"]
    in_all = {"a.py::c", "a.py::short", "b.py::d", "new.py::a"}
    for turn, wanted in enumerate(["a.py::a", "b.py::a", "a.py::b"]):
        given, of_turn = items(*names, smoke="a.py::c"), config(turn)
        balance.pytest_collection_modifyitems(of_turn, given)
        assert {item.nodeid for item in given} == {wanted, *in_all}
        assert sorted(names) == sorted([item.nodeid for item in [*given, *of_turn.deselected]])
