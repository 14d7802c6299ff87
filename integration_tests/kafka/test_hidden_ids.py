"""Brokers leave transactional ids that a principal may not Describe out of their lists, and say
nothing: so what such a principal does not see is not taken for what is not there."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing, suppress

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from conftest import topic_maker
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.hidden_ids import why_not_all
from eo_kafka.core.transaction import DecisionState
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol.finisher import Finisher
from eo_kafka.testing.processes import wait_until
from eo_kafka.tools.cli import main
from eo_kafka.tools.jobs import metrics
from eo_kafka.tools.jobs.survey import survey
from eo_kafka.tools.transactions import search as search_module
from eo_kafka.tools.transactions.search import TransactionSearch
from eo_kafka.tools.transactions.verdict import Standing
from hand_made_tasks import HandMadeTasks, batch_of
from harness import committed
from secure_broker import Grant

pytest_plugins = ["secure_broker"]

TOPIC, ID, CLUSTER = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID, ResourceType.BROKER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALTER = AclOperation.ALTER
PASSWORD = "s3cret-of-an-onlooker-Rw6"
users = iter(f"onlooker-{number}" for number in range(1000))


class Prepared(HandMadeTasks):
    """A job under a prefix of its own, whose one task has prepared its rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = {"kafka.bootstrap.servers": self.servers, "jobName": self.name}
        given |= {"topic": self.topic, "transactionalIdPrefix": self.name}
        self.options = SinkOptions.parse(given, streaming=True)
        self.ledger = f"__eo_kafka.{self.name}.ledger"
        self.report = self.write(self.plan(), iter([batch_of(b"row")]))

    def decide_and_die(self) -> None:
        with pytest.MonkeyPatch.context() as dying, suppress(KeyboardInterrupt):
            dying.setattr(Finisher, "finish", died)
            self.commit(self.report)


