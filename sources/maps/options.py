"""Parses the options of a reader of a Hazelcast map. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from ...clients.hazelcast import client as hazelcast_client
from ...clients.hazelcast.client import HazelcastSettings
from ...core.options import KAFKA_PREFIX, OptionReader
from ..data_loss import tell_loss
from .declared import (
    FETCH_SIZE,
    OF_BOTH,
    OF_HAZELCAST,
    PREDICATE,
    STREAM_ONLY,
    TASKS,
    MapShape,
    read_shape,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MapOptions(MapShape):
    """The options of one reader, checked. Pickled to the tasks; its repr shows no secrets."""

    hazelcast: HazelcastSettings
    tasks: int
    fetch_size: int
    predicate: str | None

    @classmethod
    def parse(cls, given: Mapping[str, str], streaming: bool | None) -> MapOptions:
        """Read and check `given`; raises OptionsError with every problem. Contacts nobody.
        `streaming` is None where Spark has not said yet what the reader is for."""
        reader = OptionReader(given)
        found = cls(
            **vars(read_shape(reader, streaming)),
            hazelcast=HazelcastSettings.read(reader),
            tasks=reader.get(TASKS),
            fetch_size=reader.get(FETCH_SIZE),
            predicate=reader.get(PREDICATE),
        )
        for name in sorted(reader.prefixed(KAFKA_PREFIX)):
            reader.problem(f"Option '{KAFKA_PREFIX}{name}' is for maps with 'backend' 'kafka'.")
        if streaming and PREDICATE.name in reader:
            reader.problem(
                "Option 'predicate' is for batches: members cannot evaluate one over the journal. "
                "Use filter() on the stream."
            )
        if streaming is False:
            for name in STREAM_ONLY:
                if name in reader:
                    log.warning("option '%s' is ignored in batch queries", name)
        known = (*OF_BOTH, *OF_HAZELCAST, *hazelcast_client.OPTIONS)
        reader.check_names((one.name for one in known), besides=hazelcast_client.PREFIX)
        reader.finish()
        return found

    @property
    def place(self) -> str:
        """For sentences: which map."""
        return f"map '{self.map}' of {self.hazelcast.place}"

    def report_loss(self, sentence: str) -> None:
        """Raise DataLossError, or warn if the query is to go on with what is left."""
        tell_loss(sentence, fail=self.fail_on_data_loss)
