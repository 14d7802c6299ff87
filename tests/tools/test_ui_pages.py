"""What the page of `eo-kafka ui` shows, of what is known and of what is not any more."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
from ui_world import NASTY, NOW, SECRET, World, decision, foreign, job, tail

from eo_kafka.core.errors import EnvironmentRefused, EoKafkaError
from eo_kafka.core.offsets import TopicPartition
from eo_kafka.core.transaction import DecisionState
from eo_kafka.state.ledger import records
from eo_kafka.testing.processes import wait_until
from eo_kafka.tools.control.words import Told, Wish
from eo_kafka.tools.jobs import report
from eo_kafka.tools.jobs.events import events
from eo_kafka.tools.jobs.metrics import families
from eo_kafka.tools.jobs.standing import Lag, Standing, State, lag_of, standing
from eo_kafka.tools.jobs.watchers import Control, Watch
from eo_kafka.tools.ui import actions, cluster, doings, drawing, looks, views


@pytest.fixture
def world(monkeypatch):
    return World(monkeypatch, job(), job("other", batches=0))


def test_what_others_wrote_is_text(world):
    """A name, what a supervisor said, the id of somebody's transaction, what was searched for."""
    world.found = [job(NASTY), job("said", said=NASTY)]
    world.transactions = [foreign(NASTY)]
    world.found[1] = replace(world.found[1], open_count=1)
    client = world.client(act=True)
    for path in ("/", f"/?q={NASTY}", "/jobs/said", "/topics/orders", f"/topics/{NASTY[:-9]}"):
        text = client.get(path).text
        assert "<script>alert" not in text and "&lt;script&gt;" in text, path
    page = client.get("/jobs/%3Cscript%3Ealert(1)%3C%2Fscript%3E").text
    assert "<script>alert" not in page


def test_no_page_has_a_secret(world, caplog):
    caplog.set_level(logging.DEBUG)
    client = world.client(act=True)
    world.found = EnvironmentRefused("The brokers refuse these settings.")
    for path in ("/", "/jobs/shout", "/topics/orders", "/jobs/shout/suspend"):
        assert SECRET not in client.get(path).text
    assert SECRET not in caplog.text
    assert SECRET not in repr(
        cluster.Cluster({"kafka.bootstrap.servers": "a", "kafka.sasl.password": SECRET})
    )


def test_the_first_page_says_what_job_list_says(world):
    text = world.client().get("/").text
    for one in world.found:
        for title, cell in zip(report.TITLES, report.cells(one, NOW), strict=True):
            assert title == "written" or f">{cell}<" in text, title
    assert "As of <time>" in text and "Not up to date" not in text


def test_a_job_is_found_by_its_topics(world):
    client = world.client()
    by_topic = client.get("/?q=order").text
    assert "/jobs/shout" in by_topic and "/jobs/other" not in by_topic
    assert "reads it: orders" in by_topic
    assert "/topics/orders" in client.get("/?q=orders").text
    assert "No job has that" in client.get("/?q=nowhere").text
    assert "/jobs/other" in client.get("/?state=new").text
    assert "/jobs/shout" not in client.get("/?state=new").text
    found = [row.job for row in views.overview(world.found, NOW, sort="written")]
    assert found == ["shout", "other"]
    assert client.get("/?sort=nonsense&state=nonsense").status_code == 200


def test_ten_who_look_cost_as_much_as_one(world, monkeypatch):
    monkeypatch.setattr(cluster, "JOBS_S", 60.0)
    world.delay_s = 0.2
    client = world.client()
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: client.get("/").text, range(10)))
    assert all("/jobs/shout" in text for text in answers)
    assert world.asked == 1
    client.get("/")
    assert world.asked == 1  # that is new enough


def test_questions_that_nobody_waits_for_any_more_are_not_asked(world, monkeypatch):
    """Whoever asks for a thousand topics: one is asked at a time, and few wait."""
    asked, goes_on = [], threading.Event()

    def silent(_, topic: str) -> list:
        asked.append(topic)
        goes_on.wait(20)
        return []

    monkeypatch.setattr(cluster.Cluster, "_on_topic", silent)
    monkeypatch.setattr(looks.all_of, "__defaults__", (0.01,))
    monkeypatch.setattr(looks, "KEPT", 5)
    client = world.client()
    before = threading.active_count()
    shown = [client.get(f"/topics/x{number}") for number in range(40)]
    assert {one.status_code for one in shown} == {200} and len(asked) == 1
    assert threading.active_count() < before + 8
    goes_on.set()
    wait_until(lambda: "x39" in asked, "the newest is asked")
    assert len(asked) <= 1 + 5
    wait_until(lambda: "None:" in client.get("/topics/x39").text, "and answered")


