"""Every error that eo-kafka raises, as one tree.

    EoKafkaError
    ├── OptionsError            the user's options are wrong; nothing was contacted
    ├── EnvironmentRefused      this Kafka cannot keep the promise, as configured
    │   └── Unreachable         retriable; no broker answers: an outage, or a wrong address
    ├── SourceError
    │   ├── DataLossError       records that the query still needed are gone
    │   ├── UnknownTopic        the cluster has no topic of this name
    │   └── ReadTimeout         retriable; the broker stopped answering
    ├── SinkError
    │   ├── WriteFailed         retriable; nothing of the batch is decided
    │   ├── SnapshotFailed      retriable; nothing of the batch is decided
    │   ├── Undecided           retriable; the batch is replayed freely
    │   ├── ParticipantsLost    retriable; decided, but aborted by the broker: the next start mends
    │   ├── OutcomeUnknown      in doubt; the next start reads the ledger and finds out
    │   └── Fenced              fatal for this driver; a newer one has taken over
    ├── LedgerError
    │   ├── ForeignLedger       the ledger belongs to another query
    │   ├── CorruptLedger       a record that nobody but us may write is not ours
    │   ├── BatchMismatch       a batch of this number is written, and was another one
    │   └── RepairNeeded        a decided batch is partly lost and its replay is not equal
    ├── CheckpointError         Spark's checkpoint is not there, not empty, or not what it should be
    │   └── CheckpointUnreadable    retriable; its store does not answer, or it went away meanwhile
    ├── CorruptSnapshot         what the state topic holds is not what was put there
    └── BrokerError             the Kafka of `eo-kafka broker` could not be run (broker/errors.py)
        └── PortTaken           somebody else listens where it should

Class attributes say what a caller may do: `retriable` (run the batch again), `fenced` (stop,
somebody newer owns the job), `in_doubt` (never clean up on it). An error with none of them set is
fatal: it needs a person, and its message names the command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

MESSAGE_MAX = 4000
# The name that programs import, and that tracebacks and Spark's messages show.
PUBLIC = f"{__name__.removesuffix('.core.errors')}.errors"


def cut(text: object, longest: int = 200) -> str:
    """What somebody else wrote (a row, a broker, a file) as part of a sentence: its beginning and
    its end, at most `longest` (100 or more) characters, and such that it can be encoded."""
    whole = str(text).encode("utf-8", "backslashreplace").decode()
    if len(whole) <= longest:
        return whole
    half = (longest - 40) // 2
    return f"{whole[:half]} [... {len(whole) - 2 * half} characters ...] {whole[-half:]}"


class EoKafkaError(Exception):
    """Root of the tree. A message is bounded, because it travels from tasks to the driver and
    into logs; the end, which says what to do, is kept."""

    retriable: ClassVar[bool] = False
    fenced: ClassVar[bool] = False
    in_doubt: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.__module__ = PUBLIC

    def __init__(self, *args: object) -> None:
        super().__init__(
            *(cut(part, MESSAGE_MAX) if isinstance(part, str) else part for part in args)
        )


EoKafkaError.__module__ = PUBLIC


class OptionsError(EoKafkaError):
    """One or more options are wrong. `problems` holds one sentence for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(self.problems))

    def __reduce__(self) -> tuple[type[OptionsError], tuple[Sequence[str]]]:
        return type(self), (self.problems,)


class EnvironmentRefused(EoKafkaError):
    """The broker or a topic is configured so that the promise cannot be kept."""


class Unreachable(EnvironmentRefused):
    """No broker answers. From here a wrong address and an outage look the same."""

    retriable = True


class SourceError(EoKafkaError):
    """Reading failed."""


class DataLossError(SourceError):
    """Records between the query's position and the log's start are gone."""


class UnknownTopic(SourceError):
    """The cluster has no topic of this name, also when asked more than once."""


class ReadTimeout(SourceError):
    """The broker did not answer, or a read made no progress, within the bound."""

    retriable = True


class SinkError(EoKafkaError):
    """Writing failed."""


class WriteFailed(SinkError):
    """A task could not write or prepare; its transaction will be aborted."""

    retriable = True


class SnapshotFailed(SinkError):
    """The checkpoint could not be read as a whole."""

    retriable = True


class Undecided(SinkError):
    """A participant is not prepared any more. Nothing is decided; the batch may be run again."""

    retriable = True


class ParticipantsLost(SinkError):
    """A batch was decided and some of its transactions had been aborted by then."""

    retriable = True


class OutcomeUnknown(SinkError):
    """A request that may have taken effect got no answer, and asking again got none either."""

    in_doubt = True


class Fenced(SinkError):
    """Another driver of the same job is newer than this one."""

    fenced = True


class LedgerError(EoKafkaError):
    """The ledger says something that must be looked at before the job goes on."""


class ForeignLedger(LedgerError):
    """The ledger was written by a query with another id."""


class CorruptLedger(LedgerError):
    """A ledger record cannot be decoded, or contradicts another."""


class BatchMismatch(LedgerError):
    """What comes as a batch that is written is not that batch: to skip it would lose its rows."""


class RepairNeeded(LedgerError):
    """Part of a decided batch is committed, part is lost, and the replay cannot be matched."""


class CheckpointError(EoKafkaError):
    """A checkpoint that cannot be used as it is."""


class CheckpointUnreadable(CheckpointError):
    """It could be read before, or may be at the next start. Nothing was decided."""

    retriable = True


class CorruptSnapshot(EoKafkaError):
    """A snapshot in Kafka that is not whole, or not what its digests say. It was not used."""
