"""What `format("eo-target")` asks of a target: to put rows aside, and to show them at once.

The job's ledger in Kafka says which batch is decided. A target needs no transaction across
machines: it needs one atomic step that shows rows which were put aside, and a marker with them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class MarkerChanged(Exception):
    """Raised by `Target.apply`: the marker is not what it should be. Nothing was changed."""


class NotStaged(Exception):
    """Raised by `Target.apply`: a name is not there with all its chunks. Nothing was changed."""


class Target(ABC):
    """A place that rows of a stream go into, each batch at once and once.

    The class is made with the options `target.*` of the sink as a dict, by each process that needs
    it: `RedisTarget({"url": ...})`. It should connect when it is first used, and give each request
    a timeout: nothing here ends a call that hangs. `name` and `writer` consist of letters, digits,
    `-` and `_`, 60 at most; all of one writer's names begin with the `writer`.
    `eo_kafka.testing.check_target` tries it out.

    Examples:
        >>> class Memory(Target): ...
    """

    @property
    @abstractmethod
    def place(self) -> str:
        """What it is, in words that hold no secret, the same as long as it is the same place: each
        decision records it. Driver and executors."""

    @abstractmethod
    def stage(self, name: str, number: int, rows: pa.Table) -> None:
        """Put a chunk of rows aside. No reader sees it, and it is durable when this returns.

        Runs on an executor: for each attempt of a partition that has rows one `name`, with chunks
        0, 1, 2, and so on of about 32 MB. Whatever it raises fails the task, which Spark tries
        again under another name; `eo-kafka run` starts the query again, too.

        Args:
            name: Under which the chunks of this attempt are found.
            number: Which chunk.
            rows: In their order.

        Raises:
            eo_kafka.errors.SinkError: Of rows that can never be taken; its sentence says which, and
                what to do. `eo-kafka run` does not start the query again: it needs a person.
        """

    @abstractmethod
    def staged(self, writer: str) -> Mapping[str, int]:
        """The names that begin with `writer`, and how many chunks each has. Driver, a few times a
        batch."""

    @abstractmethod
    def marker(self, writer: str) -> bytes | None:
        """What the newest `apply` of this writer left as its marker; None: nothing yet. It must
        not be older than any answer before it. Driver, two or three times a batch."""

    @abstractmethod
    def apply(
        self, writer: str, names: Mapping[str, int], before: bytes | None, after: bytes
    ) -> None:
        """In one atomic and durable step: show the rows of all `names`; `after` is the marker.

        Runs on the driver, once a batch, or again after a failure; never for rows that are shown
        already. Two drivers may call it at the same time: one of them has the right `before`. What
        it has shown may still be `staged` when it returns, or not.

        Args:
            writer: Whose marker.
            names: With how many chunks each has. Empty: only the marker changes.
            before: What the marker must be at that moment.
            after: What it is then; a few hundred bytes.

        Raises:
            MarkerChanged: The marker is not `before`. Nothing was changed.
            NotStaged: A name is not there with all its chunks. Nothing was changed.
        """

    @abstractmethod
    def discard(self, names: Collection[str]) -> None:
        """Remove what is staged under these names, also those that are not there. Driver. Rows that
        are shown stay."""
