"""What `eo-kafka explain` says of a job is what a crash shows: where it says that rows may be lost
or repeated they are, and where it says exactly once they are not."""

from __future__ import annotations

from collections import Counter

import pytest

from eo_kafka.broker.jars import jvm_connector_jars
from eo_kafka.testing import HALF_WRITTEN

JOBS = "jobs.explained_jobs"
NUMBERS = range(200)


def wave(number: int) -> list[bytes]:
    return [b"%d:%d" % (number, at) for at in NUMBERS]


@pytest.fixture
def crashed(eo_broker, eo_job, tmp_path):
    """Runs a job on a first wave, in which it dies when the batch is decided, and on a second one.
    Gives what it said of itself, and how often each value came out."""

    def run(name: str, between=lambda: None, before_last=lambda: None, **config: str):
        topic = eo_broker.topic("in")
        told = tmp_path / "told"
        job = eo_job(
            f"{JOBS}:{name}", source="in", sink="out", config={"told": str(told), **config}
        )
        topic.write(wave(1))
        job.run(crash="S6.after_decision", until="crashed")
        between()
        job.run()
        before_last()
        topic.write(wave(2))
        job.run()
        return told.read_text(), Counter(record.value for record in job.sink.read()), job

    return run


def lost_and_repeated(found: Counter[bytes]) -> tuple[int, int]:
    wanted = [b"%d" % at for at in NUMBERS]
    return (
        sum(found[one] == 0 for one in wanted),
        sum(found[one] > 1 for one in wanted),
    )


def test_what_chance_puts_into_the_state_is_lost_and_repeated(crashed):
    guarantee, found, _job = crashed("dice_into_state")
    assert guarantee == "none"
    lost, repeated = lost_and_repeated(found)
    assert lost > 0 and repeated > 0, found


@pytest.mark.full
def test_chance_beside_the_state_does_no_harm(crashed):
    guarantee, found, _job = crashed("dice_beside_state")
    assert guarantee == "exactly-once"
    assert found == Counter(b"%d" % at for at in NUMBERS)


@pytest.mark.full
def test_a_side_that_changes_before_a_state_loses_and_repeats(crashed, tmp_path):
    side = tmp_path / "side"
    side.mkdir()

    def says(numbers):
        (side / "numbers.txt").write_text("\n".join(map(str, numbers)))

    says(NUMBERS[:100])
    guarantee, found, _job = crashed(
        "changing_side", lambda: says(NUMBERS[100:]), lambda: says(NUMBERS), side=str(side)
    )
    assert guarantee == "none"
    assert lost_and_repeated(found) == (100, 100)


@pytest.mark.full
def test_counts_by_chance_come_out_wrong(crashed):
    guarantee, _found, job = crashed("dice_counted")
    assert guarantee == "none"
    newest = {record.key: int(record.value) for record in job.sink.read()}
    assert sum(newest.values()) != 2 * len(NUMBERS)


SLOW = [
    pytest.param("slow_sink", {"format": "eo-kafka", "guarantee": "at-least-once"}, id="ours"),
    pytest.param("slow_sink", {"format": "kafka"}, id="kafka"),
    pytest.param("two_writers", {}, id="foreachBatch"),
]


@pytest.mark.full  # CI has test_a_duplicate_of_sparks_own_sink_is_found
@pytest.mark.parametrize(("name", "config"), SLOW)
def test_a_sink_without_transactions_repeats(eo_broker, eo_job, tmp_path, name, config):
    topic, told = eo_broker.topic("in", partitions=2), tmp_path / "told"
    job = eo_job(
        f"{JOBS}:{name}",
        source="in",
        sink="out",
        config={"told": str(told), **config},
        spark={"spark.jars": jvm_connector_jars()},
    )
    topic.write(wave(1))
    job.run(crash=HALF_WRITTEN)
    found = Counter(record.value for record in job.sink.read())
    assert set(found) == set(wave(1)), "nothing is lost"
    assert max(found.values()) == 2
    assert told.read_text() == ("not-known" if name == "two_writers" else "at-least-once")
