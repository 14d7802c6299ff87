"""Judges a query by the facts: a line for each end and step, and the guarantee of the weakest. No
I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...sinks.options import UPDATE_MODE
from . import facts
from .facts import PUTS, SKIPS, Fact, Guarantee
from .pipeline import AGGREGATE, SHUFFLE, STATE, End, Pipeline, Step
from .step_facts import STEPS, TRUSTABLE, StepFact

SINK = "sink"
_NO_SINK = Fact(
    "not known",
    Guarantee.NOT_KNOWN,
    "a DataFrame has no sink yet; the steps are judged as before an exactly-once sink",
    "Explain the writer: df.writeStream.format(...) with its options.",
)
_BATCH = Fact(
    "not known",
    Guarantee.NOT_KNOWN,
    "a batch: nobody runs it again but you. eo-kafka's save() shows all rows or none, and with "
    "jobName and batchId a number is written once however often it is tried",
)
_NO_CHECKPOINT = Fact(
    "no checkpoint",
    Guarantee.NONE,
    "there is no checkpointLocation (that of the session counts for a query with a name only): a "
    "new start does not go on, but begins anew",
    "Set option checkpointLocation.",
)
_NOT_STARTED = (
    ("continuous", "Spark has no continuous mode for Python sources and sinks"),
    ("realtime", "Spark has no real-time mode for Python sources and sinks"),
)


@dataclass(frozen=True)
class Line:
    """One line of the picture. `place`: source, step, sink or query; `allows`: the most that the
    query guarantees with it."""

    place: str
    name: str
    word: str
    allows: str
    sentence: str


@dataclass(frozen=True)
class Explanation:
    """What a query guarantees. `guarantee`: `exactly-once`, `at-least-once`, `not-known` or `none`;
    `at_best`: what it could be where that is not known. `why` names the weakest links, `remedies`
    what would raise the guarantee, `needs` what it takes for granted, and `warnings` what the
    cluster or the query's progress tells besides. `str()` of it is for people."""

    guarantee: str
    at_best: str
    lines: tuple[Line, ...]
    why: tuple[str, ...]
    remedies: tuple[str, ...]
    needs: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    pipeline: Pipeline = field(default=Pipeline((), ()), repr=False)

    def __str__(self) -> str:
        from .picture import picture

        return picture(self)

    def is_at_least(self, wanted: str) -> bool:
        """Whether the guarantee is this one or a stronger one.

        Args:
            wanted: `exactly-once` or `at-least-once`.

        Raises:
            ValueError: Another word.
        """
        words = {one.word: one for one in (Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE)}
        if wanted not in words:
            raise ValueError(f"'{wanted}' is none of {', '.join(words)}.")
        found = {one.word: one for one in Guarantee}[self.guarantee]
        return found >= words[wanted]

    def to_dict(self) -> dict[str, Any]:
        """As `eo-kafka explain --json` prints it."""
        return {
            "guarantee": self.guarantee,
            "atBest": self.at_best,
            "lines": [vars(line) for line in self.lines],
            "why": list(self.why),
            "remedies": list(self.remedies),
            "needs": list(self.needs),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class _Judged:
    place: str
    name: str
    fact: Fact

    @property
    def why(self) -> str:
        """What comes of it, for a weakest link."""
        return f"{self.place} {self.name}: {self.fact.effect or self.fact.sentence}."

    @property
    def line(self) -> Line:
        return Line(
            self.place, self.name, self.fact.word, self.fact.allows.word, self.fact.sentence
        )


def judge(pipeline: Pipeline, trusted: Collection[str] = ()) -> Explanation:
    """Judge a query; `trusted` are the names of Python functions, and of tables that the program
    builds, that the user answers for."""
    judged = [*_sources(pipeline), *_steps(pipeline, trusted), *_sink(pipeline, trusted)]
    judged += _query(pipeline)
    allowed = [one.fact.allows for one in judged]
    worst = min(allowed)
    at_best = min((one for one in allowed if one is not Guarantee.NOT_KNOWN), default=worst)
    weakest = [one for one in judged if one.fact.allows is worst] if worst < facts.EXACT else []
    weaker = [one for one in judged if one.fact.allows < facts.EXACT]
    return Explanation(
        guarantee=worst.word,
        at_best=at_best.word if worst is Guarantee.NOT_KNOWN else worst.word,
        lines=tuple(one.line for one in judged),
        why=_each(one.why for one in weakest),
        remedies=_each(one.fact.remedy for one in weaker),
        needs=_each(one.fact.needs for one in judged),
        pipeline=pipeline,
    )


def _each(sentences: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, sentences)))


