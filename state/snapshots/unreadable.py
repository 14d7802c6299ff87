"""Tells a checkpoint that cannot be read now from one that needs a person. Runs on the driver."""

from __future__ import annotations

import errno

from ...core.errors import CheckpointUnreadable, EoKafkaError, cut
from ...core.process.driver_directory import is_seen, remember
from ...core.url_secrets import without_secrets

# All else may pass: stores have classes of their own for what OSError says.
_STAYS = (
    *(FileNotFoundError, NotADirectoryError, FileExistsError, PermissionError),
    *(ImportError, ValueError, TypeError, LookupError),
)
_STAYS_CODES = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)  # full, or read-only
_STAYS_SAID = ("Unable to load lib", "load libhdfs failed", "ACCESS_DENIED")  # OSErrors of pyarrow


def may_pass(error: Exception) -> bool:
    """Whether what made reading or writing a file fail may be gone at the next start, as an outage
    is."""
    if isinstance(error, EoKafkaError):
        return error.retriable
    if getattr(error, "errno", None) in _STAYS_CODES:
        return False
    return not isinstance(error, _STAYS) and not any(one in str(error) for one in _STAYS_SAID)


def was_read(url: str) -> None:
    """This driver has found in checkpoint `url` what Spark wrote: so that is where Spark has it."""
    remember(_name(url))


def problem_of_the_moment(url: str, path: str, error: Exception) -> CheckpointUnreadable | None:
    """Why `path` in checkpoint `url` could not be read, if the next start mends that or tells it;
    None if a person must."""
    shown = without_secrets(url)
    if isinstance(error, FileNotFoundError) and is_seen(_name(url)):
        return CheckpointUnreadable(
            f"Checkpoint '{shown}' is gone, or a part of it: this driver has read it before, and "
            f"there is no '{path}' now. Somebody deleted it, or its volume is not mounted. Nothing "
            "was decided. Bring it back if you can, and start the query again: with option "
            "'snapshots', 'eo-kafka run' and eo_kafka.start restore what is gone."
        )
    if not may_pass(error):
        return None
    found = cut(without_secrets(f"{type(error).__name__}: {error}"), 600)
    return CheckpointUnreadable(
        f"'{path}' of checkpoint '{shown}' cannot be read now ({found}). Nothing was decided. "
        "Start the query again when the checkpoint's store answers; 'eo-kafka run' does so."
    )


def _name(url: str) -> str:
    return f"checkpoint {without_secrets(url)}"
