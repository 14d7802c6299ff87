"""`eo-kafka job list | history | delete` with real ledgers and real open transactions."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.settings import free_port
from eo_kafka.errors import CorruptLedger
from eo_kafka.sinks.protocol import committer, preflight
from eo_kafka.state.ledger.records import GENERATION_KEY, encode_generation
from eo_kafka.testing.processes import killed_at_last
from eo_kafka.tools.cli import main
from eo_kafka.tools.jobs import tails
from hand_made_job import HandMadeJob
from harness import delete_records, wait_until

GOLDEN = Path(__file__).parents[2] / "tests/golden/ledger_v1.json"


@pytest.fixture
def tool(own: KafkaBroker, capsys):
    """Runs a command: (exit code, its JSON, its text or its error)."""

    def run(action: str, *words: str, parse: bool = True):
        capsys.readouterr()
        where = ["--bootstrap-servers", own.bootstrap_servers]
        code = main(["job", action, *words, *where, *(["--json"] if parse else [])])
        said = capsys.readouterr()
        if not said.out:
            return code, said.err
        return code, json.loads(said.out) if parse else said.out

    return run


@pytest.fixture
def make_job(own, own_topic, tmp_path):
    """A job under a name, which reads topic `in`."""
    admin = AdminClient({"bootstrap.servers": own.bootstrap_servers})
    admin.create_topics([NewTopic("in", 2)])["in"].result(30)

    def make(name: str) -> HandMadeJob:
        return HandMadeJob(own.bootstrap_servers, own_topic("out"), name, tmp_path / name)

    return make


def write(servers: str, topic: str, records: list[tuple[bytes, bytes]], partition: int = 0) -> None:
    client = Producer({"bootstrap.servers": servers})
    for key, value in records:
        client.produce(topic, value, key, partition)
    assert client.flush(30) == 0


def load(servers: str, job: str, records: list[tuple[bytes, bytes]]) -> None:
    """A ledger with these decisions."""
    topic = f"__eo_kafka.{job}.ledger"
    compacted = {"cleanup.policy": "compact"}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, 2, config=compacted)])[topic].result(30)
    write(servers, topic, records)


def golden() -> list[tuple[bytes, bytes]]:
    return [(key.encode(), value.encode()) for key, value in json.loads(GOLDEN.read_text())]


def newer() -> tuple[bytes, bytes]:
    """What an eo-kafka of another format would write."""
    return b"generation", b'{"v":2,"generation":9,"zone":"b"}'


def scraped(servers: str) -> dict[tuple[str, ...], float]:
    """What `eo-kafka job metrics` answers; it ends in order."""
    port = str(free_port())
    words = ["job", "metrics", "--listen", port, "--bootstrap-servers", servers]
    command = [sys.executable, "-m", "eo_kafka.tools.cli", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"Answers on http://127.0.0.1:{port}/metrics\n"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            families = [*text_string_to_metric_families(answer.read().decode())]
        process.terminate()
        assert process.wait(30) == 0
    samples = [sample for family in families for sample in family.samples]
    return {(one.name, *one.labels.values()): one.value for one in samples}


def test_every_job_is_a_row_whatever_its_ledger_says(own, make_job, tool):
    servers = own.bootstrap_servers
    quiet, writing, decided = (make_job(name) for name in ("quiet", "writing", "decided"))
    quiet.run(0, 1)
    write(servers, "in", [(b"", b"%d" % number) for number in range(50)])
    writing.run(0)
    writing.begin(1)
    open_tasks = writing.prepare(1)
    decided.begin(0)
    reports = decided.prepare(0)
    load(servers, "newer", [newer()])
    load(servers, "foreign", [(b"hello", b"world")])
    load(servers, "empty", [])
    loose = Producer({"bootstrap.servers": servers, "transactional.id": "eo-kafka.0123456789ab.c"})
    loose.init_transactions(30)
    loose.begin_transaction()
    loose.produce("in", b"loose", partition=1)
    loose.flush(30)

    code, shown = tool("list")
    jobs = {one["job"]: one for one in shown["jobs"]}
    assert code == 3  # two ledgers cannot be read
    assert {name: one["state"] for name, one in jobs.items()} == {
        "quiet": "quiet",
        "writing": "open",
        "decided": "open",
        "newer": "unreadable",
        "foreign": "unreadable",
        "empty": "new",
        "eo-kafka.0123456789ab": "no ledger",
    }
    found = jobs["quiet"]
    assert (found["lastBatch"]["batch"], found["lastBatch"]["rows"]) == (1, 10)
    assert found["lastBatch"]["state"] == "DONE" and found["format"] == 1
    assert abs(found["lastBatch"]["doneMs"] / 1000 - time.time()) < 60
    lag = {"offsets": 30, "atLeast": True, "unknown": None, "gone": None}  # 50 - 20; in-1: none
    assert found["lag"] == lag
    assert found["snapshot"]["batch"] == 1 and found["owner"] == quiet.query
    assert jobs["writing"]["openTransactions"] == 1
    assert 0 < jobs["writing"]["remainingMs"] <= 60_000
    assert "Run that version" in jobs["newer"]["problem"]
    assert "Unknown ledger record" in jobs["foreign"]["problem"]
    assert jobs["empty"]["lastBatch"] is None and jobs["empty"]["lag"]["offsets"] is None

    told = scraped(servers)
    assert told["eo_kafka_job_state", "quiet", "quiet"] == 1
    assert told["eo_kafka_job_state", "newer", "unreadable"] == 1
    assert told["eo_kafka_job_state", "newer", "quiet"] == 0
    assert told["eo_kafka_job_batch", "quiet"] == 1
    assert told["eo_kafka_job_lag_records", "quiet"] == 30
    assert told["eo_kafka_job_input_deleted", "quiet"] == 0
    assert ("eo_kafka_job_input_deleted", "empty") not in told
    assert told["eo_kafka_job_open_transactions", "writing"] == 1
    assert told["eo_kafka_job_open_transactions", "quiet"] == 0
    assert 0 < told["eo_kafka_job_transaction_timeout_seconds", "writing"] <= 60
    assert told["eo_kafka_job_oldest_transaction_seconds", "writing"] < 60
    assert ("eo_kafka_job_batch", "empty") not in told

    code, text = tool("list", parse=False)
    assert code == 3
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert lines["quiet"].split()[1:3] == ["quiet", "1"] and ">=30" in lines["quiet"]
    committer.commit(decided.options, reports, 0)
    assert open_tasks and "newer  __eo_kafka.newer.ledger" in text
    loose.abort_transaction(30)

    delete_records(servers, "in", 40)
    (found,) = (one for one in tool("list")[1]["jobs"] if one["job"] == "quiet")
    assert "Offsets 20 to 39 of in-0 are deleted" in found["lag"].pop("gone")
    assert found["lag"] == {"offsets": 30, "atLeast": True, "unknown": None}
    assert "retention was faster" in tool("list", parse=False)[1]
    assert scraped(servers)["eo_kafka_job_input_deleted", "quiet"] == 1


def test_a_ledger_of_todays_format_is_read_for_ever_and_a_newer_one_is_refused(own, make_job, tool):
    records = golden()
    load(own.bootstrap_servers, "golden", records)
    code, shown = tool("history", "golden", "--limit", "2")
    assert code == 0
    facts = [
        (one["batch"], one["state"], one["rows"], one["tasks"], one["offsets"])
        for one in shown["batches"]
    ]
    assert facts == [
        (1, "DONE", 10, 1, ['{"in":{"0":20}}']),
        (2, "DONE", 10, 1, ['{"in":{"0":30}}']),
    ]
    (row,) = (one for one in tool("list")[1]["jobs"] if one["job"] == "golden")
    assert (row["generation"], row["snapshot"]["batch"]) == (3, 2)
    code, text = tool("history", "golden", parse=False)
    assert code == 0 and [line.split()[0] for line in text.splitlines()] == ["batch", "0", "1", "2"]

    topic = "__eo_kafka.golden.ledger"
    write(own.bootstrap_servers, topic, [newer()])
    job = make_job("golden")
    job.query = row["owner"]
    job.begin(3)
    with pytest.raises(CorruptLedger, match="of format 2.*reads format 1.*Run that version"):
        job.prepare(3)
    assert job.visible.total() == 0
    code, error = tool("history", "golden")
    assert code == 1 and "Run that version" in error


def test_a_job_that_died_a_thousand_times_before_its_batch_is_known_by_its_last_one(own, tool):
    """Each start writes a generation: the newest offsets of the ledger have no batch any more."""
    starts = [(GENERATION_KEY, encode_generation(number)) for number in range(4, tails.TAIL + 20)]
    load(own.bootstrap_servers, "loops", [*golden(), *starts])
    load(own.bootstrap_servers, "decided", [*golden()[:3], *starts])
    load(own.bootstrap_servers, "never", starts)
    code, shown = tool("list")
    jobs = {one["job"]: one for one in shown["jobs"]}
    assert code == 0
    assert {name: one["state"] for name, one in jobs.items()} == {
        "loops": "quiet",
        "decided": "decided",
        "never": "new",
    }
    assert jobs["loops"]["lastBatch"]["batch"] == 2 and jobs["loops"]["owner"] is not None
    assert jobs["loops"]["generation"] == tails.TAIL + 19


def test_hundreds_of_ledgers_are_listed_in_seconds(own, tool):
    servers, records = own.bootstrap_servers, golden()
    admin = AdminClient({"bootstrap.servers": servers})
    names = [f"__eo_kafka.many-{number}.ledger" for number in range(200)]
    compacted = {"cleanup.policy": "compact"}
    made = admin.create_topics([NewTopic(name, 2, config=compacted) for name in names])
    for future in made.values():
        future.result(60)
    client = Producer({"bootstrap.servers": servers})
    for name in names:
        for key, value in records:
            client.produce(name, value, key, 0)
    assert client.flush(60) == 0
    began = time.monotonic()
    code, shown = tool("list")
    took = time.monotonic() - began
    assert code == 0 and len(shown["jobs"]) == 200
    assert {one["lastBatch"]["batch"] for one in shown["jobs"]} == {2}
    assert took < 10, f"{took:.1f} s"


def test_a_job_is_deleted_only_if_nothing_says_that_it_runs_and_starts_anew(own, make_job, tool):
    job = make_job("gone")
    job.run(0)
    now = ["--quiet-for", "1ms"]
    code, error = tool("delete", "gone", "--yes")
    assert code == 1 and "its ledger was written" in error and "Nothing was changed" in error
    job.begin(1)
    reports = job.prepare(1)
    code, error = tool("delete", "gone", "--yes", *now)
    assert code == 1 and "1 transactions are open" in error
    committer.commit(job.options, reports, 1)
    code, said = tool("delete", "gone", *now, parse=False)
    assert code == 1 and "Nothing was deleted: --yes does it" in said
    assert "'__eo_kafka.gone.state', '__eo_kafka.gone.ledger'" in said
    assert tool("history", "gone")[0] == 0

    code, done = tool("delete", "gone", "--yes", *now)
    assert code == 0
    assert done["deleted"] == ["__eo_kafka.gone.state", "__eo_kafka.gone.ledger"]
    assert tool("list") == (0, {"jobs": []})
    code, error = tool("delete", "gone", "--yes", *now)
    assert code == 1 and "has nothing here" in error
    preflight._checked.clear()  # as another driver
    job.run(2)  # goes on from its checkpoint: a new ledger, and nothing twice
    assert job.visible.total() == 30 and max(job.visible.values()) == 1


def test_a_job_is_watched_while_it_works_and_while_kafka_is_away(own, make_job, capsys, tmp_path):
    where = ["--bootstrap-servers", own.bootstrap_servers]
    job = make_job("watched")
    job.run(0, 1)
    assert main(["watch", "watched", "--once", "--json", *where]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["jobs"]
    assert [one["batch"] for one in shown["batches"]] == [0, 1]
    assert main(["watch", "another", "--once", *where]) == 1
    assert "No ledger of job 'another'" in capsys.readouterr().err

    said = tmp_path / "said"
    command = [sys.executable, "-m", "eo_kafka.tools.cli", "watch", "watched", "--every", "300ms"]
    with said.open("w") as file:
        process = subprocess.Popen([*command, *where], stdout=file)
    with killed_at_last(process.pid):
        wait_until(lambda: "quiet" in said.read_text(), "it is shown")
        job.run(2)
        wait_until(lambda: row_of_batch(2, said.read_text()), "its next batch")
        own.kill()
        wait_until(lambda: "No Kafka broker" in said.read_text(), "Kafka is away", 120)
        own.start()
        before = len(said.read_text())
        wait_until(lambda: row_of_batch(2, said.read_text()[before:]), "it is back", 120)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def row_of_batch(number: int, said: str) -> bool:
    """Whether a line of its history is there."""
    return re.search(rf"(?m)^ *{number} +0 +DONE ", said) is not None