def _sources(pipeline: Pipeline) -> Iterator[_Judged]:
    for source in pipeline.sources:
        yield _Judged("source", name_of(source), facts.source_fact(source))
    if not pipeline.sources and pipeline.streaming:
        unknown = Fact("not known", Guarantee.NOT_KNOWN, "no source was found in the plan")
        yield _Judged("source", "?", unknown)


def _steps(pipeline: Pipeline, trusted: Collection[str]) -> Iterator[_Judged]:
    for step in pipeline.steps:
        yield _Judged("step", step.name, _step(step, pipeline, trusted))


def _step(step: Step, pipeline: Pipeline, trusted: Collection[str]) -> Fact:
    known = STEPS[step.kind]
    is_trusted = step.kind in TRUSTABLE and step.name in trusted
    if is_trusted or (known.is_same and known.is_same_within):
        sentence = f"deterministic, as --trust says ({step.name})" if is_trusted else known.sentence
        return Fact("deterministic", facts.EXACT, sentence)
    word = "not deterministic" if known.is_same is False else "not known"
    allows, effect = _effect(step, known, pipeline)
    if allows is not facts.EXACT:
        remedy = known.remedy.format(name=step.name)
        if effect == _INTO_SHUFFLE:
            remedy = f"{remedy} {_COMPARE_STAGES}".lstrip()
        return Fact(word, allows, known.sentence, remedy, effect=effect)
    may_stop = _stops(pipeline)
    harmless = "; such rows may differ when they are written again" if not effect else f"; {effect}"
    needs = may_stop.format(name=step.name) if may_stop else ""
    if SHUFFLE in step.reaches and not _is_same_within(step, known):
        needs = f"{needs} {_COMPARED}".lstrip()
    return Fact(word, allows, f"{known.sentence}{harmless}", needs=needs)


def _effect(step: Step, known: StepFact, pipeline: Pipeline) -> tuple[Guarantee, str]:
    """What a step that may not be the same does to the guarantee, in words."""
    way = SKIPS if pipeline.sink is None else facts.sink_way(pipeline.sink)
    is_surely_other = known.is_same is False
    found = facts.EXACT, _HARMLESS if way == SKIPS else ""
    if step.kind == "unknown":
        found = facts.UNKNOWN, ""
    elif way == SKIPS and STATE in step.reaches and is_surely_other:
        found = facts.NOTHING, _INTO_STATE
    elif way == SKIPS and (STATE in step.reaches or AGGREGATE in step.reaches):
        found = facts.UNKNOWN, _PERHAPS_INTO_STATE
    elif (
        SHUFFLE in step.reaches
        and not _is_same_within(step, known)
        and not pipeline.compares_stages
    ):
        found = facts.UNKNOWN, _INTO_SHUFFLE
    elif way == PUTS:
        found = (facts.AT_LEAST if is_surely_other else facts.UNKNOWN), _INTO_PUTS
    return found


