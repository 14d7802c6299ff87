"""The name of a job whose option `jobName` is not given."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from ..core.options import OptionReader
from ..state.ledger.job import NO_JOB_NAME
from ..state.ledger.job_topics import job_name

# Where Spark's declarative pipelines keep a flow's checkpoint: the last part goes up by one with
# each full refresh.
_OF_FLOW = re.compile(r"(?P<storage>.*)/_checkpoints/(?:[^/]+/)+(?P<flow>[^/]+)/[0-9]+/?")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9._-]+")


def default_job(
    reader: OptionReader, given: Mapping[str, str], query_id: str | None
) -> tuple[str | None, bool]:
    """The query's name, else its id; of a flow of a declarative pipeline `<pipeline>.<flow>`, and
    True. Problems go to `reader`."""
    flow = _of_flow(given)
    name = flow or given.get("queryname") or query_id
    if name is None:
        reader.problem(NO_JOB_NAME)
        return None, False
    try:
        return job_name(name), flow is not None
    except ValueError as error:
        reader.problem(f"The query name stands in for option 'jobName', which {error}: '{name}'.")
        return None, False


def _of_flow(given: Mapping[str, str]) -> str | None:
    """Spark tells a sink neither that it is a pipeline's nor the pipeline's name; only the query is
    named as the flow, and its checkpoint is in the pipeline's `storage`. Flows of two pipelines may
    have one name, so the pipeline is named by its storage: its folder, and a digest of its path."""
    query = given.get("queryname", "")
    found = _OF_FLOW.fullmatch(given.get("checkpointlocation", ""))
    if found is None or query.rpartition(".")[2] != found["flow"]:
        return None
    folder = _NOT_IN_NAMES.sub("-", found["storage"].rstrip("/").rpartition("/")[2])[:60]
    path = re.sub(r"(?<=:)/+", "/", found["storage"])  # file:/x is file:///x
    return f"{folder}-{hashlib.sha256(path.encode()).hexdigest()[:8]}.{query}"
