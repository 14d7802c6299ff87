"""Where a checkpoint is, as a job's ledger keeps it: one name for one folder."""

from __future__ import annotations

import re

from ...core.url_secrets import without_secrets
from .checkpoint import Checkpoint

_OF_S3 = re.compile("s3[an]:")  # Hadoop's names


def place_of(checkpoint: Checkpoint | None) -> str:
    """Its URL without secrets, '' if it is not known. A link is a place of its own: that it leads
    to another disk now is no move."""
    if checkpoint is None:
        return ""
    found = without_secrets(_OF_S3.sub("s3:", checkpoint.location))
    return found.encode(errors="replace").decode()  # what no JSON holds, no ledger can
