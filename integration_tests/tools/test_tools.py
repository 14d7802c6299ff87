"""`eo-kafka txn`: what it says of real transactions, what it ends, and what it refuses to end.

The transactions are made by the sink's own code (plan, write, decide) in this process, without
Spark: what Spark would add is who calls it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from eo_kafka.clients.kafka import transactional_producer
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.transactional_id import TransactionalIds
from eo_kafka.core import crash_points as crash_points_module
from eo_kafka.core.crash_points import CrashPointReached
from eo_kafka.errors import EnvironmentRefused, Fenced, LedgerError
from eo_kafka.sinks.batches.committable import TaskReport, WritePlan
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, one_phase, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.coordinator import Coordinator
from eo_kafka.state.ledger.ledger import DECISION_PARTITION
from eo_kafka.state.ledger.log_reader import read_records
from eo_kafka.tools.cli import main
from eo_kafka.tools.transactions.ending import close_ledger
from hand_made_job import HandMadeJob
from harness import committed, delete_topic, produce, wait_until
from newcomer import Newcomer
from wrong_clock import set_ahead

QUERY = "7d3ae3b8-0000-4000-8000-000000000001"


@dataclass
class PreparedJob:
    """A batch of two tasks, prepared as Spark's tasks would."""

    servers: str
    topic: str
    name: str
    timeout_ms: int = 60_000
    way: str = "two-phase"
    reports: list = field(default_factory=list)
    more: dict[str, str] = field(default_factory=dict)

    @property
    def options(self) -> SinkOptions:
        return SinkOptions.parse(
            {
                "kafka.bootstrap.servers": self.servers,
                "kafka.transaction.timeout.ms": str(self.timeout_ms),
                "topic": self.topic,
                "jobName": self.name,
                "commit": self.way,
                **self.more,
            },
            streaming=True,
        )

    @property
    def ledger(self) -> str:
        return f"__eo_kafka.{self.name}.ledger"

    def prepare(self, batch: int = 0) -> None:
        """S1 to S5. Two transactions stay open."""
        plan = make_plan(self.options)
        self.reports = [self.run_task(plan, batch, partition) for partition in range(2)]

    def run_task(self, plan: WritePlan, batch: int, partition: int) -> TaskReport:
        write = one_phase.write if self.options.one_phase else two_phase.write
        task = two_phase.TaskIdentity(QUERY, batch, partition, partition)
        rows = pa.RecordBatch.from_pydict({"value": self.rows(batch, partition)})
        return write(self.options, plan, task, iter([rows]))

    def rows(self, batch: int, partition: int) -> list[bytes]:
        return [b"%d-%d-%d" % (batch, partition, number) for number in range(10)]

    def commit(self, batch: int = 0) -> None:
        """S6 to S8."""
        committer.commit(self.options, self.reports, batch)

    @property
    def ids(self) -> list[str]:
        return [report.prepared.identity.transactional_id for report in self.reports]

    def visible(self) -> Counter:
        return committed(self.servers, self.topic)

    def all_rows(self, *batches: int) -> Counter:
        return Counter(
            row
            for batch in batches
            for partition in range(2)
            for row in self.rows(batch, partition)
        )


@pytest.fixture
def job(lone_broker, lone_topic) -> PreparedJob:
    topic = lone_topic("tool", partitions=2)
    return PreparedJob(lone_broker.bootstrap_servers, topic, f"job-{topic}")


@pytest.fixture
def points(tmp_path, monkeypatch):
    """Arms crash points of this process."""
    monkeypatch.setattr(crash_points_module, "FOLDER", str(tmp_path))

    def arm(name: str, action: str = "raise") -> None:
        (tmp_path / name).write_text(action)

    return arm


@pytest.fixture
def decided(job, points) -> PreparedJob:
    """Dead after S6: decided, nothing committed."""
    job.prepare()
    points("S6.after_decision")
    with pytest.raises(CrashPointReached):
        job.commit()
    return job


