"""`eo-kafka verify`: compares output and input, for lost and repeated records.

Exit codes: 0 equal; 1 different, or it could not be found out; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...clients.kafka.cluster import connect
from ...clients.kafka.topics import TIMEOUT_S
from ...core.errors import OptionsError
from ...core.offsets import OffsetRange, TopicPartition
from ...core.options import KAFKA_PREFIX
from ...core.progress import bar
from ...sources.lookup import OffsetLookup
from ...sources.settings.declared import REFUSED_KAFKA
from ...sources.settings.options import SourceOptions
from ...state.ledger.job_topics import topic_name
from ..shared.command_line import (
    WIDTH,
    add_connection,
    add_json,
    connection,
    connection_to,
    print_json,
    table,
)
from .topic_diff import Comparison, Difference, How, Side, compare

_RANGE = re.compile(r"(\d+)(?::(\d*)-(\d*))?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Compare two topics as multisets of records, read with read_committed up to the last "
        "stable offsets of now. Memory: about 160 bytes for each different id (10 million: "
        "1.6 GB), divided by --passes."
    )
    parser.add_argument("--input", required=True, metavar="TOPIC", help="what should be there")
    parser.add_argument("--output", required=True, metavar="TOPIC", help="what is there")
    parser.add_argument(
        "--by",
        default="value",
        metavar="WHAT",
        help="what makes two records the same: value (the default), key, record (key and value), "
        "header:NAME, or json:FIELD of the value (dots lead into objects)",
    )
    for side in ("input", "output"):
        parser.add_argument(
            f"--{side}-range",
            action="append",
            default=[],
            metavar="PARTITION[:START-END]",
            help=f"only these offsets of the {side} (END not included, each may be left out); "
            "repeat for more partitions; default: all",
        )
    parser.add_argument(
        "--limit", type=int, default=10, help="differences to show of each kind; default: 10"
    )
    parser.add_argument(
        "--passes", type=int, default=1, help="read the topics so often, to use less memory"
    )
    add_connection(parser)
    parser.add_argument(
        "--output-bootstrap-servers",
        metavar="HOST:PORT,...",
        help="where the output is, if on another cluster than the input",
    )
    parser.add_argument(
        "--output-config",
        type=Path,
        metavar="FILE",
        help="client settings for that cluster; those of --config are not used for it",
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; the exit code. Raises EoKafkaError."""
    how = How.parse(arguments.by)
    if arguments.passes < 1 or arguments.limit < 0:
        raise OptionsError(["--passes must be at least 1 and --limit at least 0."])
    # The output's end first: all of it then comes from input that is read too.
    here = connection(arguments)
    there = arguments.output_bootstrap_servers, arguments.output_config
    elsewhere = any(there)
    same = (arguments.input, arguments.input_range) == (arguments.output, arguments.output_range)
    if same and not elsewhere:
        raise OptionsError([f"--input and --output are the same: '{arguments.input}'."])
    sink_at = connection_to(*there) if elsewhere else here
    sink = _side(sink_at, "--output", arguments.output, arguments.output_range, how)
    source = _side(here, "--input", arguments.input, arguments.input_range, how)
    if source.overlaps(sink):
        raise OptionsError(
            [
                f"--input '{arguments.input}' and --output '{arguments.output}' are the same topic "
                "(its id is the same), and offsets of it would be compared with themselves. Do the "
                "addresses lead to the same cluster?"
            ]
        )
    left_out = [*source.left_out, *sink.left_out]
    what = f"Comparing {arguments.input} and {arguments.output}"
    with bar(what, shown=not arguments.json, unit=" offsets") as told:
        found = compare(
            source, sink, how, limit=arguments.limit, passes=arguments.passes, told=told
        )
    if arguments.json:
        print_json({**_as_json(found, arguments), "notCompared": left_out})
    else:
        _print(found, arguments, left_out)
    return 0 if found.equal else 1


def _side(
    kafka: Mapping[str, str], argument: str, topic: str, ranges: Sequence[str], how: How
) -> Side:
    try:
        topic_name(topic)
    except ValueError as error:
        raise OptionsError([f"{argument} {error}; it is '{topic}'."]) from None
    # Of a consumer's settings, those that say where to begin and what to keep: verify knows that.
    accepted = {
        name: value
        for name, value in kafka.items()
        if name.removeprefix(KAFKA_PREFIX) not in REFUSED_KAFKA
    }
    options = SourceOptions.parse(
        {
            **accepted,
            "kafka.isolation.level": "read_committed",
            "subscribe": topic,
            "includeHeaders": str(how.needs_headers).lower(),
        },
        streaming=False,
    )
    options = replace(options, topics_given_by=argument)
    connect(options.kafka, TIMEOUT_S)
    lookup = OffsetLookup(options)
    partitions, ids = lookup.look()
    written = lookup.written(partitions)  # first: what comes meanwhile is not held back
    starts, ends = lookup.earliest(partitions), lookup.latest(partitions)
    left_out = [*_compacted(argument, topic, lookup.topic_settings(topic))]
    lookup.close()
    whole = {at: OffsetRange(at, starts[at], ends[at]) for at in sorted(partitions)}
    if ranges:
        told = [_range(f"{argument}-range", text, topic, whole) for text in ranges]
        open_ended = [
            _as_far_as_not_given(text, whole[one.partition], written[one.partition])
            for text, one in zip(ranges, told, strict=True)
        ]
    else:
        told = open_ended = list(whole.values())
    for one in open_ended:
        left_out += _left_out(argument, one, written[one.partition])
    return Side(options, told, ids, left_out)