_INTO_STATE = (
    "its outcome goes into the state. When a batch that was written already runs again after a "
    "crash, the state becomes another one than the written rows came from: later rows are lost, "
    "repeated or wrong"
)
_PERHAPS_INTO_STATE = (
    "its outcome goes into the state. That has to become the same when a batch that was written "
    "already runs again after a crash, and nobody can tell here whether it does"
)
_INTO_SHUFFLE = (
    "a shuffle follows. If an executor is lost in the middle of a batch, its stage runs again, and "
    "where that gives other rows, Spark divides them anew in part: rows are lost and repeated"
)
_COMPARE_STAGES = (
    "Or run Spark 4.2 or newer with spark.sql.shuffle.orderIndependentChecksum.enabled and "
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch true, as they are "
    "unless set: it then notices, and fails the batch."
)
_COMPARED = (
    "The shuffle is Spark's own: it notices when a stage that runs again gives other rows, and "
    "the batch fails and runs again."
)
_INTO_PUTS = "a batch that runs again may put other keys, and the entries of before stay"
_HARMLESS = "no harm: of a batch only the rows of one run become visible, all of them"
_REPAIR = (
    "A batch that was interrupted comes back with the same rows after step {name}; if it does not, "
    "the query stops with RepairNeeded (with commit=two-phase any rows will do)."
)
_MISMATCH = (
    "A batch that was written comes back with the same rows after step {name}; if it does not, the "
    "query stops with BatchMismatch (from a source in Kafka any rows will do)."
)


def _stops(pipeline: Pipeline) -> str:
    """What a query asks for whose sink compares the rows of a replay; it stops, and loses none."""
    sink = pipeline.sink
    if facts.is_one_phase(sink):
        return _REPAIR
    is_ours = sink is not None and sink.format in facts.OURS and facts.sink_way(sink) == SKIPS
    compares = any(one.format not in facts.BY_OFFSETS for one in pipeline.sources)
    return _MISMATCH if is_ours and compares else ""


def _is_same_within(step: Step, known: StepFact) -> bool:
    """Whether a task that runs again gives the same rows in the same run of the batch."""
    return known.is_same_within is True and not step.shuffled


def _sink(pipeline: Pipeline, trusted: Collection[str]) -> Iterator[_Judged]:
    sink = pipeline.sink
    if not pipeline.streaming:
        yield _Judged(SINK, "-", _BATCH)
        return
    if sink is None:
        yield _Judged(SINK, "-", _NO_SINK)
        return
    yield _Judged(SINK, name_of(sink), facts.sink_fact(sink))
    if sink.within and sink.format in facts.OURS and sink.within not in trusted:
        yield _Judged("step", sink.within, facts.around(sink.within))


def _query(pipeline: Pipeline) -> Iterator[_Judged]:
    """What holds of the query as a whole."""
    for text in pipeline.unread:
        yield _Judged("query", "not read", Fact("not known", Guarantee.NOT_KNOWN, text))
    if pipeline.sink is None:
        return
    if not pipeline.checkpoint:
        yield _Judged("query", "checkpoint", _NO_CHECKPOINT)
    ours = [
        end
        for end in (*pipeline.sources, pipeline.sink)
        if end.format in (*facts.OURS, facts.QUEUE)
    ]
    for word, sentence in _NOT_STARTED:
        if word in pipeline.trigger.lower().replace("-", ""):
            text = f"{sentence}: the query will not start" if ours else "it was not tried"
            allows = Guarantee.NONE if ours else Guarantee.NOT_KNOWN
            remedy = "Take trigger(processingTime=...) or availableNow=True."
            yield _Judged("query", "trigger", Fact("trigger", allows, text, remedy))
    is_format = pipeline.sink.format in facts.OURS and not pipeline.sink.by_function
    if is_format and pipeline.output_mode.lower() == "update":
        refused = Fact("update mode", Guarantee.NONE, UPDATE_MODE)
        yield _Judged("query", "output mode", refused)


def name_of(end: End) -> str:
    """How people call it: the format, and the topic, map or folder."""
    keys: Sequence[str] = (
        "table",
        "topic",
        "subscribe",
        "subscribepattern",
        "assign",
        "map",
        "queue",
        "path",
    )
    what = next((end.options[key] for key in keys if key in end.options), "")
    if end.within and end.format not in facts.OURS:
        what = end.within
    return f"{end.format} {what}".strip()