@pytest.fixture
def tool(lone_broker, capsys):
    """Runs a command: (exit code, its JSON or its text)."""

    def run(*words: str, parse: bool = True):
        json_word = ["--json"] if parse else []
        capsys.readouterr()
        code = main(
            ["txn", *words, "--bootstrap-servers", lone_broker.bootstrap_servers, *json_word]
        )
        said = capsys.readouterr()
        if code == 1 and not said.out:
            return code, said.err
        return code, json.loads(said.out) if parse else said.out

    return run


def facts(shown: dict, *names: str) -> list[tuple]:
    return sorted(tuple(one[name] for name in names) for one in shown["transactions"])


def is_open(job: PreparedJob, name: str) -> bool:
    control = ControlPlane({"bootstrap.servers": job.servers})
    try:
        return control.describe_one(name).state.value == "Ongoing"
    finally:
        control.close()


def test_prepared_and_undecided_is_listed_and_needs_nobody_yet(job, tool):
    job.prepare()
    code, shown = tool("list", "--job", job.name)
    assert code == 0
    assert facts(shown, "partition", "ledger", "state", "token", "attention") == [
        (0, "not decided", "Ongoing", "still open", None),
        (1, "not decided", "Ongoing", "still open", None),
    ]
    assert facts(shown, "transactionalId") == sorted((name,) for name in job.ids)
    (first, _) = shown["transactions"]
    assert 0 < first["remainingMs"] <= job.timeout_ms
    assert (first["job"], first["generation"], first["timeoutMs"]) == (job.name, 1, 60_000)
    assert f"{job.ledger}-1" in first["partitions"]
    job.commit()


@pytest.mark.smoke
def test_a_decided_batch_is_found_by_job_prefix_id_and_query_and_committed(decided, tool):
    for words in (["--job", decided.name], ["--prefix", "eo-kafka"], ["--query-id", QUERY]):
        code, shown = tool("list", *words)
        mine = [one for one in shown["transactions"] if one["job"] == decided.name]
        assert code == 3, "a decided batch that is not committed needs somebody"
        assert [(one["batch"], one["round"], one["decision"]) for one in mine] == [
            (0, 0, "DECIDED")
        ] * 2
    code, shown = tool("show", decided.ids[0])
    assert facts(shown, "transactionalId", "decision", "token") == [
        (decided.ids[0], "DECIDED", "still open")
    ]
    code, shown = tool("commit", "--job", decided.name, "--dry-run")
    assert (code, facts(shown, "done")) == (0, [(True,), (True,)])
    assert not decided.visible(), "a dry run committed"
    code, shown = tool("commit", "--job", decided.name)
    assert (code, facts(shown, "outcome")) == (0, [("committed",), ("committed",)])
    wait_until(lambda: decided.visible() == decided.all_rows(0), "all rows are visible")
    code, shown = tool("list", "--job", decided.name)
    assert facts(shown, "decision", "token", "attention") == [("DECIDED", "visible", None)] * 2
    code, shown = tool("commit", "--job", decided.name)
    assert (code, facts(shown, "outcome")) == (0, [("is committed already",)] * 2)
    make_plan(decided.options)  # the next start goes on
    assert tool("list", "--job", decided.name) == (0, {"transactions": [], "leftOut": {}})
    assert decided.visible() == decided.all_rows(0)


def test_a_batch_committed_in_part_is_shown_so_and_the_rest_is_committed(job, points, tool):
    job.prepare()
    points("S7.after_first_end_txn")
    with pytest.raises(CrashPointReached):
        job.commit()
    code, shown = tool("list", "--job", job.name)
    assert code == 3
    (still_open,) = [one for one in shown["transactions"] if one["token"] == "still open"]
    (ended,) = [one for one in shown["transactions"] if one is not still_open]
    assert ended["state"] in ("PrepareCommit", "CompleteCommit")
    assert ended["token"] in ("visible", "hidden"), (
        "hidden: its token may stand behind the open one"
    )
    code, _ = tool("commit", still_open["transactionalId"])
    assert code == 0
    wait_until(lambda: job.visible() == job.all_rows(0), "all rows are visible")


