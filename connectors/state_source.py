"""`format("eo-state")`: a job's snapshots and state views as DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from .plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_VIEW = "view"
_VIEW_SCHEMA = "key STRING, value STRING"


@dataclass(frozen=True)
class StateOptions:
    """What is read of which job. Raises OptionsError, with all that is wrong."""

    job: str
    table: str
    snapshot: str
    view: str
    given: Mapping[str, str] = field(repr=False)  # with secrets in it

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> StateOptions:
        """Never contacts a broker."""
        from ..core.options import Option, OptionReader, one_of, text
        from ..state.ledger.job_topics import job_name
        from ..state.snapshots.export import LATEST
        from ..state.snapshots.tables import TABLES

        read = Option("read", one_of(*TABLES, _VIEW), "snapshots", "")
        job = Option("jobName", job_name, "", "")
        snapshot = Option("snapshot", text, LATEST, "")
        view = Option("view", text, "", "")
        reader = OptionReader(given)
        reader.kafka({})
        found = cls(
            reader.get(job), reader.get(read), reader.get(snapshot), reader.get(view), dict(given)
        )
        if job.name not in reader:
            reader.problem("Option 'jobName' must be specified: the job (the sink's 'jobName').")
        if found.table == _VIEW and not found.view:
            reader.problem("Option 'view' must be specified: the name that the view was given.")
        names = ["ledgerTopic", "stateTopic", "transactionalIdPrefix", "allowWeakReplication"]
        reader.check_names([job.name, read.name, snapshot.name, view.name, *names])
        reader.finish()
        return found


@plain_errors
class StateDataSource(DataSource):
    """Batch reader. Options: docs/queryable-state.md."""

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return "eo-state"

    def schema(self) -> str:
        """By option `read`. Called at `load()`; never contacts a broker. Raises OptionsError."""
        from ..state.snapshots.tables import TABLES

        table = StateOptions.parse(self.options).table
        return _VIEW_SCHEMA if table == _VIEW else TABLES[table].schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Called once a `load()`."""
        return StateReader(StateOptions.parse(self.options))


@plain_errors
class StateReader(DataSourceReader):
    """Reads in one task: what a job's topics hold when the task runs."""

    def __init__(self, options: StateOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The rows. Executor, once an action. Raises what looking for snapshots may raise."""
        from ..state.snapshots.tables import TABLES

        options = self._options
        if options.table != _VIEW:
            yield from TABLES[options.table].rows(options.job, options.snapshot, options.given)
            return
        from ..state.view_writer import open_view

        for key, value in open_view(options.job, options.view, options.given).values.items():
            yield key.decode(), value.decode()
