"""Commands that take long draw a bar on a terminal, to its end, and leave pipes as they were."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from eo_kafka.broker import jars
from eo_kafka.broker.postgres import _bundle
from hand_made_job import HandMadeJob
from harness import produce
from terminals import COMMAND, drawn, on_a_terminal


def in_a_pipe(words: Sequence[str]) -> tuple[int, str, str]:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "bundle",
    [jars._kafka(jars.DEFAULT_VERSION), jars._hazelcast(jars.HAZELCAST_VERSION), _bundle()],
    ids=lambda bundle: bundle.title,
)
def test_what_is_fetched_is_as_large_as_its_bar_says(bundle):
    assert sum(jar.stat().st_size for jar in jars.fetched(bundle).glob("*.jar")) == bundle.size


def test_verify_counts_offsets_also_those_without_a_record(broker, make_topic, tmp_path):
    """Of an aborted transaction nothing is read, and where records are is looked up in a second
    pass: the bar gets to its end all the same."""
    servers = broker.bootstrap_servers
    source, sink = make_topic("bars-in"), make_topic("bars-out")
    produce(servers, source, [b"a", b"b", b"c"])
    writer = Producer({"bootstrap.servers": servers, "transactional.id": sink})
    writer.init_transactions()
    for end in (writer.commit_transaction, writer.abort_transaction):
        writer.begin_transaction()
        writer.produce(sink, b"a")
        writer.flush(30)
        end(30)
    words = [
        *COMMAND,
        "verify",
        "--input",
        source,
        "--output",
        sink,
        "--bootstrap-servers",
        servers,
    ]
    code, said, errors = in_a_pipe(words)
    assert (code, errors) == (1, "")
    on_terminal = tmp_path / "stdout"
    what = f"Comparing {source} and {sink}"
    code, shown = on_a_terminal(words, 200, on_terminal)
    assert (code, on_terminal.read_text()) == (1, said)
    bars = drawn(what, shown)
    # three and four offsets, twice
    assert "100%" in bars[-1]
    assert "14.0/14.0 [" in bars[-1]
    on_terminal.unlink()
    assert on_a_terminal([*words, "--json"], 200, on_terminal) == (1, "")
    assert json.loads(on_terminal.read_text())["missingRecords"] == 2


@pytest.fixture
def job(broker, make_topic, tmp_path) -> HandMadeJob:
    """Three batches are written, and two of its files have the same content."""
    topic = make_topic("out")
    made = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    made.run(0, 1)
    state = next(made.folder.glob("state/**/*.delta"))
    state.with_name("900.delta").write_bytes(state.read_bytes())
    made.run(2)
    return made


def test_watch_draws_over_itself_until_ctrl_c(job):
    home, whole, screens = "\x1b[H", "\x1b[J", 3

    keys = [b"\x03"]

    def hear(said: str) -> bytes | None:
        return keys.pop() if keys and said.count(whole) >= screens else None

    words = ["watch", job.name, "--every", "100ms", "--bootstrap-servers", job.servers]
    code, said = on_a_terminal([*COMMAND, *words], 60, hear=hear)
    assert (code, "Traceback" in said) == (0, False), said
    for screen in said.split(home)[1 : screens + 1]:
        text = screen.partition("^C")[0].replace("\x1b[K", "")
        assert re.search(r"(?m)^ +2 +0 +DONE ", text), screen
        assert max(map(len, text.splitlines())) <= 60


def test_snapshots_are_copied_verified_and_restored_with_a_bar(job, tmp_path):
    where = ["--bootstrap-servers", job.servers]
    target = str(tmp_path / "restored")
    also = str(tmp_path / "also")
    other = ["--job", f"{job.name}-2", "--checkpoint", also]
    for words, what in (
        (["export", job.name, "before"], f"Exporting batch 2 of {job.name}"),
        (["verify", job.name], f"Verifying latest of {job.name}"),
        (["restore", job.name, target], f"Restoring batch 2 of {job.name}"),
        (["start-from", job.name, "before", *other], f"Restoring before of {job.name}"),
    ):
        command = [*COMMAND, "snapshots", *words, *where]
        code, shown = on_a_terminal(command, 200)
        assert code == 0, shown
        assert "100%" in drawn(what, shown)[-1], shown
    code, said, errors = in_a_pipe([*COMMAND, "snapshots", "verify", job.name, *where])
    assert (code, said, errors) == (0, f"Whole: 'latest' of job '{job.name}'.\n", "")
