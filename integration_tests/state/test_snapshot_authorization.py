"""With exactly the ACLs of docs/security.md snapshots can be looked at, exported and deleted, and
views kept and read, each by a user of its own; without one of them a sentence says which."""

from __future__ import annotations

import errno
import random
import time
from dataclasses import dataclass, replace

import pytest
from confluent_kafka.admin import AclOperation

import eo_kafka
from conftest import topic_maker
from eo_kafka.errors import EnvironmentRefused, EoKafkaError
from eo_kafka.state.ledger import compacted_topic
from eo_kafka.state.ledger.job import Job, read_job
from eo_kafka.state.snapshots.export import topic_of
from eo_kafka.state.snapshots.search import SnapshotSearch
from eo_kafka.state.snapshots.writer import ExportWriter
from eo_kafka.state.view import Marker
from eo_kafka.state.view_writer import ViewWriter, open_view
from eo_kafka.tools.cli import main
from eo_kafka.tools.control import asking
from eo_kafka.tools.control.seat import Seat
from eo_kafka.tools.control.seat import topic_of as topic_of_control
from eo_kafka.tools.control.words import Do, Told
from eo_kafka.tools.explain.pipeline import Pipeline
from eo_kafka.tools.explain.recorded import record, recorded
from eo_kafka.tools.jobs.survey import survey
from eo_kafka.tools.run.control import ControlledOrders
from eo_kafka.tools.run.driver import Driver
from eo_kafka.tools.run.policy import Restarts, parse
from eo_kafka.tools.run.supervisor import Supervisor
from hand_made_job import HandMadeJob
from harness import delete_topic, wait_until
from secure_broker import Grant, SecureCopy
from test_authorization import CREATE, DESCRIBE, PASSWORD, READ, WRITE, documented, user_of

pytest_plugins = ["secure_broker"]

users = iter(f"tool-{number}" for number in range(1000))


@dataclass
class Tools(SecureCopy):
    """A job that somebody else has run, with an export and a view for each; its user may do
    nothing yet."""

    name: str = "none"  # of the export and the view in question

    @property
    def options(self) -> dict[str, str]:
        return {f"kafka.{name}": value for name, value in self.client.items()}


@pytest.fixture(scope="module")
def snapshots(secure, tmp_path_factory) -> HandMadeJob:
    topic = topic_maker(secure.bootstrap_servers)("out")
    folder = tmp_path_factory.mktemp("snapshots")
    made = HandMadeJob(secure.bootstrap_servers, topic, f"job-{topic}", folder)
    made.run(0, 1)
    return made


@pytest.fixture
def tools(secure, snapshots, tmp_path) -> Tools:
    user = next(users)
    secure.add_user(user, PASSWORD)
    client = secure.sasl("SCRAM-SHA-256", user, PASSWORD)
    job, topic = snapshots.name, snapshots.topic
    return Tools(snapshots.servers, "none", topic, tmp_path / "ck", job, client=client, name=user)


def look(job: Tools) -> None:
    assert eo_kafka.snapshots(job.job_name, job.options)["latest"].head.batch == 1
    assert eo_kafka.verify_snapshot(job.job_name, job.options, progress=False) == []


def export(job: Tools) -> None:
    eo_kafka.export_snapshot(job.job_name, job.name, job.options, progress=False)


def read_export(job: Tools) -> None:
    assert eo_kafka.verify_snapshot(job.job_name, job.options, job.name, progress=False) == []


def delete(job: Tools) -> None:
    eo_kafka.delete_snapshot(job.job_name, job.name, job.options)


def show(job: Tools) -> None:
    """What a StateView does at each start and with each batch."""
    writer = ViewWriter(job.job_name, job.name, job.options)
    before = writer.read().marker
    writer.write([(b'{"k":1}', b'{"v":1}')], Marker("q", before.batch + 1 if before else 1))


def read_view(job: Tools) -> None:
    assert open_view(job.job_name, job.name, job.options).values


def record_plan(job: Tools) -> None:
    record(Pipeline((), ()), {**job.options, "jobName": job.job_name})


def explain(job: Tools) -> None:
    assert recorded(job.job_name, job.options)[0] == Pipeline((), ())


