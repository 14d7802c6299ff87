"""Files as the protocol knows them: a target of the port, with its own look at a start. Driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from ...core.errors import OutcomeUnknown
from ...state.ledger.ledger import Ledger
from ...targets.files.target import FilesTarget
from ...targets.port import MarkerChanged
from ..targets.custom import told, writer_of
from ..targets.target import StagedCustomTarget

if TYPE_CHECKING:
    from ..options import SinkOptions

REFERENCE = "eo_kafka.targets.files.target:FilesTarget"


@dataclass(frozen=True)
class StagedFiles(StagedCustomTarget):
    """`StagedTarget` says what is asked."""

    def check_same(self, job: SinkOptions, ledger: Ledger, *, fenced: bool) -> None:
        made = cast(FilesTarget, self.made())
        with told(self.place):
            made.check()
        super().check_same(job, ledger, fenced=fenced)
        if not fenced:
            return
        try:
            with told(self.place):
                made.show_columns(writer_of(job.job_and_ledger[0], job.sink))
        except MarkerChanged:
            raise OutcomeUnknown(
                f"Another driver changed {self.place} at the same moment. Nothing was written. "
                "Start the query again if it is not meant to be that one's."
            ) from None
