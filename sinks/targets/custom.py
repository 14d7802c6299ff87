"""Which target of the user's own rows go into. Pickled to the tasks; made anew by each process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from ...core.errors import EoKafkaError, OptionsError, SourceError, cut
from ...core.imported import imported
from ...targets.port import MarkerChanged, NotStaged, Target
from ..rows.one_value import one_value, sent

if TYPE_CHECKING:
    import pyarrow as pa

_PARAGRAPH = "\n\n"


@dataclass(frozen=True)
class CustomTarget:
    """`reference` is `module:class`, `settings` what it is made with. `columns`: those of the rows
    that go into it; none for an operator's command."""

    reference: str
    settings: Mapping[str, str] = field(repr=False)  # it may hold secrets
    columns: tuple[str, ...]
    fail_on_loss: bool

    def made(self) -> Target:
        """It, the same one for all of a process. Raises OptionsError."""
        return _made(self.reference, tuple(sorted(self.settings.items())))

    def sent(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What a topic gets, or what stands for the rows in a digest. Executor."""
        return sent(batch, self.columns)

    def beside(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What stands in a digest for that of the rows which a topic does not get. Executor."""
        return one_value(batch, self.columns)

    @property
    def place(self) -> str:
        """For sentences, and for the decisions."""
        with told(self.reference):
            return self.made().place


class _MissingOption(KeyError):
    """Of a target's own options, and of no other dictionary that its constructor asks."""


class _Settings(dict[str, str]):
    def __missing__(self, name: str) -> str:
        raise _MissingOption(name)


@cache
def _made(reference: str, settings: tuple[tuple[str, str], ...]) -> Target:
    try:
        found = imported(reference, "class")(_Settings(settings))
    except ValueError as error:
        raise OptionsError([f"Option 'target' ('{cut(reference)}'): {cut(error, 500)}."]) from None
    except _MissingOption as error:
        option = f"target.{error.args[0]}"
        raise OptionsError([f"Option '{option}' must be specified for '{reference}'."]) from None
    except EoKafkaError:
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {cut(error, 500)}"
        raise SourceError(f"'{cut(reference)}' could not be made: {what}.") from error
    if not isinstance(found, Target):
        raise OptionsError(
            [f"Option 'target': '{cut(reference)}' made no eo_kafka.targets.Target."]
        )
    return found


def writer_of(job: str, sink: str) -> str:
    """By which a target knows who writes: the same for all of a job's drivers."""
    return f"eo-{hashlib.sha256(f'{job}/{sink}'.encode()).hexdigest()[:16]}"


def name_of(writer: str, ledger: str, generation: int, partition: int, attempt: int) -> str:
    """Of what one attempt of a task stages. The ledger's id keeps it apart from what was staged by
    one that was deleted and made again."""
    whose = hashlib.sha256(ledger.encode()).hexdigest()[:8]
    return f"{writer}-{whose}-{generation}-{partition}-{attempt}"


def generation_in(name: str, writer: str, ledger: str) -> int | None:
    """Of a name; None of another ledger's."""
    whose = f"{name_of(writer, ledger, 0, 0, 0).removesuffix('-0-0-0')}-"
    return int(name.removeprefix(whose).split("-")[0]) if name.startswith(whose) else None


@contextmanager
def told(place: str) -> Iterator[None]:
    """What the user's code raises is told with its place. Raises SourceError."""
    try:
        yield
    except (EoKafkaError, MarkerChanged, NotStaged):
        raise
    except Exception as error:
        # What follows an empty line is for who reads the client's code
        what = f"{type(error).__name__}: {cut(str(error).partition(_PARAGRAPH)[0], 500)}"
        raise SourceError(f"{place} failed with {what}.") from error
