"""Reads a query's id from the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from ...core.errors import CheckpointError, cut
from ...core.url_secrets import without_secrets
from .checkpoint import is_without_scheme, open_checkpoint
from .unreadable import problem_of_the_moment, was_read

_told: list[str] = []


@contextmanager
def told(query: str) -> Iterator[None]:
    """Meanwhile `query` is the id, as a batch's tasks have reported it; no checkpoint is read."""
    _told.append(query)
    try:
        yield
    finally:
        _told.pop()


def read_query_id(checkpoint: str) -> str | None:
    """The id; None before Spark has written one. Runs on the driver.

    Raises CheckpointError if it cannot be read: another query's ledger would pass for this one's;
    CheckpointUnreadable if that may pass, or if it is gone that this driver has read before.
    Spark writes it before the first batch: where a path without a scheme holds none, Spark's
    checkpoint is on another file system.
    """
    if _told:
        return _told[-1]
    try:
        with open_checkpoint(checkpoint).open("metadata") as stream:
            found = str(json.loads(stream.read())["id"])
    except FileNotFoundError as error:
        if gone := problem_of_the_moment(checkpoint, "metadata", error):
            raise gone from None
        if not is_without_scheme(checkpoint):
            return None
        raise CheckpointError(
            f"There is no file 'metadata' in '{checkpoint}' on this machine. Spark writes it "
            "before the first batch, so it keeps the checkpoint on another file system: the one "
            "that 'fs.defaultFS' names. Nothing was written. Write option 'checkpointLocation' "
            "with its scheme, as in 'hdfs://namenode:8020/path'; it stays the same checkpoint."
        ) from None
    except Exception as error:
        if passes := problem_of_the_moment(checkpoint, "metadata", error):
            raise passes from None
        said = cut(without_secrets(f"{type(error).__name__}: {error}"), 600)
        raise CheckpointError(
            "The query's id could not be read from 'metadata' in the checkpoint "
            f"'{without_secrets(checkpoint)}', so it is not known whether the job's ledger is this "
            f"query's ({said}). Nothing was written. Either let the driver's Python read it: "
            "pyarrow's file system for it, or fsspec and its package, and credentials, which are "
            "not Spark's; or keep the checkpoint where it can be read."
        ) from None
    was_read(checkpoint)
    return found
