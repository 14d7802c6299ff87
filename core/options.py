"""Options: one declaration gives parsing, default, document and error sentence.

Spark hands options over as strings under lower-cased names. An `OptionReader` reads them one by
one and collects every problem, so that a user sees all that is wrong at once.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .errors import OptionsError
from .java_settings import translated

T = TypeVar("T")

KAFKA_PREFIX = "kafka."
# Spark's words for a time, and the short ones.
_UNITS_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_INTERVAL = re.compile(r"(\d+)\s*([a-z]+)\s*")


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option: the name users write, how its text becomes a value, and what the docs say.

    `parse` raises ValueError with the end of a sentence: "must be a whole number above 0".
    """

    name: str
    parse: Callable[[str], T]
    default: T
    doc: str

    @property
    def key(self) -> str:
        """The name as Spark hands it over."""
        return self.name.lower()


class KafkaSettings(Mapping[str, str]):
    """Client settings, without the `kafka.` in front. Values stay out of reprs and messages."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = dict(settings)

    def __getitem__(self, name: str) -> str:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __repr__(self) -> str:
        return f"KafkaSettings({', '.join(sorted(self._settings))}: values hidden)"

    def merged(self, **names: str) -> KafkaSettings:
        """A copy with more settings; `_` in a keyword stands for `.`."""
        extra = {name.replace("_", "."): value for name, value in names.items()}
        return KafkaSettings({**self._settings, **extra})


class OptionReader:
    """Reads the options of one format and role, collecting problems as sentences."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self.problems: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._given

    def problem(self, sentence: str) -> None:
        """Note one thing that is wrong, however often it is come across."""
        if sentence not in self.problems:
            self.problems.append(sentence)

    def get(self, option: Option[T]) -> T:
        """The option's value, or its default when it is absent or wrong."""
        text = self._given.get(option.key)
        if text is None:
            return option.default
        try:
            return option.parse(text)
        except ValueError as error:
            self.problem(f"Option '{option.name}' {error}; it is '{text}'.")
            return option.default

    def kafka(self, refused: Mapping[str, str]) -> KafkaSettings:
        """All `kafka.*` settings, in librdkafka's words. `refused` maps a setting to the reason it
        may not be given."""
        settings = self.prefixed(KAFKA_PREFIX)
        for name in sorted(settings.keys() & refused.keys()):
            self.problem(f"Kafka option '{name}' is not supported: {refused[name]}.")
        settings, problems = translated(
            {name: value for name, value in settings.items() if name not in refused}
        )
        for sentence in problems:
            self.problem(sentence)
        if settings.get("allow.auto.create.topics", "false").strip().lower() != "false":
            self.problem(
                "Kafka option 'allow.auto.create.topics' may only be 'false': eo-kafka never "
                "creates a topic by reading, writing or looking it up. Create topics before "
                "the query starts."
            )
        if not settings.get("bootstrap.servers", "").strip():
            self.problem(
                "Option 'kafka.bootstrap.servers' must be specified: "
                "the host:port list of the brokers to start from."
            )
        return KafkaSettings(settings)

    def prefixed(self, prefix: str) -> dict[str, str]:
        """What is given under names that begin so, without the beginning."""
        return {
            name.removeprefix(prefix): value
            for name, value in self._given.items()
            if name.startswith(prefix)
        }

    def refuse(self, refused: Mapping[str, str]) -> None:
        """Options of other connectors or of later versions, each with the reason."""
        for name, reason in refused.items():
            if name in self:
                self.problem(f"Option '{name}' is not supported: {reason}.")

    def check_names(self, known: Iterable[str], besides: str = KAFKA_PREFIX) -> None:
        """A name close to a known one is a typing error; any other is Spark's or the user's own.
        Names that begin with `besides` are somebody else's to check."""
        names = {name.lower(): name for name in known}
        for name in sorted(self._given):
            if name in names or name.startswith((KAFKA_PREFIX, besides)):
                continue
            close = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
            if close:
                self.problem(f"Unknown option '{name}': did you mean '{names[close[0]]}'?")

    def finish(self) -> None:
        """Raise OptionsError if anything was wrong."""
        if self.problems:
            raise OptionsError(self.problems)


def text(value: str) -> str:
    """Any text but an empty one."""
    stripped = value.strip()
    if not stripped:
        raise ValueError("must not be empty")
    return stripped


def whole_number(low: int, high: int = 2**63 - 1) -> Callable[[str], int]:
    """A parser for whole numbers from `low` to `high`."""

    def parse(value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            raise ValueError(f"must be a whole number of at least {low}") from None
        if not low <= number <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return number

    return parse


def time_span_ms(value: str) -> int:
    """A time as Spark's triggers are told one, in milliseconds: `1 minute 30 seconds`, `500 ms`."""
    words = value.strip().lower().removeprefix("interval ").strip()
    if words == "0":
        return 0
    parts = _INTERVAL.findall(words)
    if not parts or _INTERVAL.sub("", words) or any(unit not in _UNITS_MS for _, unit in parts):
        raise ValueError("must be a time like '5 minutes', '30 s' or '500 ms', or 0")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


def setting_ms(value: str) -> int:
    """A time as Spark's settings are told one: a mere number is of milliseconds."""
    number = value.strip()
    return int(number) if number.isascii() and number.isdigit() else time_span_ms(value)


def boolean(value: str) -> bool:
    """`true` or `false`, in any case."""
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def one_of(*allowed: str) -> Callable[[str], str]:
    """One of a few words, in any case."""

    def parse(value: str) -> str:
        lowered = value.strip().lower()
        if lowered not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return lowered

    return parse


def json_object(value: str) -> dict[str, Any]:
    """A JSON object; a key given twice is an error, not the last one's win."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("names a key twice")
        return found

    try:
        parsed = json.loads(value, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ValueError(f"must be a JSON object ({error.msg} at character {error.pos})") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(parsed, dict):
        raise ValueError("must be a JSON object")
    return parsed
