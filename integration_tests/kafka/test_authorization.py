"""With exactly the ACLs of docs/security.md everything works; without one of them a sentence says
which is missing, at the earliest moment, and nothing is lost or shown."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation, AclPermissionType, ResourceType

import eo_kafka
from conftest import topic_maker
from eo_kafka.clients.kafka import control_plane
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.core.crash_points import CrashPointReached
from eo_kafka.core.offsets import OffsetRange, TopicPartition
from eo_kafka.core.transaction import Identity
from eo_kafka.errors import EnvironmentRefused, SourceError
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, one_phase, preflight, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.rows import fast, plain, plain_write
from eo_kafka.sinks.transactions import task_transaction
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.reader import read_range
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.testing.processes import wait_until
from hand_made_job import HandMadeJob, all_rows
from harness import assert_exactly_once, committed, kill_driver_at, open_transactions, produce
from newcomer import Newcomer
from secure_broker import Grant, SecureBroker, SecureCopy

pytest_plugins = ["secure_broker"]

VALUES = [b"%d" % number for number in range(100)]
DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
PASSWORD = "s3cret-of-a-job-Kt4"
TOPIC, ID = ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID
CREATE, READ, WRITE = AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE
DESCRIBE, ALTER = AclOperation.DESCRIBE, AclOperation.ALTER
users = iter(f"job-{number}" for number in range(1000))


def documented(who: str, job: SecureCopy, name: str = "none") -> list[Grant]:
    """The rows of the document's table that `who` needs, with the job's names put in, and `name` as
    that of an export or a view."""
    names = {
        "<input>": job.source_topic,
        "<output>": job.sink_topic,
        "<ledger>": job.ledger,
        "<state>": f"__eo_kafka.{job.job_name}.state",
        "<export>": f"__eo_kafka.{job.job_name}.export.{name}",
        "<view>": f"__eo_kafka.{job.job_name}.view.{name}",
        "<plan>": f"__eo_kafka.{job.job_name}.plan",
        "<control>": f"__eo_kafka.{job.job_name}.control",
        "<transactionalIdPrefix>": "eo-kafka",
    }
    grants = []
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 5 or cells[0] not in ("Topic", "TransactionalId", "Group", "Cluster"):
            continue
        kind, pattern, operations, needed_by, _ = cells
        if who not in needed_by.split(", "):
            continue
        pattern = pattern.strip("`")
        for written, real in names.items():
            pattern = pattern.replace(written, real)
        resource = {"TransactionalId": ID, "Topic": TOPIC, "Group": ResourceType.GROUP}[kind]
        for operation in re.findall(r"[A-Z]\w+", operations):
            snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()
            grants.append((resource, pattern, AclOperation[snake]))
    assert grants, f"{DOCUMENT} lists nothing for {who}"
    return grants


@pytest.fixture
def job(secure, tmp_path) -> SecureCopy:
    """A copy whose user may log in and do nothing."""
    make_topic, user = topic_maker(secure.bootstrap_servers), next(users)
    source = make_topic("in")
    produce(secure.bootstrap_servers, source, VALUES)
    secure.add_user(user, PASSWORD)
    return SecureCopy(
        servers=secure.bootstrap_servers,
        source_topic=source,
        sink_topic=make_topic("out"),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"guarded-{source}",
        client=secure.sasl("SCRAM-SHA-256", user, PASSWORD),
    )


def user_of(job: SecureCopy) -> str:
    return job.client["sasl.username"]


def everything(job: SecureCopy) -> list[Grant]:
    """What a job needs whose ledger nobody has made."""
    return [grant for who in ("source", "sink", "creation") for grant in documented(who, job)]


def killed_after_the_decision(job: SecureCopy, crash_points, log: Path) -> None:
    crash_points.arm("S6.after_decision", "kill-driver")
    job.run_in_own_driver(log)
    assert crash_points.reached("S6.after_decision"), log.read_text()[-3000:]
    assert open_transactions(job)


@pytest.mark.parametrize(
    "ledger", ["made by the job", pytest.param("made by an admin", marks=pytest.mark.full)]
)
def test_the_documented_acls_are_enough_for_a_job_its_kill_and_its_recovery(
    secure, job, spark, crash_points, tmp_path, ledger
):
    whose = ["source", "sink"]
    if ledger == "made by the job":
        whose.append("creation")
    else:
        make_ledger(secure, job.ledger)
    for who in whose:
        secure.grant(user_of(job), documented(who, job))
    killed_after_the_decision(job, crash_points, tmp_path / "log")
    job.run(spark)
    assert_exactly_once(job, VALUES)
    assert "Not authorized" not in (tmp_path / "log").read_text()


def test_the_page_that_says_how_to_grant_them_grants_what_a_job_needs(secure, job, spark, tmp_path):
    """docs/how-to/acls.md, with this job's names."""
    user = user_of(job)
    login = {f"kafka.{name}": value for name, value in job.client.items()}
    given = {"admin": secure.admin, "login": login}
    mine = {
        "orders-copy": user,
        '"orders"': f'"{job.source_topic}"',
        '"copies"': f'"{job.sink_topic}"',
    }
    newcomer = Newcomer("docs/how-to/acls.md", tmp_path, given, mine)
    assert list(newcomer.follow())
    job.job_name, job.sink_extra = user, newcomer.names["sink"]
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_the_documented_acls_are_enough_for_snapshots_and_a_restore(
    secure, job, spark, crash_points, tmp_path
):
    job.sink_extra = {"snapshots": "true"}
    for who in ("source", "sink", "creation", "snapshots", "snapshots-creation"):
        secure.grant(user_of(job), documented(who, job))
    killed_after_the_decision(job, crash_points, tmp_path / "log")
    shutil.rmtree(job.checkpoint)
    assert (
        eo_kafka.restore(str(job.checkpoint), job.job_name, job.as_job()["sink_options"]).batch == 0
    )
    job.run(spark)
    assert_exactly_once(job, VALUES)
    assert "Not authorized" not in (tmp_path / "log").read_text()


