"""Which supervisors of jobs live, and what they say: by their control topics and groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import EoKafkaError
from ..control import words
from ..control.asking import members
from ..control.seat import topic_of
from ..control.words import Told, Wish
from .tails import fold_tails


@dataclass
class Control:
    """A job's control topic."""

    topic: str
    start: int = 0
    end: int = 0
    whole: bool = True
    settled: bool = True
    problem: str = ""
    wish: Wish | None = None
    told: Told | None = None

    def apply(self, key: bytes, value: bytes | None, _at_ms: int) -> None:
        """The next record. Raises EoKafkaError."""
        try:
            if key == words.WISH_KEY and value is not None:
                self.wish = words.decode_wish(value)
            elif key == words.TOLD_KEY and value is not None:
                self.told = words.decode_told(value)
        except words.UnknownWords as unknown:
            raise EoKafkaError(str(unknown)) from None


@dataclass(frozen=True)
class Watch:
    """A job's supervisors. `alive`: those that are in its group, as `host:process`. `problem`: why
    some of it is not known."""

    alive: tuple[str, ...]
    control: Control
    problem: str = ""

    @property
    def last_phase(self) -> str:
        """Of the last supervisor, where none lives of a job that is to run; else empty."""
        told = self.control.told
        is_wanted = words.stands(self.control.wish, told) is words.Stands.RUN
        return told.phase if told and is_wanted and not self.alive and not self.problem else ""

    @property
    def text(self) -> str:
        """In a few words."""
        holds = words.stands(self.control.wish, self.control.told)
        if self.problem:
            return "?"
        if not self.alive:
            return "none" if holds is words.Stands.RUN else f"none, {holds.value}"
        told = self.control.told
        phase = told.phase if told else "starting"
        more = f" +{len(self.alive) - 1}" if len(self.alive) > 1 else ""
        return f"{phase}{f' on {told.host}' if told else ''}{more}"

    def as_json(self) -> dict[str, Any]:
        """Under names that stay."""
        told, wish = self.control.told, self.control.wish
        return {
            "alive": list(self.alive),
            "phase": told.phase if told and self.alive else None,
            "host": told.host if told and self.alive else None,
            "stands": words.stands(wish, told).value,
            "askedBy": wish.by if wish else None,
            "askedMs": wish.at_ms if wish else None,
            "problem": self.problem or None,
        }


def watches(
    settings: Mapping[str, str], admin: Any, jobs: Collection[str], there: Collection[str]
) -> dict[str, Watch]:
    """By job, of those that have a control topic among `there`."""
    topics = {topic_of(job): job for job in jobs if topic_of(job) in there}
    controls = fold_tails(settings, admin, {topic: Control(topic) for topic in topics}, None)
    alive = members(admin, topics)
    found = {}
    for topic, job in topics.items():
        group = alive[topic]
        known, problem = ((), group) if isinstance(group, str) else (tuple(group), "")
        problem = problem or controls[topic].problem
        found[job] = Watch(known, controls[topic], problem)
    return found