def test_who_waits_for_a_question_that_is_forgotten_waits_no_longer():
    lane = looks.Lane()
    goes_on = threading.Event()
    first = looks.Look(lambda: goes_on.wait(20), 1.0, lane)
    first.start()
    second = looks.Look(lambda: True, 1.0, lane)
    second.start()
    second.end()
    began = time.monotonic()
    seen = second.wait(began + 10)
    assert time.monotonic() - began < 5 and seen.value is None and "Look again" in seen.problem
    goes_on.set()
    wait_until(lambda: first.wait(0).value is True, "the first is answered")
    second.start()
    assert second.wait(time.monotonic() + 1).value is None


def test_a_silent_broker_holds_up_no_page_and_what_is_old_is_said_to_be(world, monkeypatch):
    monkeypatch.setattr(cluster, "JOBS_S", 0.0)
    monkeypatch.setattr(looks, "WAIT_S", 0.3)
    monkeypatch.setattr(looks, "LATE_S", 0.5)
    monkeypatch.setattr(looks.all_of, "__defaults__", (0.3,))
    client = world.client()
    assert "Not up to date" not in client.get("/").text
    world.delay_s = 3.0
    time.sleep(0.6)
    began = time.monotonic()
    text = client.get("/").text
    assert time.monotonic() - began < 2.0
    assert "/jobs/shout" in text and "Not up to date" in text and 'class="stack jobs old"' in text
    assert "Not up to date" in client.get("/jobs/shout").text


def test_a_look_that_fails_is_told_beside_what_was_known(world, monkeypatch):
    monkeypatch.setattr(cluster, "JOBS_S", 0.0)
    client = world.client()
    client.get("/")
    world.found = EnvironmentRefused("No Kafka broker listens at kafka:9092.")
    time.sleep(0.1)
    text = client.get("/").text
    assert "No Kafka broker listens at kafka:9092." in text
    assert "/jobs/shout" in text and "Not up to date" in text
    world.found = [job("back")]
    wait_until(lambda: "/jobs/back" in client.get("/").text, "it answers again")
    assert "Not up to date" not in client.get("/").text


def test_without_any_answer_no_job_is_said_to_be_missing(world):
    world.found = EnvironmentRefused("No Kafka broker listens at kafka:9092.")
    client = world.client()
    text = client.get("/").text
    assert "Nothing is known yet" in text and "No job has a ledger" not in text
    assert client.get("/jobs/shout").status_code == 200
    world.found = [job()]
    wait_until(lambda: client.get("/jobs/nobody").status_code == 404, "it answers")


def test_an_action_that_is_refused_says_so(world, monkeypatch):
    def refuse(*_):
        raise EoKafkaError("No supervisor of job 'shout' answers.")

    monkeypatch.setattr(actions, "ask", refuse)
    client = world.client(act=True)
    text = client.get("/jobs/shout/resume").text
    word, once = (
        text.split(f'name="{name}" value="')[1].split('"')[0] for name in ("csrf", "once")
    )
    answer = client.post("/jobs/shout/resume", data={"csrf": word, "once": once})
    shown = client.get(answer.headers["location"]).text
    assert "Not done." in shown and "No supervisor of job &#39;shout&#39; answers." in shown


