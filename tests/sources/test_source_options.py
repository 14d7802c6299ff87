"""What a reader accepts, and the sentence for everything it does not."""

from __future__ import annotations

import pickle

import pytest

from eo_kafka.core.offsets import TopicPartition
from eo_kafka.errors import OptionsError
from eo_kafka.formats.options import FormatOptions
from eo_kafka.formats.reading import Reading
from eo_kafka.sources.settings.limits import ByTime, ByTopic
from eo_kafka.sources.settings.options import SourceOptions

GOOD = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a,b"}


def parsed(**extra: str) -> SourceOptions:
    return SourceOptions.parse({**GOOD, **extra}, streaming=True)


def parsed_for_batch(**extra: str) -> SourceOptions:
    return SourceOptions.parse({**GOOD, **extra}, streaming=False)


def problems(given: dict[str, str], streaming: bool = True) -> tuple[str, ...]:
    with pytest.raises(OptionsError) as refused:
        SourceOptions.parse(given, streaming)
    return refused.value.problems


def batch_problems(**extra: str) -> tuple[str, ...]:
    with pytest.raises(OptionsError) as refused:
        parsed_for_batch(**extra).check_batch()
    return refused.value.problems


def test_defaults_of_a_stream() -> None:
    options = parsed()

    assert options.subscription.topics == ("a", "b")
    assert options.starting == "latest"
    assert options.max_offsets_per_trigger is None
    assert options.include_headers is False
    assert options.fail_on_data_loss is True
    assert options.poll_timeout_ms is options.lookup_timeout_ms is None
    assert options.kafka["isolation.level"] == "read_committed"
    assert options.read_committed


def test_defaults_of_a_batch() -> None:
    options = parsed_for_batch()
    options.check_batch()

    assert (options.starting, options.ending) == ("earliest", "latest")


def test_names_in_any_case_as_spark_hands_them_over() -> None:
    options = parsed(STARTINGOFFSETS="EARLIEST", maxoffsetspertrigger="7", IncludeHeaders="TRUE")

    assert options.starting == "earliest"
    assert options.max_offsets_per_trigger == 7
    assert options.include_headers


def test_group_ids_begin_as_with_sparks_own_connector() -> None:
    given = {**GOOD, "groupIdPrefix": "mine"}
    assert parsed().group_id_prefix == "spark-kafka-source"
    assert SourceOptions.parse(GOOD, streaming=False).group_id_prefix == "spark-kafka-relation"
    assert SourceOptions.parse(given, streaming=False).group_id_prefix == "mine"


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("900000", 900_000), ("1 h", 3_600_000)]
)
def test_a_delay_is_told_as_sparks_settings_are(text: str, ms: int) -> None:
    assert parsed(maxTriggerDelay=text).max_trigger_delay_ms == ms


def test_topics_are_trimmed_and_empty_ones_dropped() -> None:
    assert parsed(subscribe=" a, ,b,a,").subscription.topics == ("a", "b")


def test_starting_offsets_as_json() -> None:
    options = parsed(startingOffsets='{"a":{"0":23,"1":-1},"b":{"0":-2}}')

    assert options.starting == {
        TopicPartition("a", 0): 23,
        TopicPartition("a", 1): -1,
        TopicPartition("b", 0): -2,
    }
    assert options.starts_at_latest(TopicPartition("a", 1))
    assert not options.starts_at_latest(TopicPartition("a", 0))
    assert not options.starts_at_latest(TopicPartition("a", 9))
    assert parsed().starts_at_latest(TopicPartition("a", 0))
    assert not parsed(startingOffsets="earliest").starts_at_latest(TopicPartition("a", 0))


def test_an_explicit_isolation_level_is_honoured() -> None:
    options = parsed(**{"kafka.isolation.level": "read_uncommitted"})

    assert not options.read_committed


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"startingOffsets": "newest"}, "Option 'startingOffsets' must be earliest, latest or"),
        ({"startingOffsets": '{"a":'}, "Option 'startingOffsets' must be a JSON object"),
        ({"startingOffsets": '{"a":{"0":-3},"b":{"0":1}}'}, "for a-0 it gives -3"),
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger' must be a whole number"),
        ({"maxOffsetsPerTrigger": "many"}, "'maxOffsetsPerTrigger' must be a whole number"),
        ({"failOnDataLoss": "maybe"}, "'failOnDataLoss' must be true or false"),
        ({"subscribe": " , "}, "'subscribe' names no topics to subscribe to"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"kafka.isolation.level": "serializable"}, "'isolation.level' must be one of"),
        ({"kafka.auto.offset.reset": "earliest"}, "Kafka option 'auto.offset.reset' is not supp"),
        ({"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported"),
        ({"kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported"),
        ({"kafka.enable.auto.commit": "true"}, "'enable.auto.commit' is not supported"),
        ({"kafka.interceptor.classes": "x"}, "'interceptor.classes' is not supported"),
        ({"assign": '{"a":[0]}'}, "Only one of the following options can be specified"),
    ],
)
def test_refuses_with_one_sentence(extra: dict[str, str], sentence: str) -> None:
    found = problems({**GOOD, **extra})

    assert any(sentence in problem for problem in found), found
    assert len(found) == 1


