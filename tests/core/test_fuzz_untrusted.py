"""Nothing that came from a topic, a broker or a checkpoint is run, and little of it is repeated:
no product code can unpickle or evaluate, and what travels from tasks to the driver is bounded."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pytest

from eo_kafka.core.errors import MESSAGE_MAX, cut
from eo_kafka.core.transaction import Decision, DecisionState, Identity, Participant
from eo_kafka.errors import EoKafkaError, OptionsError, WriteFailed
from eo_kafka.sinks.batches.committable import TaskReport, Torn

ROOT = Path(__file__).parents[2]
PACKAGES = (
    *("core", "clients", "connectors", "formats", "sources", "sinks", "state", "tools", "broker"),
)
# Modules that turn bytes into code or objects of any class.
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "yaml",
    "jsonpickle",
    "joblib",
    "code",
    "codeop",
    "runpy",
}
# Errors of theirs, which run nothing.
HARMLESS = {"PickleError"}
CALLS = {"eval", "exec", "compile", "__import__", "read_pickle"}
# Each exception with the reason why no data from outside gets there.
ALLOWED: dict[str, str] = {}


def dangers(source: str) -> list[str]:
    """What in `source` can run data: imports of MODULES, calls of CALLS, numpy's allow_pickle."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            harmless = {alias.name for alias in node.names} <= HARMLESS
            names = [] if harmless else [(node.module or "").split(".")[0]]
        elif isinstance(node, ast.Call):
            name = node.func
            called = name.id if isinstance(name, ast.Name) else getattr(name, "attr", "")
            plain = isinstance(name, ast.Name) or called == "read_pickle"
            names = [called] if plain and called in CALLS else []
            names += [word.arg for word in node.keywords if word.arg == "allow_pickle"]
        else:
            continue
        found += [
            f"line {node.lineno}: {name}"
            for name in names
            if name in MODULES | CALLS | {"allow_pickle"}
        ]
    return found


def product_files() -> list[Path]:
    found = [*ROOT.glob("*.py"), *(ROOT / "entry").glob("*.py")]
    for package in PACKAGES:
        found += sorted((ROOT / package).rglob("*.py"))
    return found


def test_no_product_code_can_unpickle_or_evaluate() -> None:
    files = product_files()
    assert len(files) > 50
    found = {
        str(path.relative_to(ROOT)): dangers(path.read_text())
        for path in files
        if str(path.relative_to(ROOT)) not in ALLOWED
    }
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "def f(x):\n    from pickle import loads\n    return loads(x)",
        "from cloudpickle import loads",
        "from pickle import PickleError, loads",
        "x = eval(y)",
        "exec(message.value())",
        "import yaml.loader",
        "m = __import__(name)",
        "np.load(f, allow_pickle=True)",
        "pd.read_pickle(f)",
    ],
)
def test_the_scan_sees_what_it_looks_for(source: str) -> None:
    assert dangers(source)


def participant(number: int) -> Participant:
    identity = Identity(f"{'p' * 249}.0123456789ab.0123456789ab.p{number}.g3.a7", 2**62, 2**15 - 1)
    return Participant(number, 3, 2**40, identity, 2**40, "m1:" + "f" * 32)


def report(number: int, torn: Torn | None = None) -> TaskReport:
    return TaskReport(
        partition=number,
        batch=2**40,
        round=3,
        skipped=False,
        query_id="12345678-1234-1234-1234-123456789012",
        generation=2**40,
        end_txn_version=5,
        token_from=2**40,
        rows=2**40,
        digest="m1:" + "f" * 32,
        participant=participant(number),
        torn=torn,
    )


def test_a_report_has_the_same_small_size_for_every_task() -> None:
    sizes = [len(pickle.dumps(report(number))) for number in range(200)]

    assert max(sizes) - min(sizes) < 16
    assert max(sizes) < 1500  # with the longest prefix there is


def test_what_is_left_of_a_torn_batch_of_200_tasks_stays_below_100_kilobytes() -> None:
    everybody = tuple(participant(number) for number in range(200))
    decision = Decision("main", 1, 3, DecisionState.DECIDED, 2**40, 5, 1, 2**40, everybody)
    size = len(pickle.dumps(report(0, Torn(decision, everybody[::2]))))

    assert 200 * 100 < size < 100_000


def test_a_message_is_cut_in_the_middle_and_keeps_what_to_do() -> None:
    error = WriteFailed("Batch 1 failed: " + "row " * 1_000_000 + ". Do this.")

    assert len(str(error)) < MESSAGE_MAX + 100
    assert str(error).startswith("Batch 1 failed: ") and str(error).endswith(". Do this.")
    assert "characters" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is WriteFailed and str(again) == str(error)


def test_a_short_message_and_other_arguments_stay_as_they_are() -> None:
    assert EoKafkaError("Do this.", 7).args == ("Do this.", 7)
    assert OptionsError(["One.", "Two."]).problems == ("One.", "Two.")
    assert cut("x" * 200) == "x" * 200


def test_a_message_can_always_be_encoded() -> None:
    assert str(EoKafkaError("topic \ud800 é")).encode().decode() == r"topic \ud800 é"