def test_a_form_that_is_sent_again_does_nothing_however_much_was_done_since(monkeypatch):
    ran: list[str] = []

    def to_do(name: str) -> actions.Action:
        def run(*_) -> str:
            ran.append(name)
            return "Done."

        return actions.Action(name, name, (), name, "/", run)

    clock = SimpleNamespace(at_s=1000.0)
    of_forms = doings.Doings(lambda: None)
    monkeypatch.setattr(doings, "_now_s", lambda: clock.at_s)
    form, late = of_forms.new_id(), of_forms.new_id()
    first = of_forms.start(form, to_do("suspend"), {})
    for _ in range(200):
        of_forms.start(of_forms.new_id(), to_do("other"), {})
    assert of_forms.start(form, to_do("suspend"), {}) is first
    wait_until(lambda: first.ok is not None, "it has ended")
    clock.at_s += doings.VALID_S - 1
    assert of_forms.start(form, to_do("suspend"), {}) is first
    clock.at_s += doings.KEPT_S + 1
    of_forms.start(of_forms.new_id(), to_do("other"), {})
    number, _, rest = form.partition(".")
    made_up = (form, late, f"{int(number) + 9999}.{rest}", "", "x", "1.x.y", "9" * 99)
    for given in (*made_up, doings.Doings(lambda: None).new_id()):
        assert of_forms.start(given, to_do("suspend"), {}) is None, given
    wait_until(lambda: len(ran) == 202, "all others ran")
    assert ran.count("suspend") == 1
    assert of_forms.of(form) is None  # it is forgotten, too, and can do no harm


def test_a_batchs_steps_are_those_of_the_ledgers_records():
    found = views.batches(job(), NOW)
    assert [row["cells"]["batch"] for row in found["rows"]] == ["2", "1", "0"]
    assert {(row["tasks"], row["commit"]) for row in found["rows"]} == {("300 ms", "50 ms")}
    (tasks, commit), *_ = drawing.rows([drawing.course(decision(0, 1), tail(1))])
    assert (tasks.step, commit.step) == ("tasks", "commit")
    assert tasks.width == pytest.approx(857.1) and commit.x == pytest.approx(857.1)
    rate, _commit = found["charts"]
    assert rate.newest == "10"  # rows, a second apart
    assert found["unknown"] == 0


def test_what_compaction_took_is_told_to_be_unknown():
    one = job()
    one.tail.planned_ms.clear()
    del one.tail.decided_ms["main", 1]
    found = views.batches(one, NOW)
    assert [(row["tasks"], row["commit"]) for row in found["rows"]] == [
        ("?", "50 ms"),
        ("?", "?"),
        ("?", "50 ms"),
    ]
    assert found["unknown"] == 3


def test_clocks_that_differ_draw_nothing_backwards():
    course = drawing.Course(1, 1000, 900, 950)
    assert course.tasks_ms == 0
    bars, span = drawing.strip([course], 900)
    assert span == 1 and all(bar.x >= 0 and bar.x + bar.width <= drawing.WIDTH for bar in bars)


def test_a_line_has_its_gaps_and_is_not_made_of_one_point():
    assert drawing.line([(1, 5), (2, None)]) is None
    line = drawing.line([(0, 0), (1, 10), (2, None), (3, 5)])
    assert len(line.points) == 2 and line.points[0] == "0.0,98.0 333.3,2.0"
    assert (line.newest, line.most) == (5, 10)
    assert drawing.line([(7, 0), (7, 0)]).points


@pytest.mark.parametrize(
    ("alive", "phase", "told"),
    [
        ((), "running", "no supervisor of the job lives"),
        (("host:1",), "waiting", "its supervisor is waiting"),
        (("host:1",), "suspended", "its supervisor is suspended"),
        (("host:1",), "running", ""),
    ],
)
def test_what_a_dead_driver_left_open_needs_a_look(alive, phase, told):
    watch = Watch(alive, Control("t", told=Told(phase)))
    one = replace(job(), watch=watch, open_count=2)
    assert "".join(views.problems(one)).count("Transactions are open") == bool(told)
    assert told in "".join(views.problems(one))
    assert bool(views.problems(replace(one, open_count=0))) == (not alive)
    assert views.problems(replace(one, watch=Watch((), watch.control, "not seen"))) == ("not seen",)


def test_attempts_and_lost_transactions_are_among_what_happened():
    """Each attempt takes a generation."""
    assert events(tail(3), None, 10) == []
    found = tail(2)
    found.apply(records.GENERATION_KEY, records.encode_generation(5), NOW)
    last = decision(2, 5)
    key = records.decision_key("main", 2, 0)
    found.apply(key, records.encode_decision(last), NOW)
    (again,) = events(found, None, 10)
    assert "Batch 2 was begun 3 times, in generations 3 to 5" in again.text and again.at_ms == NOW
    void = decision(3, 6, DecisionState.VOID)
    found.apply(records.GENERATION_KEY, records.encode_generation(8), NOW)
    found.ledger.decisions["main", 3] = void
    texts = [one.text for one in events(found, None, 10)]
    assert any("Batch 3 was decided, and Kafka aborted all" in text for text in texts)
    assert any("Batch 4 has been begun 2 times, and is not decided" in text for text in texts)


