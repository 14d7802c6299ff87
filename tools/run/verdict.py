"""Whether what ended a driver is mended by another start, or needs a person: by the error tree."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from ...broker import errors as _broker_errors  # noqa: F401 - its classes are of the tree, too
from ...core.errors import EoKafkaError
from .guard import UNWATCHED
from .status import Status

# An error of ours at the end of a traceback, or in a line that is Spark's error: the class, and its
# sentences. Elsewhere in a line it may be anybody's text: a record that a program has logged.
OUR_ERROR = re.compile(
    r"^[ \t|:]*(?:Caused by: )?"
    r"(?:(?:(?:org\.apache\.spark|pyspark|py4j)\.[\w.$]+: |\[[A-Z0-9]+_[A-Z0-9_.]+\] ).*?)?"
    r"\beo_kafka(?:\.\w+)*\.([A-Z]\w+): (.{0,4000})",
    re.MULTILINE,
)
# What Python says when its JVM is gone. What stood above it was survived.
_JVM_GONE = re.compile(
    r"py4j\.protocol\.Py4JNetworkError|ConnectionRefusedError|Answer from Java side is empty"
)
KILLED = 128  # exit codes above it say which signal


class Way(Enum):
    """What is done about an error, and the word for it in docs/how-to/run-a-job.md."""

    RESTART = "restarted"
    SUPERSEDED = "not restarted: a newer driver goes on"
    PERSON = "not restarted: needs a person"


@dataclass(frozen=True)
class OurError:
    """The class's name, and what it says."""

    name: str
    said: str

    @property
    def way(self) -> Way:
        """What is done about it."""
        return way_of(self.name)


TO_DO = {
    "OptionsError": "Correct the options that it names.",
    "EnvironmentRefused": "Change the setting that it names; 'eo-kafka doctor' checks all of them.",
    "DataLossError": "Find out why they are gone, and put back what can be put back; "
    "failOnDataLoss=false goes on with what is left.",
    "UnknownTopic": "Create the topic ('eo-kafka topic create'), or correct its name.",
    "Fenced": "Make sure that the job runs in one place only. The newer driver goes on.",
    "ForeignLedger": "Do what the sentence says: one of the ways gives the job's memory up.",
    "CorruptLedger": "Restore the ledger's topic, or run the newer version that wrote it.",
    "BatchMismatch": "Do what the sentence says: another way may lose rows.",
    "RepairNeeded": "Do what the sentence says: another way may lose or repeat rows.",
    "CheckpointError": "Nothing was changed. Do what the sentence says about the checkpoint.",
    "CorruptSnapshot": "Verify the job's snapshots, and restore another one: 'eo-kafka snapshots'.",
}
LOOK_IT_UP = "Look it up in docs/troubleshooting.md."


def tree() -> dict[str, type[EoKafkaError]]:
    """Every class of the tree by its name. Users' own are of none."""
    below = _below(EoKafkaError)
    return {one.__name__: one for one in below if one.__module__.startswith("eo_kafka.")}


def _below(error: type[EoKafkaError]) -> Iterator[type[EoKafkaError]]:
    yield error
    for one in error.__subclasses__():
        yield from _below(one)


def way_of(name: str) -> Way:
    """By the class's attributes. What is not of the tree is no error of ours, and restarted."""
    error = tree().get(name)
    if error is None or error.retriable or error.in_doubt:
        return Way.RESTART
    return Way.SUPERSEDED if error.fenced else Way.PERSON


def to_do(name: str) -> str:
    """What the person must do, in a sentence."""
    return TO_DO.get(name, LOOK_IT_UP)


def last_error(text: str) -> OurError | None:
    """The last error of ours in a message of Spark's or a traceback."""
    found = [(name, said) for name, said in OUR_ERROR.findall(text) if name in tree()]
    return OurError(found[-1][0], found[-1][1].strip()) if found else None


def error_of_script(code: int, stderr: str) -> OurError | None:
    """What ended a program that only left an exit code and its stderr.

    A program that a signal ended, or whose JVM went away, did not die of what it had said before.
    """
    if code == 0 or code < 0 or code > KILLED:
        return None
    gone = [match.end() for match in _JVM_GONE.finditer(stderr)]
    return last_error(stderr[gone[-1] :] if gone else stderr)


@dataclass(frozen=True)
class Ending:
    """How a driver ended. `error`: one of ours."""

    told: str
    in_order: bool = False
    error: OurError | None = None


def judge(code: int, status: Status | None, stderr: str) -> Ending:
    """By its exit code, by what a driver program of ours told, or what any other one wrote."""
    if code < 0:
        return Ending(f"its guard was killed by {signal_name(-code)}")
    by_signal = code > KILLED
    told = f"it was killed by {signal_name(code - KILLED)}" if by_signal else f"exit code {code}"
    if code == UNWATCHED:
        told, status = "this supervisor stood still, so the driver's guard ended it", Status()
    if status is None:
        return Ending(told, code == 0, error_of_script(code, stderr))
    if status.error is not None:
        return Ending(told, error=OurError(status.error, status.said))
    if status.ended and code == 0:
        return Ending("its query has ended", in_order=True)
    if code == 0:
        return Ending("exit code 0 before its query had ended")
    return Ending(told)


def signal_name(number: int) -> str:
    """As people know it."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
