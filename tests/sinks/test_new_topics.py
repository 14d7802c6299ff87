"""Option `createTopics`: what it takes, and the sentence for everything it does not."""

from __future__ import annotations

import pickle

import pytest

from eo_kafka.errors import OptionsError
from eo_kafka.sinks.maps.options import read_topic
from eo_kafka.sinks.new_topics import NewTopics
from eo_kafka.sinks.options import SinkOptions

GOOD = {"kafka.bootstrap.servers": "localhost:9092", "topic": "out", "jobName": "job"}
ON = {"createTopics": "true"}


def parsed(**given: str) -> SinkOptions:
    return SinkOptions.parse({**GOOD, **given}, streaming=True)


def problems(given: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(OptionsError) as refused:
        SinkOptions.parse(given, streaming=True)
    return refused.value.problems


def test_it_is_off_by_default_and_then_as_stated() -> None:
    assert parsed().new_topics is None
    assert parsed(**ON).new_topics == NewTopics()
    stated = {
        "createTopics.partitions": "4",
        "createtopics.replicas": "3",
        "createTopics.config.retention.ms": "60000",
        "createTopics.config.cleanup.policy": "compact",
    }
    options = parsed(**ON, **stated)
    config = {"retention.ms": "60000", "cleanup.policy": "compact"}
    assert options.new_topics == NewTopics(4, 3, config)
    assert options.new_topics.of_letters() == NewTopics(
        4, 3, {**config, "cleanup.policy": "delete"}
    )
    assert pickle.loads(pickle.dumps(options)) == options


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = {
        "createTopics": "yes",
        "createTopics.partitions": "0",
        "createTopics.replicas": "many",
        "createTopics.partition": "4",
        "createTopics.config.": "1",
        "createTopics.retention.ms": "1",
    }
    found = problems({**GOOD, **wrong})
    assert "Option 'createTopics' must be true or false; it is 'yes'." in found
    assert any("'createTopics.partitions' must be a whole number from 1" in one for one in found)
    assert any("'createTopics.replicas' must be a whole number" in one for one in found)
    for name in ("partition", "config.", "retention.ms"):
        assert any(f"Unknown option 'createtopics.{name}'" in one for one in found), found


def test_what_would_have_no_effect_is_refused() -> None:
    (found,) = problems({**GOOD, "createTopics.partitions": "4"})
    assert "option 'createTopics' is not true: set it, or take them away" in found
    (found,) = problems({"kafka.bootstrap.servers": "k:1", "jobName": "job", **ON})
    assert "needs option 'topic': topics that rows name are not created" in found
    (found,) = problems({**GOOD, "createTopic": "true"})
    assert "did you mean 'createTopics'?" in found


def test_a_maps_topic_is_made_as_a_map() -> None:
    given = {"map": "m", "backend": "kafka", "kafka.bootstrap.servers": "k:1", **ON}
    columns = [("key", "string"), ("value", "string")]
    (problem,) = read_topic(given, columns)[2]
    assert "set option 'createTopics.config.cleanup.policy' to 'compact'" in problem
    assert read_topic({**given, "createTopics.config.cleanup.policy": "compact"}, columns)[2] == []