def _compacted(argument: str, topic: str, settings: Mapping[str, str]) -> Iterator[str]:
    """What compaction has taken looks as if it had never been there, on both sides."""
    side = argument.removeprefix("--")
    if not settings:
        yield f"{side} {topic}: perhaps what was compacted away; its settings are not visible."
    elif "compact" in settings.get("cleanup.policy", ""):
        policy = settings["cleanup.policy"]
        yield f"{side} {topic}: what was compacted away (cleanup.policy={policy})."


def _left_out(argument: str, whole: OffsetRange, written: int) -> Iterator[str]:
    """What of a partition is not compared: it may have been lost, or repeated, there."""
    at, side = whole.partition, argument.removeprefix("--")
    if whole.start:
        yield f"{side} {at}: what was before offset {whole.start:,}, which is gone."
    if whole.end < written:
        yield (
            f"{side} {at}: offsets {whole.end:,} to {written - 1:,}, behind an open transaction "
            f"('eo-kafka txn list --topic {at.topic}')."
        )


def _as_far_as_not_given(text: str, whole: OffsetRange, written: int) -> OffsetRange:
    """`whole`, but nothing is left out where the text, which is a range, says where to begin or to
    end: that was asked for."""
    _, start, end = _RANGE.fullmatch(text).groups()  # type: ignore[union-attr]
    return OffsetRange(whole.partition, 0 if start else whole.start, written if end else whole.end)


def _range(
    argument: str, text: str, topic: str, whole: dict[TopicPartition, OffsetRange]
) -> OffsetRange:
    found = _RANGE.fullmatch(text)
    if found is None:
        raise OptionsError(
            [f"{argument}: '{text}' is not a range: 3, 3:100-, 3:-200 and 3:100-200 are."]
        )
    at = TopicPartition(topic, int(found[1]))
    if at not in whole:
        raise OptionsError([f"{argument}: topic '{topic}' has no partition {found[1]}."])
    all_of_it = whole[at]
    start = int(found[2]) if found[2] else all_of_it.start
    end = int(found[3]) if found[3] else all_of_it.end
    if not all_of_it.start <= start <= end <= all_of_it.end:
        raise OptionsError(
            [
                f"{argument}: '{text}' is not within what can be read of partition {found[1]} of "
                f"'{topic}': {all_of_it.start}-{all_of_it.end}."
            ]
        )
    return OffsetRange(at, start, end)


def _print(found: Comparison, arguments: argparse.Namespace, left_out: Sequence[str]) -> None:
    rows = [
        ("input", arguments.input, f"{found.input_records:,}"),
        ("output", arguments.output, f"{found.output_records:,}"),
    ]
    print(table(("", "topic", "records"), rows, right="records"))
    if left_out:
        print("\nNot compared:\n  " + "\n  ".join(left_out))
    if found.equal and not found.input_records:
        print("\nEqual, for there are no records on either side.")
        return
    if found.equal:
        print(f"\nEqual by {arguments.by}: nothing lost, nothing twice, nothing else.")
        return
    if found.input_without or found.output_without:
        text = (
            f"{found.input_without:,} records of the input and {found.output_without:,} of the "
            f"output have no {arguments.by}, and cannot be told from each other: one that is lost "
            "and another that is repeated would look like nothing. Compare by something that each "
            "record has (--by)."
        )
        print("\n" + textwrap.fill(text, WIDTH))
    if not found.different:
        return
    print(
        f"\nDifferent by {arguments.by}: {found.missing:,} records are missing, {found.surplus:,} "
        "are too many."
    )
    for kind, number in found.ids.items():
        if number:
            shown = [one for one in found.differences if one.kind == kind]
            more = f", the first {len(shown)}" if len(shown) < number else ""
            print(f"\n{kind}: {number:,} ids{more}")
            for one in shown:
                print(f"  {_shown(one.id)}  {_counts(one)}"[:WIDTH])


def _shown(one: bytes | None) -> str:
    if one is None:
        return "(none)"
    text = one.decode("utf-8", "backslashreplace")
    return ascii(text)[1:-1] if len(text) <= 40 else f"{ascii(text[:37])[1:-1]}..."


def _counts(one: Difference) -> str:
    def places(side: str, count: int, where: Sequence[tuple[int, int]]) -> str:
        at = " ".join(f"{partition}@{offset}" for partition, offset in where)
        return f"{side} {count}" + (f" ({at})" if at else "")

    return ", ".join(
        (
            places("input", one.in_input, one.input_at),
            places("output", one.in_output, one.output_at),
        )
    )


def _as_json(found: Comparison, arguments: argparse.Namespace) -> dict[str, Any]:
    def places(topic: str, where: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": one[0], "offset": one[1]} for one in where]

    return {
        "equal": found.equal,
        "by": arguments.by,
        "inputRecords": found.input_records,
        "outputRecords": found.output_records,
        "inputWithoutId": found.input_without,
        "outputWithoutId": found.output_without,
        "distinctIds": found.distinct,
        "missingRecords": found.missing,
        "surplusRecords": found.surplus,
        **{f"{kind}Ids": number for kind, number in found.ids.items()},
        "differences": [
            {
                "kind": one.kind,
                "id": None if one.id is None else one.id.decode("utf-8", "backslashreplace"),
                "inInput": one.in_input,
                "inOutput": one.in_output,
                "input": places(arguments.input, one.input_at),
                "output": places(arguments.output, one.output_at),
            }
            for one in found.differences
        ],
    }