def test_commit_refuses_what_nothing_decided(job, tool):
    job.prepare()
    code, shown = tool("commit", *job.ids)
    assert code == 1
    assert "no decision names it" in shown["transactions"][0]["outcome"]
    assert all(is_open(job, name) for name in job.ids)
    assert not job.visible()
    code, _ = tool("commit", job.ids[0], "--force")
    assert code == 0
    wait_until(job.visible, "the forced rows are visible")


def test_abort_refuses_what_is_decided(decided, tool):
    code, shown = tool("abort", "--job", decided.name, "--yes")
    assert code == 1
    assert "its batch is decided" in shown["transactions"][0]["outcome"]
    assert all(is_open(decided, name) for name in decided.ids)
    code, _ = tool("abort", decided.ids[0], "--force")
    assert code == 0
    assert not is_open(decided, decided.ids[0])
    code, shown = tool("list", "--job", decided.name)
    assert code == 3
    attention = {one["transactionalId"]: one["attention"] for one in shown["transactions"]}
    assert "Kafka aborted it" in attention[decided.ids[0]]
    assert "not committed yet" in attention[decided.ids[1]]
    # Nothing is lost even so: the next start replays what is missing.
    decided.prepare()
    decided.commit()
    assert decided.visible() == decided.all_rows(0)


def test_abort_of_what_a_running_query_may_decide_needs_yes_and_then_stops_it(job, tool):
    job.prepare()
    code, shown = tool("abort", "--job", job.name)
    assert code == 1
    assert "--yes" in shown["transactions"][0]["outcome"]
    assert all(is_open(job, name) for name in job.ids)
    code, shown = tool("abort", "--job", job.name, "--yes")
    assert (code, facts(shown, "outcome")) == (0, [("aborted",), ("aborted",)])
    with pytest.raises(Fenced):  # the driver that was about to decide, and can no more
        job.commit()
    assert not job.visible()
    job.prepare()
    job.commit()
    assert job.visible() == job.all_rows(0)


def test_a_decision_that_comes_between_the_look_and_the_abort_wins(job, tool, monkeypatch):
    from eo_kafka.tools.transactions import ending as transaction_ending

    job.prepare()
    close = transaction_ending.close_to_drivers

    def decide_first(*arguments):
        job.commit()
        return close(*arguments)

    monkeypatch.setattr(transaction_ending, "close_to_drivers", decide_first)
    code, shown = tool("abort", "--job", job.name, "--yes")
    assert code == 1
    assert facts(shown, "done") == [(False,), (False,)]
    assert job.visible() == job.all_rows(0)


def test_what_an_older_generation_left_is_aborted_without_further_ado(job, tool, monkeypatch):
    job.prepare()
    control = ControlPlane({"bootstrap.servers": job.servers})
    try:
        coordinator = Coordinator(job.options, control)
        coordinator.fence()
        newer = records.encode_generation(coordinator.read().generation + 1)
        coordinator.append([(records.GENERATION_KEY, newer)])
    finally:
        control.close()
    code, shown = tool("list", "--job", job.name)
    assert (code, facts(shown, "ledger")) == (3, [("not decided, stale",)] * 2)
    old = ["--job", job.name, "--older-than", "10m"]
    for action in ("list", "abort"):
        assert tool(action, *old)[1]["transactions"] == []
    set_ahead(monkeypatch, 601)  # ages are by two machines' clocks
    assert len(tool("list", *old)[1]["transactions"]) == 2
    code, shown = tool("abort", *old)
    assert (code, facts(shown, "outcome")) == (0, [("aborted",), ("aborted",)])
    assert not any(is_open(job, name) for name in job.ids)


def test_what_is_left_over_is_aborted_beside_a_driver_that_goes_on(job, tool):
    make_plan(job.options)
    job.prepare()
    ids, settings = job.options.ids, {"bootstrap.servers": job.servers}
    left = transactional_producer.take(settings, ids.task("main", 7, 1, 0), 60_000)
    left.begin_transaction()
    left.produce(job.topic, b"left over")
    left.flush()
    code, shown = tool("abort", ids.task("main", 7, 1, 0))
    assert (code, facts(shown, "ledger", "outcome")) == (0, [("not decided, stale", "aborted")])
    job.commit()
    assert job.visible() == job.all_rows(0)


