"""`eo-kafka doctor` on a healthy broker, on one that is not, and in broken environments."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker, cluster
from eo_kafka.testing.proxy import Action, Api, Proxy, proxied_broker
from eo_kafka.tools.cli import main
from eo_kafka.tools.doctor.machine_check import Finding, Level, ask, check_lookup
from harness import committed, produce, wait_until
from wrong_clock import set_ahead

CHECKED = Finding(Level.OK, "transactional ids", "")


@pytest.fixture
def doctor(capsys, monkeypatch):
    """Runs the command: (exit code, subject -> the worst finding's (level, text))."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)

    def run(*words: str, machine: bool = False):
        if not machine:  # its checks start interpreters, and have tests of their own
            monkeypatch.setattr("eo_kafka.tools.doctor.command.check_machine", list)
        capsys.readouterr()
        code = main(["doctor", *words, "--json"])
        shown = json.loads(capsys.readouterr().out)
        worst: dict[str, tuple[str, str]] = {}
        order = [level.value for level in Level]
        for one in shown["findings"]:
            before = worst.get(one["subject"], ("ok", ""))
            if order.index(one["level"]) >= order.index(before[0]):
                worst[one["subject"]] = (one["level"], one["text"])
        assert shown["healthy"] == (code == 0)
        return code, worst

    return run


def allow_only(servers: str, kind: ResourceType, name: str, who: str, operation) -> None:
    """What has one permission has no others: the broker lets everybody do what has none."""
    topic = kind == ResourceType.TOPIC
    pattern = ResourcePatternType.LITERAL if topic else ResourcePatternType.PREFIXED
    allowed = AclPermissionType.ALLOW
    binding = AclBinding(kind, name, pattern, who, "*", operation, allowed)
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_acls([binding]).values():
        future.result(30)


@pytest.fixture(scope="module")
def poor() -> KafkaBroker:
    """A broker with ACLs, too little time for transactions, and topics that may be unclean."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "transaction.max.timeout.ms": 60_000,
        "transactional.id.expiration.ms": 3_600_000,
    }
    with KafkaBroker(properties=properties, features={"transaction.version": 1}) as broker:
        yield broker


def test_a_transaction_that_no_coordinator_knows_is_found(doctor, capsys):
    """As on a mirror that was cut in the middle of one: the topic has it, the coordinator not."""
    with KafkaBroker() as own:
        topic = topic_maker(own.bootstrap_servers)("out", partitions=2)
        producer = Producer({"bootstrap.servers": own.bootstrap_servers, "transactional.id": "t"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"1", partition=1)
        assert producer.flush(30) == 0
        words = ("--topic", topic, "--bootstrap-servers", own.bootstrap_servers)
        assert "hangs" not in doctor(*words)[1]["output topic"][1]
        own.stop()
        for forgotten in (own.directory / "data").glob("__transaction_state-*"):
            shutil.rmtree(forgotten)
        own.start()
        code, worst = doctor(*words)
        assert code == 1
        level, text = worst["output topic"]
        assert (level, "hangs on partitions [1]" in text) == ("problem", True), text
        where = ["--topic", topic, "--bootstrap-servers", own.bootstrap_servers]
        main(["txn", "list", *where])
        assert "hung" in capsys.readouterr().out
        assert main(["txn", "abort", *where]) == 1
        assert main(["txn", "abort", *where, "--force"]) == 0
        assert "hangs" not in doctor(*words)[1]["output topic"][1]
        del producer


def test_a_healthy_place_has_no_problem_and_nothing_is_written(broker, make_topic, doctor):
    topic = make_topic("doctor")
    where = ["--bootstrap-servers", broker.bootstrap_servers]
    code, found = doctor(*where, "--topic", topic, "--job", "doctor-job", machine=True)
    assert code == 0, found
    for subject in (
        "Spark's lookup",
        "driver and workers",
        "compiled loops",
        "Java",
        "numba",
        "transaction.version",
        "transaction.max.timeout.ms",
        "transactional ids",
        "output topic",
    ):
        assert found[subject][0] == "ok", found[subject]
    assert found["brokers"] == (
        "warning",
        f"one live broker at {broker.bootstrap_servers}: exactly-once holds as long as its disk "
        "survives",
    )
    assert "not there yet" in found["ledger"][1]
    assert "foreachBatch" in found["update mode"][1]
    assert found["clock"][0] == "note"
    logger = logging.getLogger("eo_kafka.state.ledger.topics")
    assert logger.level == logging.NOTSET  # in this process other callers are warned as before


def test_write_measures_the_clock_and_shows_nothing_to_readers(
    broker, make_topic, doctor, monkeypatch
):
    topic = make_topic("doctor-write")
    words = ["--bootstrap-servers", broker.bootstrap_servers, "--topic", topic, "--write"]
    code, found = doctor(*words)
    assert (code, found["rehearsal"][0], found["clock"][0]) == (0, "ok", "ok")
    produce(broker.bootstrap_servers, topic, [b"after"])
    assert list(committed(broker.bootstrap_servers, topic)) == [b"after"]
    set_ahead(monkeypatch, 3600)
    code, found = doctor(*words)
    assert (code, found["clock"][0]) == (0, "warning")  # it decides nothing
    assert "the broker's is -36" in found["clock"][1] or "-3599" in found["clock"][1]


def test_a_cluster_that_cannot_keep_the_promise_is_told_line_by_line(poor, doctor):
    topic = topic_maker(poor.bootstrap_servers)(
        "poor", config={"unclean.leader.election.enable": "true"}
    )
    ledger = topic_maker(poor.bootstrap_servers)("poor-ledger", partitions=2)
    words = ["--topic", topic, "--job", "poor", "--ledger-topic", ledger]
    code, found = doctor("--bootstrap-servers", poor.bootstrap_servers, *words)
    assert code == 1
    assert found["transaction.max.timeout.ms"][0] == "problem"
    assert "allows transactions of 60000 ms" in found["transaction.max.timeout.ms"][1]
    assert found["transaction.version"][0] == "note"
    assert found["transactional.id.expiration.ms"][0] == "warning"
    assert "unclean leader elections" in found["output topic"][1]
    assert "cleanup.policy=delete" in found["ledger"][1]


def test_topics_that_take_nothing_now_are_a_problem(doctor):
    """Two replicas and min.insync.replicas=2 are right, until one of their brokers is away."""
    with cluster(nodes=3) as kafka:
        servers = kafka.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        settings = {"min.insync.replicas": "2", "cleanup.policy": "compact"}
        names = ("halted", "__eo_kafka.halted.ledger")
        made = [NewTopic(name, 2, 2, config=settings) for name in names]
        for created in admin.create_topics(made).values():
            created.result(30)
        words = ["--topic", names[0], "--job", "halted", "--bootstrap-servers", servers]
        code, found = doctor(*words)
        assert code == 0, found
        kafka.brokers[2].kill()
        # At first it may know no broker, and look at no topic
        wait_until(
            lambda: "batches fail until" in "".join(doctor(*words)[1].get("output topic", ())),
            "told",
            60,
        )
        code, found = doctor(*words)
        assert code == 1
        assert found["ledger"][0] == "problem"
        assert "fewer replicas in sync than min.insync.replicas=2" in found["ledger"][1]


def test_missing_permissions_are_named(poor, doctor):
    servers = poor.bootstrap_servers
    topic = topic_maker(servers)("guarded")
    where = ["--bootstrap-servers", servers, "--topic", topic, "--prefix", "denied"]
    allow_only(servers, ResourceType.TOPIC, topic, "User:ANONYMOUS", AclOperation.DESCRIBE)
    allow_only(servers, ResourceType.TRANSACTIONAL_ID, "denied", "User:eva", AclOperation.WRITE)

    def visible() -> bool:
        return doctor(*where)[1]["output topic"][0] == "problem"

    wait_until(visible, "the broker knows the permissions")
    code, found = doctor(*where)
    assert code == 1
    assert found["output topic"] == ("problem", f"'{topic}': grant this principal Write on it")
    assert "may not Describe 'denied." in found["transactional ids"][1]
    code, found = doctor(*where, "--write")
    assert (code, found["rehearsal"][0]) == (1, "problem")


@pytest.fixture(scope="module")
def proxied() -> Iterator[tuple[KafkaBroker, Proxy]]:
    with proxied_broker() as found:
        yield found


@pytest.mark.parametrize(
    ("request_kind", "name"),
    [
        (Api.DESCRIBE_TRANSACTIONS, "DescribeTransactions"),
        (Api.LIST_TRANSACTIONS, "ListTransactions"),
        (Api.END_TXN, "EndTxn"),
    ],
)
def test_a_request_that_brokers_do_not_serve_is_named(
    proxied, doctor, monkeypatch, request_kind, name
):
    """As some managed brokers do: they offer it, and end the connection that asks."""
    broker, proxy = proxied
    monkeypatch.setattr("eo_kafka.clients.kafka.control_plane.LOOKUP_TIMEOUT_S", 1.0)
    # whatever looks before it is answered
    monkeypatch.setattr("eo_kafka.tools.doctor.cluster_check._may_describe_ids", lambda *_: CHECKED)
    topic = topic_maker(broker.bootstrap_servers)("unserved")
    proxy.add(request_kind, Action.REFUSE)
    where = ["--bootstrap-servers", f"127.0.0.1:{proxy.port}", "--topic", topic, "--write"]
    try:
        code, found = doctor(*where)
    finally:
        proxy.heal()
    assert code == 1
    assert found["rehearsal"][0] == "problem"
    assert found["rehearsal"][1].startswith(name)
    assert found["requests"][0] == "ok"
    code, found = doctor(*where)
    assert (code, found["rehearsal"][0]) == (0, "ok")


def test_a_topic_that_may_not_be_written_is_told_from_an_id_that_may_not_be_taken(poor, doctor):
    servers = poor.bootstrap_servers
    topic = topic_maker(servers)("read-only")
    where = ["--bootstrap-servers", servers, "--topic", topic, "--write"]
    allow_only(servers, ResourceType.TOPIC, topic, "User:ANONYMOUS", AclOperation.DESCRIBE)

    def refused() -> str:
        return doctor(*where)[1]["rehearsal"][1]

    wait_until(lambda: "AddPartitionsToTxn" in refused(), "the broker knows the permissions")
    assert "Grant Write and Describe on the topic" in refused()
    prefix = ["--prefix", "taken"]
    allow_only(servers, ResourceType.TRANSACTIONAL_ID, "taken", "User:eva", AclOperation.WRITE)
    where += prefix
    wait_until(lambda: refused().startswith("InitProducerId"), "and of the id")


def test_no_broker_is_a_finding_beside_the_others(doctor, monkeypatch):
    monkeypatch.setattr("eo_kafka.tools.doctor.cluster_check.TIMEOUT_S", 1.0)
    code, found = doctor("--bootstrap-servers", "127.0.0.1:1")
    assert (code, found["Kafka"][0], found["update mode"][0]) == (1, "problem", "note")


def test_another_package_that_hides_the_formats_is_named(doctor, monkeypatch, tmp_path):
    (tmp_path / "pyspark_broken.py").write_text("import no_such_module_anywhere\n")
    (tmp_path / "pyspark_fine.py").write_text("")
    path = [str(tmp_path), *sys.path]
    monkeypatch.setenv("PYTHONPATH", ":".join(part for part in path if part))
    code, found = doctor(machine=True)
    assert code == 1
    level, text = found["Spark's lookup"]
    assert level == "problem"
    assert "module pyspark_broken fails to import" in text
    assert "no_such_module_anywhere" in text
    assert "pyspark_fine" not in text


def test_an_interpreter_without_the_package_is_named(doctor, monkeypatch, tmp_path):
    bare = str(Path(sys.base_prefix) / "bin" / "python3")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(tmp_path)
    (finding,) = check_lookup(ask(bare))
    assert finding.level is Level.PROBLEM
    assert "has no module pyspark_eo_kafka" in finding.text
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    code, found = doctor(machine=True)
    assert (code, found["PYSPARK_PYTHON"][0]) == (1, "problem")
    assert "/no/such/python cannot be run" in found["PYSPARK_PYTHON"][1]


def test_python_not_set_is_a_warning_and_text_fits_a_terminal(monkeypatch, capsys):
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    main(["doctor"])
    text = capsys.readouterr().out
    assert "warning  PYSPARK_PYTHON" in text
    assert max(map(len, text.splitlines())) <= 100


def test_secrets_of_the_settings_are_never_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("eo_kafka.tools.doctor.cluster_check.TIMEOUT_S", 1.0)
    monkeypatch.setattr("eo_kafka.clients.kafka.bootstrap.TIMEOUT_S", 1.0)
    config = tmp_path / "client.properties"
    config.write_text(
        "bootstrap.servers=127.0.0.1:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=eva\nsasl.password=hunter2-secret\n"
    )
    monkeypatch.setattr("eo_kafka.tools.doctor.command.check_machine", list)
    for command in (["doctor"], ["txn", "list"], ["verify", "--input", "a", "--output", "b"]):
        if command[0] == "verify":
            config.write_text(config.read_text() + "sasl.jaas.config=hunter2-secret\n")
        assert main([*command, "--config", str(config)]) == 1
        said = capsys.readouterr()
        assert "hunter2" not in said.out + said.err
