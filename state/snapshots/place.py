"""Where a checkpoint is, as a job's ledger keeps it: one name for one folder."""

from __future__ import annotations

import posixpath
import re

from ...core.url_secrets import without_secrets
from .checkpoint import Checkpoint

_OF_S3 = re.compile("s3[an]:")  # Hadoop's names
_PARTS = re.compile(r"(\w+:(?://[^/]*)?)(/.*)", re.DOTALL)


def place_of(checkpoint: Checkpoint | None) -> str:
    """Its URL without secrets, '' if it is not known. A link is a place of its own: that it leads
    to another disk now is no move."""
    if checkpoint is None:
        return ""
    found = _OF_S3.sub("s3:", checkpoint.location)
    if parts := _PARTS.fullmatch(found):  # as Spark writes it into files: without `..`
        found = parts[1] + posixpath.normpath(parts[2])
    found = without_secrets(found)
    return found.encode(errors="replace").decode()  # what no JSON holds, no ledger can