def test_an_abort_never_hits_the_next_transaction_of_an_id(job, tool, monkeypatch):
    """Ids are used again: between the look and the EndTxn another may have taken it."""
    from eo_kafka.tools.transactions import ending as transaction_ending

    job.prepare()
    close = transaction_ending.close_to_drivers
    others = []

    def take_over(*arguments):
        closed = close(*arguments)
        settings = {"bootstrap.servers": job.servers}
        other = transactional_producer.take(settings, job.ids[0], 60_000)
        other.begin_transaction()
        other.produce(job.topic, b"the next one's")
        other.flush()
        others.append(other)
        return closed

    monkeypatch.setattr(transaction_ending, "close_to_drivers", take_over)
    code, shown = tool("abort", job.ids[0], "--yes")
    assert code == 1
    assert "ended meanwhile" in shown["transactions"][0]["outcome"]
    assert is_open(job, job.ids[0])
    others[0].commit_transaction()
    assert tool("abort", job.ids[1])[0] == 0  # of an older generation now: no --yes
    assert job.visible() == Counter([b"the next one's"])


def test_a_transaction_without_a_ledger_is_left_alone_unless_forced(job, tool):
    job.prepare()
    other = TransactionalIds("eo-kafka", "no-such-job").task("main", 0, 1, 0)
    settings = {"bootstrap.servers": job.servers, "transactional.id": other}
    producer = Producer(settings)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(job.topic, b"a save() left it")
    producer.flush()
    code, shown = tool("abort", other, "--yes")
    assert (code, facts(shown, "ledger")) == (1, [("no ledger",)])
    assert is_open(job, other)
    assert tool("commit", other)[0] == 1
    assert tool("abort", other, "--force")[0] == 0
    assert not is_open(job, other)
    job.commit()
    assert job.visible() == job.all_rows(0)


def test_what_other_programs_hold_open_on_the_topic_is_found(job, tool):
    job.prepare()
    other = Producer({"bootstrap.servers": job.servers, "transactional.id": f"other-{job.topic}"})
    other.init_transactions()
    other.begin_transaction()
    other.produce(job.topic, b"theirs")
    other.flush()
    code, shown = tool("list", "--topic", job.topic)
    assert code == 0
    assert facts(shown, "ledger", "transactionalId") == sorted(
        [("not ours", f"other-{job.topic}"), *(("not decided", name) for name in job.ids)]
    )
    code, shown = tool("abort", f"other-{job.topic}", "--yes")
    assert (code, "another program's" in shown["transactions"][0]["outcome"]) == (1, True)
    other.abort_transaction()
    job.commit()


def test_text_fits_a_terminal_and_names_what_to_do(decided, tool):
    code, text = tool("list", "--job", decided.name, parse=False)
    assert code == 3
    assert max(map(len, text.splitlines())) <= 100
    assert "batch 0 DECIDED, still open" in text
    assert "start the query, or commit it" in text
    _, text = tool("show", *decided.ids, parse=False)
    assert f"job         {decided.name} (ledger {decided.ledger}, generation 1)" in text
    assert "sink        main, partition 0, generation slot 1, attempt slot 0" in text
    assert tool("commit", "--job", decided.name, parse=False)[0] == 0


def test_a_ledger_of_another_job_is_refused(decided, tool):
    wrong = ["--job", "no-such-job", "--ledger-topic", decided.ledger]
    code, said = tool("list", *wrong)
    assert (code, "is not the ledger of job 'no-such-job'" in said) == (1, True)
    code, said = tool("abort", *decided.ids, *wrong, "--yes")
    assert (code, "is not one of job 'no-such-job'" in said) == (1, True)
    assert all(is_open(decided, name) for name in decided.ids)


