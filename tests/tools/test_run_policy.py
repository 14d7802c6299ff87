"""When `eo-kafka run` starts a job again: every policy, by a clock that is given."""

from __future__ import annotations

import pytest

from eo_kafka.core.errors import OptionsError
from eo_kafka.tools.run.policy import DEFAULT, GiveUp, Policy, Restarts, Wait, parse


def waits(policy: Policy, runs: list[float], chance: float = 0.5) -> list[float | str]:
    """What is done when runs of these lengths end one after the other, after each wait."""
    restarts, now, done = Restarts(policy, lambda: chance), 0.0, []
    for ran in runs:
        now += ran
        found = restarts.failed(now, ran)
        if isinstance(found, GiveUp):
            return [*done, found.why]
        done.append(found.seconds)
        now += found.seconds
    return done


def test_an_exponential_delay_doubles_up_to_its_longest():
    assert waits(parse(DEFAULT, None), [0] * 10) == [1, 2, 4, 8, 16, 32, 64, 120, 120, 120]


def test_it_never_overflows():
    restarts = Restarts(Policy(factor=100.0, longest_s=1e300), lambda: 0.5)
    found = [restarts.failed(now, 0.0) for now in range(5000)]
    assert found[-1] == Wait(1e300)


def test_a_healthy_run_begins_anew():
    policy = parse("exponential:1s..2m,healthy=5m", None)
    assert waits(policy, [0, 0, 0, 299, 300, 0]) == [1, 2, 4, 8, 1, 2]


def test_jitter_is_a_part_of_the_wait_to_both_sides():
    policy = parse("exponential:10s..20s,jitter=0.2", None)
    assert waits(policy, [0, 0, 0], chance=0.0) == [8, 16, 16]
    assert waits(policy, [0, 0, 0], chance=1.0) == pytest.approx([12, 24, 24])


def test_a_fixed_delay_is_always_the_same():
    assert waits(parse("fixed:10s", None), [0, 700, 0], chance=1.0) == [10, 10, 10]


def test_none_gives_up_at_once():
    assert waits(parse("none", None), [5]) == ["With --restart none it is not started again."]


def test_a_rate_counts_failures_within_its_time():
    policy = parse("fixed:1s", "3/1m")
    assert waits(policy, [0, 0, 0]) == [1, 1, "It died 3 times within 60.0 s."]
    assert waits(policy, [0, 58, 1, 0, 0])[:3] == [1, 1, 1], "the first is a minute old"
    assert waits(policy, [40] * 50) == [1] * 50, "never three within a minute"


def test_a_number_alone_counts_failures_in_a_row():
    policy = parse("fixed:1s,healthy=1m", "3")
    assert waits(policy, [0, 0, 60, 0, 0]) == [
        *(1, 1, 1, 1),
        "It died 3 times without a healthy run between.",
    ]


def test_a_healthy_run_does_not_forgive_a_rate():
    policy = parse("fixed:1s,healthy=10s", "3/1h")
    assert waits(policy, [20, 20, 20])[-1] == "It died 3 times within 60 min."


@pytest.mark.parametrize(
    ("restart", "give_up", "wanted"),
    [
        (DEFAULT, None, Policy()),
        ("none", None, Policy(restarts=False)),
        (
            " fixed:500ms , healthy=1h",
            "7",
            Policy(True, 0.5, 0.5, 1.0, 0.0, 3600.0, 7),
        ),
        (
            "exponential:2s..1 minute,factor=1.5,jitter=0,healthy=30 s",
            "10/1h",
            Policy(True, 2.0, 60.0, 1.5, 0.0, 30.0, 10, 3600.0),
        ),
    ],
)
def test_what_is_written_is_understood(restart, give_up, wanted):
    assert parse(restart, give_up) == wanted


@pytest.mark.parametrize(
    ("restart", "give_up", "problems"),
    [
        ("often", None, ["'often' is none of them"]),
        ("none:1s", None, ["'none:1s' is none of them"]),
        ("fixed", None, ["--restart fixed is a time such as '10s', '2m' or '1h', not ''"]),
        ("fixed:0", None, ["not '0'"]),
        ("fixed:1s,factor=2", None, ["'factor=2' is none of them"]),
        ("exponential:1s", None, ["'1s' has no '..'"]),
        ("exponential:2m..1s", None, ["is shorter than its first"]),
        (
            "exponential:x..y,factor=0.5,jitter=nan,colour=red",
            "many/1h",
            [
                *("not 'x'", "not 'y'", "factor is a number from 1 to 100, not '0.5'"),
                *("jitter is a number from 0 to 1, not 'nan'", "'colour=red' is none of them"),
                "not 'many/1h'",
            ],
        ),
        ("none", "0", ["not '0'"]),
        ("none", "3/soon", ["--give-up-after is a time", "'soon'"]),
    ],
)
def test_all_that_is_wrong_is_told_at_once(restart, give_up, problems):
    with pytest.raises(OptionsError) as told:
        parse(restart, give_up)
    for problem in problems:
        assert problem in str(told.value)
    assert len(told.value.problems) == (1 if len(problems) < 3 else len(problems))