def test_a_batch_that_kafka_aborted_is_neither_written_nor_committed():
    found = tail(2)
    written_ms = found.done_ms["main", 1]

    def decide(state: DecisionState, later_ms: int, round_: int = 0) -> Standing:
        record = decision(2, 3 + round_, state, round_=round_)
        key = records.decision_key(record.sink, record.batch, record.round)
        found.apply(key, records.encode_decision(record), NOW + later_ms)
        return standing("shout", found, [], Lag(5), [], NOW + later_ms)

    decide(DecisionState.DECIDED, 1000)
    void = decide(DecisionState.VOID, 61_000)
    assert (void.state, void.written_ms) == (State.VOID, written_ms)
    (cells,) = report.history_cells(found, 1, NOW + 61_000)
    assert cells[2] == "VOID" and cells[-1] == "-"
    assert report.batch(void.newest, found)["doneMs"] is None
    (lost,) = events(found, None, 10)
    assert "aborted all" in lost.text and lost.at_ms == NOW + 61_000
    samples = [one for family in families([void], NOW) for one in family.samples]
    told = {(one.name, one.labels.get("state")): one.value for one in samples}
    assert told["eo_kafka_job_state", "quiet"] == 0 and told["eo_kafka_job_state", "void"] == 1
    assert told["eo_kafka_job_written_timestamp_seconds", None] == written_ms / 1000
    row = views.row(void, NOW)
    assert row.state == "void" and "written anew" in row.means

    again = decide(DecisionState.DECIDED, 70_000, round_=1)
    assert (again.state, again.written_ms) == (State.DECIDED, written_ms)
    assert report.history_cells(found, 1, NOW)[0][-1] == "-"
    done = decide(DecisionState.DONE, 70_500, round_=1)
    assert (done.state, done.written_ms) == (State.QUIET, NOW + 70_500)
    assert report.history_cells(found, 1, NOW)[0][-1] == "500 ms"


def test_what_a_supervisor_says_is_among_what_happened():
    one = job(said="it was killed by SIGKILL")
    (asked, said) = sorted(events(one.tail, one.watch, 10), key=lambda event: event.is_fault)
    assert "asked to suspend it" in asked.text and not asked.is_fault
    assert "it was killed by SIGKILL" in said.text and said.is_fault


@pytest.mark.parametrize(
    ("phase", "state", "sentence"),
    [
        ("running", State.QUIET, "the last one was 'running': the job stands still"),
        ("ended", State.DECIDED, "the last one was 'ended', and a batch is decided"),
        ("ended", State.QUIET, ""),  # as a run with --once does
    ],
)
def test_a_job_that_is_to_run_and_that_nobody_runs_needs_a_look(phase, state, sentence):
    one = replace(job(), state=state)
    dead = replace(one, watch=Watch((), Control("t", told=Told(phase, host="h"))))
    assert [sentence in told for told in views.problems(dead)] == [True] * bool(sentence)
    assert views.counts([dead])[1][0] == bool(sentence)
    for control in (Control("t", told=Told(phase)), Control("t", wish=Wish("suspend", "me"))):
        alive = ("host:1",) if control.wish is None else ()
        assert views.problems(replace(one, watch=Watch(alive, control))) == ()


def test_input_that_was_deleted_before_it_was_read_is_told():
    at = [TopicPartition("in", number) for number in range(2)]
    read, ends = dict.fromkeys(at, 10), dict.fromkeys(at, 1000)
    for first, gone in ((10, ""), (11, "Offsets 10 to 10 of in-1 "), (1000, "Offsets 10 to 999 ")):
        begins = {at[0]: 0, at[1]: first}
        found = lag_of(read, {}, {}, begins, ends, {})
        assert (found.behind, found.gone[: len(gone) or None]) == (1980, gone)
        told = replace(job(), lag=found)
        assert len(views.problems(told)) == bool(gone)
        assert bool(gone) == ("DataLossError" in report.listing([told], NOW))