def test_a_topic_may_have_a_word_for_all_its_partitions() -> None:
    limit = parsed(startingOffsets='{"a":" Latest ","b":{"0":7,"1":-2}}').starting
    assert limit == ByTopic(
        {"a": "latest"}, {TopicPartition("b", 0): 7, TopicPartition("b", 1): -2}
    )


BY_EACH = {TopicPartition("a", 0): 5, TopicPartition("b", 0): 7}
TIMES = '{"a":{"0":5},"b":{"0":7}}'


@pytest.mark.parametrize(
    ("extra", "limit"),
    [
        ({"startingTimestamp": "3"}, ByTime(3, {}, or_latest=False)),
        ({"startingOffsetsByTimestamp": TIMES}, ByTime(None, BY_EACH, or_latest=False)),
        (
            {"startingOffsetsByTimestamp": TIMES, "startingOffsetsByTimestampStrategy": "LATEST"},
            ByTime(None, BY_EACH, or_latest=True),
        ),
        (
            {
                "startingTimestamp": "3",
                "startingOffsetsByTimestamp": TIMES,
                "startingOffsets": "earliest",
            },
            ByTime(3, BY_EACH, or_latest=False),
        ),
    ],
)
def test_times_go_before_offsets(extra: dict[str, str], limit: ByTime) -> None:
    assert parsed(**extra).starting == limit


def test_an_end_by_time_is_the_newest_offset_where_nothing_is_so_new() -> None:
    given = {**GOOD, "endingTimestamp": "9", "endingOffsets": "latest"}
    assert SourceOptions.parse(given, streaming=False).ending == ByTime(9, {}, or_latest=True)


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"startingOffsets": '{"a":"soon","b":"latest"}'}, "earliest, latest or offsets for topic"),
        ({"startingOffsets": "group: "}, "must name a consumer group behind 'group:'"),
        ({"startingTimestamp": "today"}, "'startingTimestamp' must be a single whole number"),
        ({"startingTimestamp": "-1"}, "'startingTimestamp' must be a single whole number"),
        ({"startingOffsetsByTimestamp": "{"}, "must be a JSON object"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":-1},"b":{"0":1}}'}, "from 0 to"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "must be one of error, latest"),
        ({"endingTimestamp": "1"}, "ending timestamp not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": TIMES}, "ending timestamp not valid in streaming queries"),
        ({"minOffsetsPerTrigger": "0"}, "'minOffsetsPerTrigger' must be a whole number"),
        ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay' must be a time like"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger (9) is higher than the maxOffsetsPerTrigger (8)",
        ),
        ({"minPartitions": "0"}, "'minPartitions' must be a whole number"),
        ({"maxRecordsPerPartition": "x"}, "'maxRecordsPerPartition' must be a whole number"),
        ({"maxPartitions": "0"}, "'maxPartitions' must be a whole number"),
        (
            {"minPartitions": "9", "maxPartitions": "8"},
            "minPartitions (9) is higher than the maxPartitions (8)",
        ),
        (
            {"maxRecordsPerPartition": "9", "maxPartitions": "8"},
            "'maxPartitions' and 'maxRecordsPerPartition' contradict each other",
        ),
    ],
)
def test_wrong_times_and_sizes_are_said(extra: dict[str, str], sentence: str) -> None:
    (found,) = problems({**GOOD, **extra})
    assert sentence in found


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"startingOffsets": '{"a":{"0":1}}'}, "gives no offsets for b."),
        ({"startingOffsets": "{}"}, "gives no offsets for a, b."),
        (
            {"startingOffsets": '{"a":{"0":1},"b":{"0":1},"c":{"0":1}}'},
            "gives offsets for c, which 'subscribe' does not name",
        ),
        ({"startingOffsets": '{"a":"latest"}'}, "gives no offsets for b."),
        ({"startingOffsets": '{"a":"latest","b":"latest","c":"latest"}'}, "gives offsets for c,"),
        ({"startingOffsetsByTimestamp": '{"a":{"0":1}}'}, "gives no offsets for b."),
        (
            {"subscribe": "", "assign": '{"a":[0,1]}', "startingOffsets": '{"a":{"0":1}}'},
            "must name the same partitions; only one of them names a-1.",
        ),
    ],
)
def test_a_start_that_names_other_partitions_is_refused_where_one_is_needed(
    extra: dict[str, str], sentence: str
) -> None:
    """At a restart the checkpoint says where, also of what the options named then."""
    given = {name: value for name, value in {**GOOD, **extra}.items() if value}
    options = SourceOptions.parse(given, streaming=True)
    with pytest.raises(OptionsError) as refused:
        options.check_start()
    (found,) = refused.value.problems
    assert sentence in found
    with pytest.raises(OptionsError) as refused:
        SourceOptions.parse(given, streaming=False).check_batch()
    assert found in refused.value.problems