def test_a_decision_in_a_ledger_of_another_name_is_not_judged_by_the_one_of_before(
    job, tool, points, lone_topic
):
    """By that the transactions are of an older generation, and would be aborted without ado."""
    before = replace(job, more={"transactionalIdPrefix": "of-before"}, reports=[])
    for batch in (0, 1):
        before.prepare(batch)
        before.commit(batch)
    topic = lone_topic("team-ledger", partitions=2, config={"cleanup.policy": "compact"})
    job.more = {"ledgerTopic": topic}
    job.prepare(2)
    points("S6.after_decision")
    with pytest.raises(CrashPointReached):
        job.commit(2)
    code, shown = tool("abort", "--job", job.name)
    assert (code, facts(shown, "ledger")) == (1, [("no ledger",)] * 2)
    assert all("--ledger-topic" in one["outcome"] for one in shown["transactions"])
    assert all(is_open(job, name) for name in job.ids)
    code, _ = tool("commit", "--job", job.name, "--ledger-topic", topic)
    assert code == 0
    wait_until(lambda: job.visible() == job.all_rows(0, 1, 2), "all rows are visible")


def test_a_ledger_that_names_tasks_by_their_tokens_only_is_read(job, tool):
    """With commit=idempotent: a task committed, and the driver died before any decision."""
    job.way = "idempotent"
    job.run_task(make_plan(job.options), 0, 0)
    job.prepare()
    job.commit()
    assert job.visible() == job.all_rows(0)
    for words in (["--job", job.name], ["--query-id", QUERY], []):
        _, shown = tool("list", *words)
        assert [one for one in shown["transactions"] if one["job"] == job.name] == []
    assert tool("commit", "--job", job.name) == (0, {"dryRun": False, "transactions": []})


def test_a_ledger_that_cannot_be_read_is_named_and_hides_no_other(
    decided, tool, capsys, monkeypatch
):
    broken = replace(decided, name=f"broken-{decided.name}")
    broken.prepare()
    other = Producer({"bootstrap.servers": broken.servers})
    other.produce(broken.ledger, b"{", records.GENERATION_KEY, DECISION_PARTITION)
    other.flush()
    for words in (["--query-id", QUERY], ["--prefix", "eo-kafka"], ["--older-than", "1h"]):
        code, shown = tool("list", *words)
        found = {one["job"] for one in shown["transactions"]}
        assert (code, decided.name in found, broken.name in found) == (3, words[1] != "1h", False)
        assert "cannot be decoded" in shown["leftOut"][broken.name]
    assert tool("abort", "--older-than", "1h")[0] == 1
    main(["txn", "list", "--older-than", "1h", "--bootstrap-servers", broken.servers])
    assert "No transactions that have been open for longer are seen" in capsys.readouterr().out
    main(["txn", "list", "--bootstrap-servers", broken.servers])
    assert f"Job '{broken.name}' is left out: " in capsys.readouterr().err
    code, said = tool("list", "--query-id", "no-such-query")
    assert (code, "1 could not be read" in said) == (1, True)
    code, said = tool("list", "--job", broken.name)
    assert (code, "restore the topic" in said) == (1, True)
    monkeypatch.setattr("eo_kafka.tools.doctor.command.check_machine", list)
    for one, level in ((broken, "problem"), (decided, "warning")):
        capsys.readouterr()
        words = ["--job", one.name, "--bootstrap-servers", one.servers, "--json"]
        assert main(["doctor", *words]) == (level == "problem")
        found = json.loads(capsys.readouterr().out)["findings"]
        (told,) = [one for one in found if (one["subject"], one["level"]) == ("ledger", level)]
        words = {"problem": "restore the topic", "warning": "batch 0 is decided, and not known"}
        assert words[level] in told["text"]
    delete_topic(broken.servers, broken.ledger)


def test_an_emptied_ledger_lets_nobody_abort_what_it_had_decided(decided, tool):
    """Nor does one that is another's: by it, what was decided would be nobody's, and stale."""
    delete_topic(decided.servers, decided.ledger)
    admin = AdminClient({"bootstrap.servers": decided.servers})
    wait_until(lambda: _made(admin, decided.ledger), "the ledger is made again, empty")
    code, shown = tool("abort", "--job", decided.name, "--yes")
    assert (code, {one["ledger"] for one in shown["transactions"]}) == (1, {"no ledger"})
    assert all(is_open(decided, name) for name in decided.ids)
    with (
        closing(ControlPlane({"bootstrap.servers": decided.servers})) as control,
        pytest.raises(LedgerError, match="is empty"),  # a generation would make it look new
    ):
        close_ledger(decided.options, control)
    assert tool("abort", *decided.ids, "--force")[0] == 0