def make_ledger(secure: SecureBroker, ledger: str) -> None:
    from confluent_kafka.admin import NewTopic

    topic = NewTopic(ledger, num_partitions=2, config={"cleanup.policy": "compact"})
    secure.admin.create_topics([topic])[ledger].result(30)


def test_who_may_not_set_an_unused_ledger_right_is_told_what_is_missing(secure, job):
    """Some look-up made it, with the settings that this broker gives to all topics."""
    secure.grant(user_of(job), everything(job))
    secure.admin.list_topics(job.ledger, timeout=30)
    for right, operation in (("AlterConfigs", AclOperation.ALTER_CONFIGS), ("Alter", ALTER)):
        with pytest.raises(EnvironmentRefused, match=f"Grant this principal {right} on it, or del"):
            run_one_batch(job)
        secure.grant(user_of(job), [(TOPIC, job.ledger, operation)])
    run_one_batch(job)
    assert committed(job.servers, job.sink_topic)


def run_one_batch(job: SecureCopy) -> None:
    """One batch by the calls that Spark makes, without Spark: look-ups, a read, S1 to S8."""
    preflight._checked.clear()
    control_plane.forget(job.client)
    given = {f"kafka.{name}": value for name, value in job.client.items()}
    source = SourceOptions.parse(
        {**given, "subscribe": job.source_topic, "kafkaConsumer.pollTimeoutMs": "30000"},
        streaming=True,
    )
    at = TopicPartition(job.source_topic, 0)
    (end,) = OffsetLookup(source).latest(OffsetLookup(source).partitions()).values()
    rows = [batch.select(["key", "value"]) for batch in read_range(source, OffsetRange(at, 0, end))]
    sink = SinkOptions.parse(
        {**given, "topic": job.sink_topic, "jobName": job.job_name, **SHORT}, streaming=True
    )
    plan = make_plan(sink)
    report = two_phase.write(sink, plan, two_phase.TaskIdentity("query", 0, 0, 0), iter(rows))
    committer.commit(sink, [report], 0)


