"""A query as `explain` sees it: its sources, its steps and its sink, as data. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...connectors.direct import NAME as DIRECT
from ...connectors.written_format import format_of
from ...core.url_secrets import without_secrets

# What a step's outcome flows into: state whose rows are written as they come, that of an
# aggregation whose groups are written once they are closed, and a shuffle.
STATE, AGGREGATE, SHUFFLE = "state", "aggregate", "shuffle"
# Of the options only these are kept: no other says anything here, and some are secrets.
TOLD = frozenset(
    [
        "allowweakreplication",
        "backend",
        "commit",
        "deadlettertopic",
        "dedupwindow",
        "failondataloss",
        "guarantee",
        "ignorecorruptfiles",
        "ignoremissingfiles",
        "jobname",
        "kafka.enable.idempotence",
        "kafka.isolation.level",
        "kafka.transaction.timeout.ms",
        "kafka.transactional.id",
        "ledgertopic",
        "map",
        "maxoffsetspertrigger",
        "mode",
        "path",
        "queryname",
        "queue",
        "sharegroup",
        "snapshots",
        "subscribe",
        "subscribepattern",
        "assign",
        "topic",
        "transactionalidprefix",
        "transactiontimeout",
    ]
)


@dataclass(frozen=True)
class End:
    """A source or a sink: the word after `format`, and what of its options is told here.
    `within`: the function around `eo_kafka.foreach_batch`, or the user's own of `foreachBatch`, to
    which `by_function` says that it was given."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    within: str | None = None
    by_function: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        options: Mapping[str, str],
        within: str | None = None,
        by_function: bool = False,
    ) -> End:
        """With those of the options that are told."""
        lower = {key.lower(): without_secrets(str(value)) for key, value in options.items()}
        kept = {key: value for key, value in sorted(lower.items()) if key in TOLD}
        word = format_of(lower) if name.startswith(DIRECT) else name.lower()
        return cls(word, kept, within, by_function)

    def says(self, option: str, default: str = "") -> str:
        """An option's value, in lower case."""
        return self.options.get(option.lower(), default).strip().lower()


@dataclass(frozen=True)
class Step:
    """`kind` is a key of `step_facts.STEPS`, `name` what the user knows it by. `reaches`: what its
    outcome flows into. `shuffled`: whether a shuffle stands before it."""

    kind: str
    name: str
    reaches: tuple[str, ...] = ()
    shuffled: bool = False


@dataclass(frozen=True)
class Pipeline:
    """One query. No sink: a DataFrame. `checkpoint`: whether it has one that outlives the query.
    `unread`: what of the query could not be looked at, a sentence each. `compares_stages`: whether
    Spark notices that a stage which runs again for lost shuffle files gives other rows."""

    sources: tuple[End, ...]
    steps: tuple[Step, ...]
    sink: End | None = None
    streaming: bool = True
    output_mode: str = "append"
    trigger: str = ""
    checkpoint: bool = True
    unread: tuple[str, ...] = ()
    compares_stages: bool = False

    def encode(self) -> dict[str, Any]:
        """For a record, and `--json`."""
        return asdict(self)

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> Pipeline:
        """Raises TypeError, KeyError."""
        given = dict(fields)
        sink = given.pop("sink")
        return cls(
            sources=tuple(End(**one) for one in given.pop("sources")),
            steps=tuple(
                Step(**{**one, "reaches": tuple(one["reaches"])}) for one in given.pop("steps")
            ),
            sink=None if sink is None else End(**sink),
            unread=tuple(given.pop("unread")),
            **given,
        )
