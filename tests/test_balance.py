"""How long tests took, as the integration tests' runs are ordered by it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import balance

REPORT = """<testsuites><testsuite>
<testcase classname="tests.test_docs" name="test_a[x]" time="2.04"/>
<testcase classname="tests.test_docs" name="test_b" time="0.3"/>
<testcase classname="tests.test_docs.TestClass" name="test_c" time="0.3"/>
<testcase classname="tests.test_docs" name="test_d" time="9"><skipped/></testcase>
<testcase classname="tests.test_no_such" name="test_e" time="9"/>
</testsuite></testsuites>"""
IN_A_WORKER = SimpleNamespace(workerinput={})


@pytest.fixture
def durations(tmp_path, monkeypatch):
    path = tmp_path / "durations.json"
    monkeypatch.setattr(balance, "DURATIONS", path)
    return path


def test_a_report_replaces_what_is_known_of_its_files(durations, tmp_path):
    gone, other = {"": 5.0}, {"": 1.0}
    before = {"tests/test_docs.py": {"test_old": 3.0}, "tests/test_gone.py": gone}
    durations.write_text(json.dumps({**before, "tests/test_architecture.py": other}))
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    balance.take([report])
    assert balance.read() == {
        "tests/test_architecture.py": other,
        "tests/test_docs.py": {"": 0.6, "test_a[x]": 2.0},
    }
    assert balance.minutes_of_groups() == {"unit": pytest.approx(3.6 / 60)}


def items(*names: str) -> list[SimpleNamespace]:
    return [SimpleNamespace(nodeid=name) for name in names]


def test_the_longest_files_begin_and_those_nobody_has_measured_before_them(durations):
    durations.write_text(json.dumps({"short.py": {"": 1.0}, "long.py": {"a": 2.0, "": 1.5}}))
    given = items("short.py::a", "long.py::b", "long.py::a", "new.py::a")
    balance.pytest_collection_modifyitems(IN_A_WORKER, given)
    order = [item.nodeid for item in given]
    assert order == ["new.py::a", "long.py::b", "long.py::a", "short.py::a"]


def test_a_run_without_workers_keeps_the_order_of_the_files(durations):
    durations.write_text(json.dumps({"b.py": {"": 1.0}}))
    given = items("b.py::a", "a.py::a")
    balance.pytest_collection_modifyitems(SimpleNamespace(), given)
    assert [item.nodeid for item in given] == ["b.py::a", "a.py::a"]