def died(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def job(secure) -> Prepared:
    made = Prepared(secure.bootstrap_servers, topic_maker(secure.bootstrap_servers)("out"))
    yield made
    made.plan()  # commits what is decided, ends the rest


class Onlooker:
    """A user who may Read the output and the ledger, and Alter the cluster."""

    def __init__(self, secure, job: Prepared, folder, capsys) -> None:
        self.user, self._secure, self._capsys = next(users), secure, capsys
        secure.add_user(self.user, PASSWORD)
        self.client = secure.sasl("SCRAM-SHA-256", self.user, PASSWORD)
        self._config = folder / "client.properties"
        self._config.write_text("".join(f"{name}={one}\n" for name, one in self.client.items()))
        topics = [
            (TOPIC, name, how) for name in (job.topic, job.ledger) for how in (READ, DESCRIBE)
        ]
        self.may([*topics, (CLUSTER, "kafka-cluster", ALTER)])

    def may(self, grants: list[Grant]) -> None:
        self._secure.grant(self.user, grants)

    def run(self, *words: str) -> tuple[int, str]:
        """A command's exit code, and what it said."""
        self._capsys.readouterr()
        code = main([*words, "--config", str(self._config)])
        said = self._capsys.readouterr()
        return code, " ".join((said.out + said.err).split())


@pytest.fixture
def onlooker(secure, job, tmp_path, capsys) -> Onlooker:
    made = Onlooker(secure, job, tmp_path, capsys)
    wait_until(
        lambda: "authoriz" not in made.run("txn", "list", "--topic", job.topic)[1], "granted"
    )
    return made


def test_what_may_be_decided_is_not_called_hung_and_not_ended(job, onlooker):
    where = ("--topic", job.topic)
    for _ in range(2):
        code, said = onlooker.run("txn", "list", *where)
        assert (code, "hung" in said, "(id not seen)" in said) == (3, False, True), said
        assert "may not Describe every transactional id" in said
        assert "txn abort" not in said
        code, said = onlooker.run("txn", "abort", *where, "--force")
        assert (code, "refused: " in said, "of a batch that is decided" in said) == (1, True, True)
        code, said = onlooker.run("txn", "commit", *where, "--force")
        assert (code, "refused: " in said) == (1, True), said
        job.decide_and_die()
    assert job.plan().decisions[0].state is DecisionState.DONE
    assert committed(job.servers, job.topic) == Counter([b"row"])


def test_doctor_says_both_of_what_it_may_be(job, onlooker):
    _, said = onlooker.run("doctor", "--topic", job.topic)
    assert f"warning output topic '{job.topic}': a transaction on partitions [0] is open" in said
    assert "no coordinator told whose it is" in said
    assert "a transaction hangs" not in said and "txn abort" not in said


def test_doctor_has_no_problem_with_a_job_that_has_its_acls(secure, job, onlooker):
    """docs/how-to/acls.md names no state topic, which only snapshots need."""
    onlooker.may([(TOPIC, name, WRITE) for name in (job.topic, job.ledger)])
    onlooker.may([(ID, f"{job.name}.*", WRITE)])
    words = ("--topic", job.topic, "--job", job.name, "--prefix", job.name, "--json")

    def of_kafka() -> set[tuple[str, str]]:
        found = json.loads(onlooker.run("doctor", *words)[1])["findings"]
        names = ("output topic", "ledger", "state topic", "transactional ids", "open transactions")
        return {(one["subject"], one["level"]) for one in found if one["subject"] in names}

    wait_until(lambda: "problem" not in dict(map(reversed, of_kafka())), "granted", 60)
    assert ("state topic", "note") in of_kafka()


def test_what_a_decision_names_is_found_without_its_producers_id(job, monkeypatch):
    """Kafka gives an id another producer when its epochs are used up."""
    job.decide_and_die()
    monkeypatch.setattr(search_module, "ids_of_producers", lambda *_, **__: {})
    with closing(TransactionSearch({"bootstrap.servers": job.servers}, {})) as search:
        (one,) = search.on_topic(job.topic)
    assert (one.standing, one.hung, one.not_all) == (Standing.DECIDED, (), "")


def test_jobs_whose_ids_are_hidden_are_not_said_to_have_nothing_open(job, onlooker):
    job.commit(job.report)
    job.report = job.write(job.plan(), iter([batch_of(b"next")]), batch=1)
    settings = onlooker.client
    code, said = onlooker.run("job", "list")
    assert (code, f"{job.name} unknown 0 " in said) == (3, True), said
    assert f"Describe on transactional ids '{job.name}.*'" in said
    code, said = onlooker.run("job", "list", "--json")
    (one,) = json.loads(said)["jobs"]
    assert (code, one["state"], one["openTransactions"]) == (3, "unknown", None)
    (standing,) = survey(settings, {})
    samples = [one for family in metrics.families([standing], 0) for one in family.samples]
    assert not [one for one in samples if one.name == "eo_kafka_job_open_transactions"]
    for words in (("--prefix", job.name), ("--prefix", job.name, "--job", job.name)):
        code, said = onlooker.run("txn", "list", *words)
        assert (code, "No open transactions are seen" in said) == (3, True), said
        assert "may not Describe" in said
        assert onlooker.run("txn", "abort", *words)[0] == 1
    onlooker.may([(ID, f"{job.name}.*", DESCRIBE)])
    wait_until(lambda: onlooker.run("job", "list")[0] == 0, "granted")
    (standing,) = survey(settings, {})
    assert (standing.state.value, standing.open_count) == ("open", 1)
    code, said = onlooker.run("txn", "list", "--prefix", job.name)
    assert (code, "not decided" in said) == (0, True), said


def test_a_new_job_whose_prefix_is_not_known(job, onlooker):
    code, said = onlooker.run("job", "list")
    assert (code, f"{job.name} unknown" in said) == (3, True), said


def test_whether_all_ids_are_seen_is_known_from_the_acls(secure, job, onlooker):
    """It has Alter on the cluster, and so Describe."""
    others, each = next(users), ResourcePatternType.PREFIXED
    denied = AclBinding(
        *(ID, f"{job.name}.", each, f"User:{onlooker.user}", "*"),
        *(AclOperation.ALL, AclPermissionType.DENY),
    )

    def why() -> str:
        control = ControlPlane(onlooker.client)
        try:
            return why_not_all(control)
        finally:
            control.close()

    onlooker.may([(ID, f"{job.name}.*", DESCRIBE)])
    assert "every transactional id" in why()
    onlooker.may([(ID, "*", DESCRIBE), (TOPIC, "__transaction_state", DESCRIBE)])
    wait_until(lambda: why() == "", "granted")
    secure.grant(others, [(ID, "billing*", WRITE)])
    assert why() == ""
    secure._wait(secure.admin.create_acls([denied]))
    wait_until(lambda: "every transactional id" in why(), "denied")