def read(job: Tools) -> Job:
    return read_job(job.job_name, job.options)


def supervise(job: Tools) -> None:
    """What a supervisor does with its control topic: it is elected, and tells how it is."""
    seat = Seat(read(job))
    try:
        until = time.monotonic() + 30
        while not seat.holds and time.monotonic() < until:
            seat.look()
            time.sleep(0.05)
        assert seat.holds
        seat.tell(Told("running"))
        while seat._producer.flush(0.1):
            pass
        seat.look()
    finally:
        seat.close()


def command(job: Tools) -> None:
    """Nobody answers, and that is known."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(EoKafkaError) as told:
        patch.setattr(asking, "NOBODY_S", 1.0)
        asking.ask(read(job), Do.SUSPEND, "", 30, print)
    if f"of job '{job.job_name}' answers to 'suspend'. It is recorded" not in str(told.value):
        raise told.value


def list_jobs(job: Tools) -> None:
    (found,) = survey(read(job).kafka, {})
    if found.problem or (found.watch and found.watch.problem):
        raise EoKafkaError(f"{found.problem}{found.watch and found.watch.problem}")
    assert (found.job, found.newest.batch) == (job.job_name, 1)


def as_admin(job: Tools) -> Tools:
    return replace(job, client={"bootstrap.servers": job.servers})


def begin_export(job: Tools) -> None:
    """An exporter died after its first record."""
    search = SnapshotSearch(job.job_name, as_admin(job).options)
    topic = topic_of(job.job_name, job.name)
    compacted_topic.create(search.admin, topic, 1, 1)
    ExportWriter(search.options, search.control, topic).append([(b"0" * 40 + b"/0", b"stray")])


def forget_control(job: Tools) -> None:
    supervise(as_admin(job))  # or it might not be there
    delete_topic(job.servers, topic_of_control(job.job_name))


def nothing(job: Tools) -> None:
    pass


TOPICS = "__eo_kafka."
# who -> (what is there before, what they do)
USERS = {
    "looking": (nothing, look),
    "exporting": (begin_export, export),
    "exporting, exporting-creation": (nothing, export),
    "exports": (lambda job: export(as_admin(job)), read_export),
    "deleting": (lambda job: export(as_admin(job)), delete),
    "view": (lambda job: show(as_admin(job)), show),
    "view, view-creation": (nothing, show),
    "view-reading": (lambda job: show(as_admin(job)), read_view),
    "recording": (lambda job: record_plan(as_admin(job)), record_plan),
    "explaining": (lambda job: record_plan(as_admin(job)), explain),
    "supervising": (lambda job: supervise(as_admin(job)), supervise),
    "supervising, supervising-creation": (forget_control, supervise),
    "commanding": (lambda job: supervise(as_admin(job)), command),
    "listing": (lambda job: supervise(as_admin(job)), list_jobs),
}
LACKING = [
    *(
        (who, (TOPICS, DESCRIBE), "needs Describe on it")
        for who in USERS
        if "creation" not in who and who != "listing"  # Kafka does not name what it may not see
    ),
    ("looking", ("ledger", READ), "needs Read"),
    ("looking", ("state", READ), "needs Read"),
    ("exporting", ("state", READ), "needs Read"),
    ("exporting", ("export", READ), "needs Read"),
    ("exporting", ("export", WRITE), "needs Write on it"),
    ("exporting", ("eo-kafka*", WRITE), "allowed to Write and Describe the id"),
    ("exporting, exporting-creation", ("export", CREATE), "grant Create on it"),
    ("exports", ("export", READ), "needs Read"),
    ("deleting", ("export", AclOperation.DELETE), "allowed to Delete the topic"),
    ("view", ("view", READ), "needs Read"),
    ("view", ("view", WRITE), "needs Write on it"),
    ("view", ("eo-kafka*", WRITE), "allowed to Write and Describe the id"),
    ("view, view-creation", ("view", CREATE), "grant Create on it"),
    ("view-reading", ("view", READ), "needs Read"),
    ("recording", ("plan", WRITE), "was not recorded"),
    ("explaining", ("plan", READ), "needs Read"),
    ("supervising", ("control", READ), "Grant this principal Read on topic and group"),
    ("supervising", ("control", WRITE), "Grant this principal Write on topic"),
    ("supervising, supervising-creation", ("control", CREATE), "grant Create on it"),
    ("commanding", ("control", WRITE), "needs Write on it"),
    ("listing", ("ledger", READ), "is not read"),
    ("listing", ("control", READ), "is not read"),
    ("listing", ("eo-kafka*", DESCRIBE), "Whether transactions are open is not known"),
]


def needed(who: str, job: Tools) -> list[Grant]:
    return [grant for one in who.split(", ") for grant in documented(one, job, job.name)]


def test_a_ledger_that_may_not_be_read_is_a_row_that_says_so(secure, tools, capsys):
    (row,) = (one for one in needed("listing", tools) if "ledger" in one[1] and one[2] == READ)
    secure.grant(user_of(tools), [(*row[:2], DESCRIBE)])
    config = tools.checkpoint.parent / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in tools.client.items()))
    assert main(["job", "list", "--config", str(config)]) == 3
    shown = capsys.readouterr().out
    assert f"{tools.job_name}  unreadable" in shown
    assert "TOPIC_AUTHORIZATION_FAILED" in shown or "authorization failed" in shown.lower()
    assert PASSWORD not in shown


@pytest.mark.parametrize("who", USERS)
def test_the_documented_acls_are_enough_for_exports_and_views(secure, tools, who):
    before, act = USERS[who]
    before(tools)
    secure.grant(user_of(tools), needed(who, tools))
    act(tools)


@pytest.mark.parametrize(("who", "missing", "words"), LACKING)
def test_what_an_export_or_a_view_lacks_is_named(secure, tools, who, missing, words):
    (before, act), (where, operation) = USERS[who], missing
    before(tools)
    grants = needed(who, tools)
    # Read, Write and Delete imply Describe: to lack that, a topic must have none of them.
    lacking = [one for one in grants if where in one[1] and operation in (one[2], DESCRIBE)]
    assert lacking, "the document does not ask for it"
    if len(lacking) < len(grants):
        secure.grant(user_of(tools), [one for one in grants if one not in lacking])
    with pytest.raises(EoKafkaError) as stop:
        act(tools)
    assert words in str(stop.value)
    assert lacking[0][1].rstrip("*") in str(stop.value)
    assert PASSWORD not in str(stop.value)
    assert not stop.value.in_doubt
    secure.grant(user_of(tools), lacking)
    act(tools)


def test_start_from_needs_the_export_and_what_the_new_jobs_ledger_needs(secure, tools, tmp_path):
    export(as_admin(tools))
    new = replace(tools, job_name=f"{tools.job_name}-{tools.name}", sink_topic="none")
    theirs = [grant for who in ("sink", "creation") for grant in documented(who, new)]
    secure.grant(user_of(tools), [*needed("exports", tools), *theirs])
    folder = str(tmp_path / "new")
    eo_kafka.start_from(
        tools.job_name, tools.name, new.job_name, folder, tools.options, progress=False
    )
    assert (tmp_path / "new" / "metadata").exists()


def test_a_supervisor_that_loses_a_right_says_which_and_gives_its_seat_up(secure, tools):
    """It died of a traceback: librdkafka refuses its last words itself, once it knows."""

    def start() -> Driver:
        raise OSError(errno.ENOMEM, "no memory")  # so there is something to tell

    supervise(as_admin(tools))
    secure.grant(user_of(tools), needed("supervising", tools))
    seat = Seat(read(tools))
    wait_until(lambda: seat.look() or seat.holds, "it has the job")
    secure.revoke(user_of(tools), [one for one in needed("supervising", tools) if one[2] == WRITE])
    orders = ControlledOrders(seat, tools.options)
    supervisor = Supervisor(
        start, Restarts(parse("fixed:100ms", None), random.random), 1, 1, orders
    )
    with pytest.raises(EnvironmentRefused, match="Grant this principal Write on topic"):
        supervisor.run()
    assert not seat._assigned, "it is given up"
    supervise(as_admin(tools))  # so another one has it at once