def _made(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, 2, config={"cleanup.policy": "compact"})])[
            topic
        ].result(30)
    except KafkaException:  # its deletion is not over
        return False
    return True


def test_a_decision_may_be_larger_than_kafkas_default_for_a_record(job):
    """A decision names all tasks: from 4,000 on it is more than a megabyte."""
    make_plan(job.options)
    control = ControlPlane({"bootstrap.servers": job.servers})
    try:
        coordinator = Coordinator(job.options, control)
        coordinator.fence()
        large = os.urandom(4 << 20)  # 16,000 tasks, and nothing to compress
        coordinator.append([(b"decision/other/0/0", large)])
        with pytest.raises(EnvironmentRefused, match=r"max\.message\.bytes"):
            coordinator.append([(b"decision/other/0/0", 3 * large)])
        end = control.end_offset(job.ledger, DECISION_PARTITION, committed=True)
        settings = {"bootstrap.servers": job.servers}
        found = list(read_records(settings, job.ledger, DECISION_PARTITION, 0, end))
        assert [value for _, _, value in found if len(value) > 10_000] == [large]
    finally:
        control.close()


def test_an_id_that_nobody_has_is_no_other_programs(job, tool):
    job.prepare()
    mine = job.reports[0].participant.identity.transactional_id
    never = TransactionalIds("eo-kafka", job.name).task("main", 7, 1, 0)
    for words in (["show"], ["commit"], ["abort", "--force"]):
        for ids in (["eo-kafka.nosuch"], [never, mine]):
            code, said = tool(words[0], *ids, *words[1:])
            assert (code, f"No coordinator knows '{ids[0]}'" in said) == (1, True), said
    assert is_open(job, mine)
    job.commit()


def test_a_query_without_a_ledger_and_a_wrong_combination_are_sentences(tool):
    code, said = tool("list", "--query-id", "no-such-query")
    assert (code, "No ledger belongs to query" in said) == (1, True)
    code, said = tool("list", "--job", "no-such-job")
    assert (code, "Job 'no-such-job' has no ledger" in said) == (1, True)
    code, said = tool("abort")
    assert (code, "Which transactions?" in said) == (1, True)


@pytest.mark.full
def test_the_page_of_the_commands_shows_what_they_print(own, points, tmp_path):
    """docs/tools.md: its example is this job, and a hand-made one whose snapshots it looks at."""
    servers = own.bootstrap_servers
    make = ["topic", "create", "shouted:1", "counts:1", "--bootstrap-servers"]
    assert main([*make, servers]) == 0
    job = PreparedJob(servers, "shouted", "shout", timeout_ms=600_000)
    job.prepare()
    job.commit()
    HandMadeJob(servers, "counts", "counts", tmp_path / "checkpoint").run(0, 1, 2, 3)
    newcomer = Newcomer("docs/tools.md", tmp_path, addresses={"localhost:9092": servers})
    with closing(newcomer):
        for typed in newcomer.follow():
            if typed.command.startswith("eo-kafka topic describe"):
                produce(servers, "orders", list(job.all_rows(0, 1)))
                job.prepare(1)
                points("S7.after_first_end_txn")
                with pytest.raises(CrashPointReached):
                    job.commit(1)
                newcomer.addresses["0d6e4079e367"] = job.ids[0].split(".")[2]
                settings = {"bootstrap.servers": servers, "transaction.timeout.ms": 600_000}
                billing = Producer({**settings, "transactional.id": "billing-1"})
                billing.init_transactions()
                billing.begin_transaction()
                billing.produce("shouted", b"not ours")
                billing.flush()
            assert "Traceback" not in typed.output
