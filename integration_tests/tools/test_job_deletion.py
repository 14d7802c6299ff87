"""`eo-kafka job delete` takes nothing of a job that it cannot see, and nothing of another job's."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.tools.cli import main
from eo_kafka.tools.snapshots.exporting import export_snapshot
from hand_made_job import HandMadeJob, all_rows

NOW = ["--yes", "--quiet-for", "1ms"]


@pytest.fixture
def delete(own: KafkaBroker, capsys):
    """Runs the command: (exit code, its JSON or its error)."""

    def run(*words: str):
        capsys.readouterr()
        where = ["--bootstrap-servers", own.bootstrap_servers, "--json"]
        code = main(["job", "delete", *words, *where])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err

    return run


@pytest.fixture
def make_job(own, own_topic, tmp_path):
    """A job that has written a batch, with its snapshot. `extra`: options."""
    servers = own.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("in", 2)])["in"].result(30)

    def make(name: str, **extra: str) -> HandMadeJob:
        made = HandMadeJob(servers, own_topic("out"), name, tmp_path / name, extra=extra)
        made.run(0)
        return made

    return make


def topics(own: KafkaBroker) -> set[str]:
    found = AdminClient({"bootstrap.servers": own.bootstrap_servers}).list_topics(timeout=30).topics
    return {name for name in found if name not in ("in", "__transaction_state")}


def test_a_job_whose_ledger_has_another_name_keeps_what_the_ledger_knows(own, make_job, delete):
    job = make_job("renamed", ledgerTopic="its-ledger")
    before = topics(own)
    code, error = delete("renamed", *NOW, "--exports")
    assert code == 1 and "no ledger '__eo_kafka.renamed.ledger'" in error
    assert "--ledger-topic" in error and "__eo_kafka.renamed.state" in error
    assert topics(own) == before
    job.run(1)
    assert job.visible == all_rows(0, 1)
    code, done = delete("renamed", *NOW, "--ledger-topic", "its-ledger")
    assert (code, done["deleted"]) == (0, ["__eo_kafka.renamed.state", "its-ledger"])


def test_another_jobs_ledger_is_not_deleted(own, make_job, delete):
    other, mine = make_job("other", ledgerTopic="ledger-of-other"), make_job("mine")
    before = topics(own)
    for topic in ("ledger-of-other", "__eo_kafka.mine.ledger"):
        name = "mine" if topic == "ledger-of-other" else "other"
        code, error = delete(name, *NOW, "--ledger-topic", topic)
        assert code == 1 and f"Topic '{topic}' is not the ledger of job '{name}'" in error
    assert topics(own) == before
    for job in (other, mine):
        job.run(1)
        assert job.visible == all_rows(0, 1)


def test_a_state_topic_that_the_ledger_does_not_name_is_not_deleted(own, make_job, delete):
    other, mine = make_job("other", stateTopic="state-of-other"), make_job("mine")
    before = topics(own)
    for words in (NOW, NOW[1:]):
        code, error = delete("mine", *words, "--state-topic", "state-of-other")
        assert code == 1 and "does not name state topic 'state-of-other'" in error
    assert topics(own) == before
    code, done = delete("mine", *NOW)
    assert code == 0 and "state-of-other" in topics(own)
    other.run(1)
    code, done = delete("other", *NOW, "--state-topic", "state-of-other")
    assert (code, done["deleted"]) == (0, ["state-of-other", "__eo_kafka.other.ledger"])
    assert mine.visible == all_rows(0)


def test_what_is_left_without_a_ledger_is_exports_only(own, make_job, delete):
    job = make_job("gone")
    export_snapshot("gone", "kept", job.given, progress=False)
    assert delete("gone", *NOW)[1]["kept"] == ["__eo_kafka.gone.export.kept"]
    assert delete("gone", *NOW)[0] == 1
    code, done = delete("gone", *NOW, "--exports")
    assert (code, done["deleted"]) == (0, ["__eo_kafka.gone.export.kept"])