SHORT = {"kafka.transaction.timeout.ms": "20000"}
# what is missing -> (the resource and the operation, what the sentence must say)
MISSING = {
    "read the input": ((TOPIC, "source_topic", READ), SourceError, "READ on the topic"),
    "describe the input": ((TOPIC, "source_topic", DESCRIBE), SourceError, "DESCRIBE"),
    "write the output": ((TOPIC, "sink_topic", WRITE), EnvironmentRefused, "needs Write.* topic"),
    "create the ledger": ((TOPIC, "ledger", CREATE), EnvironmentRefused, "grant Create on it"),
    "write the ledger": ((TOPIC, "ledger", WRITE), EnvironmentRefused, "needs Write"),
    "read the ledger": ((TOPIC, "ledger", READ), EnvironmentRefused, "needs Read"),
    "write transactional ids": ((ID, "eo-kafka*", WRITE), EnvironmentRefused, "Write and Describe"),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_missing_acl_is_named_and_the_batch_goes_on_once_it_is_granted(secure, job, what):
    (kind, where, operation), error, words = MISSING[what]
    name = where if kind == ID else getattr(job, where)
    grants = everything(job)
    # Read and Write imply Describe: to lack that, a topic must have none of them.
    lacking = [
        one
        for one in grants
        if one == (kind, name, operation) or (operation == DESCRIBE and one[:2] == (kind, name))
    ]
    assert lacking, "the document does not ask for it"
    secure.grant(user_of(job), [one for one in grants if one not in lacking])
    with pytest.raises(error, match=words) as stop:
        run_one_batch(job)
    assert name.rstrip("*") in str(stop.value)
    assert PASSWORD not in str(stop.value)
    assert not committed(job.servers, job.sink_topic)
    secure.grant(user_of(job), lacking)
    run_one_batch(job)
    assert_exactly_once(job, VALUES)


WAYS = {
    "two phases": {},
    "one phase": {"commit": "idempotent"},
    "at-least-once": {"guarantee": "at-least-once"},
}


@pytest.mark.parametrize("sender", [fast, plain], ids=["fast", "plain"])
@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_may_not_write_the_output_needs_a_person(secure, job, monkeypatch, way, sender):
    """No other start would mend it, which a WriteFailed says."""
    monkeypatch.setattr(task_transaction, "arrow_producer", sender.ArrowProducer)
    monkeypatch.setattr(plain_write, "arrow_producer", sender.ArrowProducer)
    write_output = (TOPIC, job.sink_topic, WRITE)
    secure.grant(user_of(job), [one for one in everything(job) if one != write_output])
    with pytest.raises(EnvironmentRefused, match="[Tt]he principal needs Write") as stop:
        write_twice(job, WAYS[way])
    assert job.sink_topic in str(stop.value)
    assert not stop.value.retriable and not committed(job.servers, job.sink_topic)


@pytest.mark.parametrize("denied", [0, 1])
def test_of_two_topics_the_one_that_lacks_a_right_is_named(secure, job, denied):
    """The transaction fails as a whole: of the rows to either, no report says more."""
    topics = [job.sink_topic, topic_maker(job.servers)("out")]
    secure.grant(user_of(job), [*everything(job), (TOPIC, topics[1], WRITE)])
    given = {f"kafka.{name}": value for name, value in job.client.items()} | SHORT
    sink = SinkOptions.parse({**given, "jobName": job.job_name}, streaming=True)
    plan = make_plan(sink)
    secure.grant(user_of(job), [(TOPIC, topics[denied], WRITE)], AclPermissionType.DENY)
    rows = pa.record_batch({"topic": topics * 50, "value": [b"v"] * 100})
    with pytest.raises(EnvironmentRefused) as stop:
        two_phase.write(sink, plan, two_phase.TaskIdentity("query", 0, 0, 0), iter([rows]))
    sentence = str(stop.value)
    assert f"needs Write and Describe on topic '{topics[denied]}': grant it" in sentence, sentence


@pytest.mark.parametrize("what", [WRITE, DESCRIBE])
def test_a_ledger_that_a_task_may_not_write_any_more_needs_a_person(secure, job, what):
    secure.grant(user_of(job), everything(job))

    def deny() -> None:
        secure.grant(user_of(job), [(TOPIC, job.ledger, what)], AclPermissionType.DENY)

    with pytest.raises(
        EnvironmentRefused, match=f"needs Write and Describe on ledger '{job.ledger}': "
    ):
        write_twice(job, {}, between=deny)
    assert not committed(job.servers, job.sink_topic)


def write_twice(
    job: SecureCopy, options: dict[str, str], between: Callable[[], None] = lambda: None
) -> None:
    """A task with rows that come before what became of the first ones is known, and after."""
    given = {f"kafka.{name}": value for name, value in job.client.items()} | SHORT | options
    given |= {"topic": job.sink_topic, "jobName": job.job_name}
    sink = SinkOptions.parse(given, streaming=True)
    rows = pa.record_batch({"key": [b"k"] * 5, "value": [b"v"] * 5})

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows
        time.sleep(1.5)
        yield rows

    task = two_phase.TaskIdentity("query", 0, 0, 0)
    if "guarantee" in options:
        plain_write.write(sink, 0, batches())
        return
    plan = make_plan(sink)
    between()
    (one_phase if sink.one_phase else two_phase).write(sink, plan, task, batches())


def test_what_is_missing_after_the_decision_leaves_it_for_the_next_start(
    secure, job, crash_points, monkeypatch
):
    monkeypatch.setattr("eo_kafka.core.crash_points.FOLDER", str(crash_points.folder))
    secure.grant(user_of(job), everything(job))
    crash_points.arm("S6.after_decision", "raise")
    with pytest.raises(CrashPointReached):
        run_one_batch(job)
    prepared = open_transactions(job)
    assert prepared
    write_ids = (ID, "eo-kafka*", WRITE)
    secure.revoke(user_of(job), [write_ids])
    with pytest.raises(EnvironmentRefused, match="Write and Describe"):
        run_one_batch(job)
    assert not committed(job.servers, job.sink_topic)
    assert open_transactions(job) == prepared, "a decided transaction was ended"
    secure.grant(user_of(job), [write_ids])
    run_one_batch(job)
    assert_exactly_once(job, VALUES)


def test_what_the_control_plane_may_not_ask_is_told_at_once(secure, job):
    """Not after half a minute of asking again, and not as a broker that does not answer."""
    own, topic = f"eo-kafka.{job.job_name}", job.sink_topic
    denied = ControlPlane(job.client)
    questions = [
        ("describe transactions", lambda: denied.describe([own])),
        ("end transactions", lambda: denied.end([Identity(own, 1, 0)], commit=False, version=3)),
        (f"TopicAuthorization.*{topic}", lambda: denied.end_offset(topic, 0, committed=True)),
        (f"TopicAuthorization.*{topic}", lambda: denied.topic_ids([topic])),
    ]
    try:
        for words, ask in questions:
            began = time.monotonic()
            with pytest.raises(EnvironmentRefused, match=words) as stop:
                ask()
            assert "docs/security.md" in str(stop.value)
            assert time.monotonic() - began < 5, words
        given = {f"kafka.{name}": value for name, value in job.client.items()}
        source = SourceOptions.parse({**given, "subscribe": job.source_topic}, streaming=True)
        with pytest.raises(SourceError, match="Not authorized to look up consumer group 'app'"):
            OffsetLookup(source).committed("app", [TopicPartition(job.source_topic, 0)])
        # Transactions may be described, and not ended: that is an answer, and nobody's to repeat.
        secure.grant(user_of(job), [(ID, own, DESCRIBE)])
        wait_until(lambda: can(lambda: denied.describe([own])), "the grant has arrived")
        assert denied.end([Identity(own, 1, 0)], commit=False, version=3) == {
            own: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
        }
    finally:
        denied.close()


def test_a_sink_that_may_not_see_its_input_writes_all_the_same(secure, job, tmp_path):
    """Two principals, or an input on another cluster: its id is only nice to know."""
    for who in ("sink", "creation"):
        secure.grant(user_of(job), documented(who, job))
    extra = {
        "snapshots": "false",
        **{f"kafka.{name}": set_to for name, set_to in job.client.items()},
    }
    hand = HandMadeJob(job.servers, job.sink_topic, job.job_name, tmp_path / "cp", extra=extra)
    for batch in range(2):
        hand.begin(batch)
        hand.put(f"offsets/{batch}", f'v1\n{{}}\n{{"{job.source_topic}":{{"0":{batch + 1}}}}}')
        committer.commit(hand.options, hand.prepare(batch), batch)
    assert committed(secure.bootstrap_servers, job.sink_topic) == all_rows(0, 1)


@pytest.mark.parametrize(
    "point", ["S8.after_done", pytest.param("S6.after_decision", marks=pytest.mark.full)]
)
def test_so_it_does_when_a_written_batch_is_run_again(
    secure, job, spark, crash_points, tmp_path, point
):
    job.reader = secure.sasl()
    for who in ("sink", "creation"):
        secure.grant(user_of(job), documented(who, job))
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    job.run(spark)
    assert_exactly_once(job, VALUES)


def can(ask) -> bool:
    try:
        ask()
    except EnvironmentRefused:
        return False
    return True


def test_a_principal_without_any_acl_is_told_so(secure, job):
    with pytest.raises(SourceError, match="Not authorized to look up") as stop:
        run_one_batch(job)
    assert job.source_topic in str(stop.value)


def test_the_documents_table_is_read(job):
    """A row that names an unknown thing fails here."""
    for who in ("source", "sink", "creation", "tools"):
        assert documented(who, job)