def test_everything_that_is_wrong_is_said_at_once() -> None:
    found = problems(
        {
            "maxOffsetsPerTrigger": "-1",
            "startingOffsets": "soon",
            "endingOffsets": "latest",
            "kafka.auto.offset.reset": "latest",
        }
    )

    text = " ".join(found)
    for name in (
        "kafka.bootstrap.servers",
        "subscribe",
        "maxOffsetsPerTrigger",
        "startingOffsets",
        "endingOffsets",
        "auto.offset.reset",
    ):
        assert name in text
    assert len(found) == 6


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"endingOffsets": '{"a":{"0":1}}'}, "Option 'endingOffsets' gives no offsets for b."),
        ({"endingOffsetsByTimestamp": '{"a":{"0":1}}'}, "gives no offsets for b."),
        ({"startingOffsets": '{"a":{"0":-1},"b":{"0":1}}'}, "for a-0 can't be latest"),
        ({"endingOffsets": '{"a":{"0":-2},"b":{"0":1}}'}, "for a-0 can't be earliest"),
        (
            {
                "startingOffsets": '{"a":{"0":1},"b":{"0":9}}',
                "endingOffsets": '{"a":{"0":1},"b":{"0":8}}',
            },
            "'startingOffsets' for b-0 is 9, greater than the 8 of 'endingOffsets'",
        ),
        (
            {
                "startingOffsets": '{"a":{"0":1},"b":{"0":1}}',
                "endingOffsets": '{"a":{"0":1,"1":5},"b":{"0":8}}',
            },
            "only one of them names a-1",
        ),
    ],
)
def test_a_batch_refuses_with_one_sentence(extra: dict[str, str], sentence: str) -> None:
    found = batch_problems(**extra)

    assert len(found) == 1
    assert sentence in found[0]


def test_the_schema_can_be_asked_for_before_stream_or_batch_is_known() -> None:
    parsed_for_batch(startingOffsets="latest").schema()
    parsed_for_batch(endingOffsets="earliest").schema()


def test_the_columns_are_the_jvm_connectors() -> None:
    assert parsed(includeHeaders="true").schema().simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert "headers" not in parsed().schema().names


def test_a_schema_of_the_users_own_is_refused() -> None:
    columns, none = parsed().schema(), FormatOptions((), None)
    Reading(none, columns, columns)

    with pytest.raises(OptionsError, match="fixed schema"):
        Reading(none, columns, parsed().schema().add("more", "string"))


def test_secrets_stay_out_of_repr_and_messages() -> None:
    secret = {"kafka.sasl.password": "hunter2", "kafka.ssl.key.password": "hunter3"}
    found = problems({**GOOD, **secret, "startingOffsets": "soon"})

    assert "hunter" not in repr(parsed(**secret)) + " ".join(found)


def test_options_travel_to_the_tasks() -> None:
    options = parsed(startingOffsets='{"a":{"0":1},"b":{"0":1}}')

    assert pickle.loads(pickle.dumps(options)) == options


def test_a_batch_starts_no_topic_at_latest_and_ends_none_at_earliest() -> None:
    found = batch_problems(
        startingOffsets='{"a":"latest","b":{"0":-1}}', endingOffsets='{"a":"earliest","b":"latest"}'
    )
    assert found == (
        "Option 'startingOffsets' for topic a can't be latest for batch queries on Kafka.",
        "Option 'startingOffsets' for b-0 can't be latest for batch queries on Kafka.",
        "Option 'endingOffsets' for topic a can't be earliest for batch queries on Kafka.",
    )
