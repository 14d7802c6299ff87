"""What each kind of step of a query does to the guarantee: whether it gives the same rows again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepFact:
    """`is_same`: whether its outcome is the same when a batch runs again: True, False, or None
    where nobody can tell. `is_same_within`: whether it is so for a task that runs again."""

    sentence: str
    is_same: bool | None = True
    is_same_within: bool | None = True
    remedy: str = ""


_CLOCK = "current_timestamp() is the same when a batch runs again: use it."
_TRUST = "If it gives the same output for the same input, say so: --trust {name}."
STEPS = {
    "plain": StepFact("deterministic"),
    "batch time": StepFact(
        "deterministic: the checkpoint keeps the batch's time, and a replay gets it again"
    ),
    "state": StepFact("deterministic; keeps state in the checkpoint"),
    "watermark": StepFact("deterministic: the checkpoint keeps the watermark"),
    "shuffle": StepFact("deterministic"),
    "seeded": StepFact(
        "not deterministic: each run of a batch has a new seed, also where you give one",
        is_same=False,
        remedy="Derive the value from the record: xxhash64(topic, partition, offset), say.",
    ),
    "clock": StepFact(
        "not deterministic: Spark does not keep it with the batch, as it does current_timestamp()",
        is_same=False,
        is_same_within=True,
        remedy=_CLOCK,
    ),
    "placement": StepFact(
        "depends on how rows are divided among tasks, which may be another way in a replay",
        is_same=None,
    ),
    "order": StepFact(
        "depends on the order of rows, which a shuffle does not keep",
        is_same=None,
        is_same_within=None,
        remedy="Take min or max: they ask for no order.",
    ),
    "nondeterministic": StepFact(
        "not deterministic, by its own mark",
        is_same=False,
        is_same_within=False,
        remedy="Let it depend on the record alone.",
    ),
    "function": StepFact(
        "your code is not read: Spark takes it to be deterministic",
        is_same=None,
        is_same_within=None,
        remedy=_TRUST,
    ),
    "state function": StepFact(
        "your code is not read: Spark takes it to be deterministic; keeps state",
        is_same=None,
        is_same_within=None,
        remedy=_TRUST,
    ),
    "fixed side": StepFact("deterministic: a table that the query itself contains"),
    "given side": StepFact(
        "a table that the program builds: another one, perhaps, at the next start",
        is_same=None,
        remedy="If each start builds the same table, say so: --trust {name}.",
    ),
    "changing side": StepFact(
        "is read again for each run of a batch, and may have changed (cache() does not keep it)",
        is_same=False,
        is_same_within=None,
        remedy="Join an eo-map by eo_kafka.SideInput: a replay gets the same entries.",
    ),
    "compacted": StepFact(
        "Kafka may compact values away that a replay should read again",
        is_same=None,
        is_same_within=None,
    ),
    "unknown": StepFact(
        "explain does not know this step",
        is_same=None,
        is_same_within=None,
        remedy="Prove the job by a test that kills it (docs/testing.md).",
    ),
}
TRUSTABLE = ("function", "state function", "given side")
