"""What can be done from the page: what it is in words, as which command, and the same code.

Nothing here decides what is allowed: the commands do, and their refusals are shown.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from urllib.parse import quote

from ...core.errors import EoKafkaError
from ...core.transaction import Identity
from ...state.ledger.job import read_job
from ..control.asking import ask
from ..control.words import Do
from ..jobs.command import ASKED
from ..snapshots.exporting import export_snapshot
from ..transactions.acting import end_found
from ..transactions.ending import Asked
from ..transactions.report import facts, ledger_says
from ..transactions.search import TransactionSearch
from ..transactions.verdict import Judged, abort_refusal
from .cluster import Cluster

ANSWER_S = 180.0
Hear = Callable[[str], None]


@dataclass(frozen=True)
class Action:
    """What is about to be done. `does`: sentences. `refused`: why it cannot be. `field`: the name
    of what has to be typed, and what it means. `run` does it, with the form's fields, and returns
    what came of it; raises EoKafkaError. `back`: the page to return to."""

    title: str
    button: str
    does: Sequence[str]
    command: str
    back: str
    run: Callable[[Mapping[str, str], Hear], str]
    refused: str = ""
    field: tuple[str, str] | None = None
    hidden: Mapping[str, str] | None = None
    facts: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Actions:
    """`where`: the words that tell a command which cluster it is."""

    cluster: Cluster
    where: tuple[str, ...]

    def asking(self, job: str, do: Do) -> Action:
        """As `eo-kafka job suspend` and the like."""
        told = ASKED[do]

        def run(_fields: Mapping[str, str], hear: Hear) -> str:
            options = read_job(job, self.cluster.options_of(job))
            answer = ask(options, do, "", ANSWER_S, hear)
            said = f"{answer.host}: {answer.said}"
            if not answer.ok:
                raise EoKafkaError(said)
            return said

        return Action(
            title=f"{do.value.capitalize()} job {job}",
            button=do.value.capitalize(),
            does=(
                f"The job's supervisor ('eo-kafka run --job {job}', wherever it runs) is asked to "
                f"{told}.",
                *_MORE[do],
                "The wish is written into the job's control topic, and holds until another one is "
                "made, also for a supervisor that is started later.",
            ),
            command=self._command("job", do.value, job),
            back=page_of(job),
            run=run,
        )

    def export(self, job: str) -> Action:
        """As `eo-kafka snapshots export`."""

        def run(fields: Mapping[str, str], hear: Hear) -> str:
            name = fields.get("name", "").strip()
            hear(f"Copying the newest snapshot as '{name}' ...")
            made = export_snapshot(job, name, self.cluster.options_of(job), progress=False)
            head = made.snapshot
            return (
                f"Batch {head.batch} of job '{made.job}' is exported as '{made.name}': "
                f"{head.files:,} files, {head.size:,} bytes."
            )

        return Action(
            title=f"Export the newest snapshot of job {job}",
            button="Export",
            does=(
                "The job's newest snapshot is copied into a topic of its own, where it stays until "
                "it is deleted. The job goes on, and is neither stopped nor fenced.",
            ),
            command=self._command("snapshots", "export", job, "NAME"),
            back=page_of(job),
            run=run,
            field=("name", "Name of the export: letters, digits, '_' and '-'"),
        )

    def abort(self, name: str, job: str) -> Action:
        """As `eo-kafka txn abort`, of the transaction that is open under the id now."""
        one, said = self._end(name, None, Asked(commit=False, yes=True, dry_run=True))
        needs_yes = (abort_refusal(one, yes=False) or "").removesuffix(": --yes to do it")
        shown = one.described.identity

        def run(fields: Mapping[str, str], _hear: Hear) -> str:
            seen = Identity(name, _number(fields, "producer"), _number(fields, "epoch"))
            yes = fields.get("yes") == "1"
            return self._end(name, seen, Asked(commit=False, yes=yes))[1]

        words = ("txn", "abort", name, *(("--yes",) if needs_yes else ()))
        return Action(
            title="Abort a transaction",
            button="Abort it",
            does=(
                f"The ledger says: {ledger_says(one)}. The transaction is aborted: its rows never "
                "become visible, and readers that wait behind it go on.",
                *([f"{needs_yes[0].upper()}{needs_yes[1:]}."] if needs_yes else []),
                "It is this very transaction that is ended (its producer and epoch), or none.",
            ),
            command=self._command(*words),
            back=page_of(job),
            run=run,
            refused=said if said.startswith("refused") else "",
            hidden={
                "producer": str(shown.producer_id),
                "epoch": str(shown.epoch),
                "yes": "1" if needs_yes else "",
            },
            facts=facts(one, int(time.time() * 1000)),
        )

    def _end(self, name: str, seen: Identity | None, asked: Asked) -> tuple[Judged, str]:
        """The transaction, and what became of it. Raises EoKafkaError: it is refused."""
        with closing(TransactionSearch(self.cluster.settings, self.cluster.named)) as search:
            (one,) = search.judge([name])
            if seen is not None and one.described.identity != seen:
                raise EoKafkaError(
                    f"The transaction that was shown has ended, and '{name}' has another one now "
                    "or none. Nothing was done."
                )
            (outcome,) = end_found(search, [one], asked, self.cluster.given)
        if not outcome.done and not asked.dry_run:
            raise EoKafkaError(f"{ledger_says(one)}: {outcome.said}.")
        return one, outcome.said if asked.dry_run else f"{ledger_says(one)}: {outcome.said}."

    def _command(self, *words: str) -> str:
        return shlex.join(["eo-kafka", *words, *self.where])


def page_of(job: str) -> str:
    """Where to return to."""
    return f"/jobs/{quote(job, safe='')}" if job else "/"


_MORE = {
    Do.SUSPEND: (
        "The batch that runs has the supervisor's --grace to end. Nothing of the job stays open, "
        "and readers see all that was decided. What comes into its input meanwhile waits there.",
    ),
    Do.RESUME: ("It goes on where it stopped: nothing is lost, and nothing is written twice.",),
}


def _number(fields: Mapping[str, str], name: str) -> int:
    try:
        return int(fields.get(name, ""))
    except ValueError:
        return -2  # no transaction has it
