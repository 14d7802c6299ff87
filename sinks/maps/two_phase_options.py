"""Parses the options of a writer of an IMap with `commit=two-phase`. No I/O.

They are the map's options, and those of the ledger in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...clients.hazelcast import client as hazelcast_client
from ...clients.hazelcast.client import HazelcastSettings
from ...core.errors import OptionsError
from ...core.maps import MAP
from ...core.options import OptionReader
from ...state.ledger.job import EXACTLY_ONCE
from .. import options
from ..options import SinkOptions
from ..staged_options import ledger_options
from . import options as map_options
from .merge import merge_function
from .options import RowShape, read_shape
from .target import StagedMap

_OF_MAP = (
    *(*map_options.OF_BOTH, map_options.FAIL_ON_DATA_LOSS, map_options.PUT_SIZE),
    *hazelcast_client.OPTIONS,
)


def read_two_phase(
    given: Mapping[str, str], columns: Sequence[tuple[str, str]]
) -> tuple[SinkOptions, StagedMap, RowShape]:
    """Read and check `given`, for rows of `columns` (name, Spark's type string); raises
    OptionsError with every problem. Contacts nobody."""
    reader = OptionReader(given)
    shape = read_shape(reader, columns)
    merge = _merge(reader)
    for option in (map_options.VERSION_FIELD, map_options.PUT_SIZE):
        if option.name in reader:
            reader.problem(f"Option '{option.name}' is for 'commit' '{options.IDEMPOTENT}'.")
    if reader.get(options.GUARANTEE) != EXACTLY_ONCE:
        reader.problem(
            f"Option 'guarantee' is '{reader.get(options.GUARANTEE)}': 'commit' "
            f"'{options.TWO_PHASE}' is '{EXACTLY_ONCE}'. Take one of them away."
        )
    if options.BATCH_ID.name in reader:
        reader.problem("Option 'batchId' is not supported for maps: use eo_kafka.foreach_batch.")
    target = StagedMap(
        reader.get(MAP),
        HazelcastSettings.read(reader),
        shape.json,
        reader.get(map_options.FAIL_ON_DATA_LOSS),
        merge,
    )
    reader.check_names(
        [option.name for option in (*_OF_MAP, *options.OPTIONS)], besides=hazelcast_client.PREFIX
    )
    rest = {
        name: value
        for name, value in given.items()
        if not name.lower().startswith(hazelcast_client.PREFIX)
    }
    found = ledger_options(rest, (*_OF_MAP, options.BATCH_ID), reader)
    if reader.problems or found is None:
        raise OptionsError(reader.problems)
    return replace(found, staging=target, fail_on_data_loss=target.fail_on_loss), target, shape


def read_target(given: Mapping[str, str]) -> StagedMap:
    """For an operator's command: which map a job writes, from the options `map`, `hazelcast.*` and
    `failOnDataLoss`, and how it merges, from `onConflict` and `mergeFunction`: what code is run is
    not taken from staged rows; the rest they say themselves. Raises OptionsError."""
    reader = OptionReader(given)
    if MAP.name not in reader:
        reader.problem(f"Option '{MAP.name}' must be specified: the map that the job writes.")
    target = StagedMap(
        reader.get(MAP),
        HazelcastSettings.read(reader),
        False,
        reader.get(map_options.FAIL_ON_DATA_LOSS),
        _merge(reader),
    )
    known = [MAP.name, map_options.FAIL_ON_DATA_LOSS.name]
    known += [map_options.ON_CONFLICT.name, map_options.MERGE_FUNCTION.name]
    known += [option.name for option in hazelcast_client.OPTIONS]
    reader.check_names(known, besides=hazelcast_client.PREFIX)
    reader.finish()
    return target


def _merge(reader: OptionReader) -> str | None:
    """The function that merges, if rows are merged; it can be imported here, or that is noted in
    `reader`."""
    conflict, name = reader.get(map_options.ON_CONFLICT), reader.get(map_options.MERGE_FUNCTION)
    if conflict not in (map_options.REPLACE, map_options.MERGE):
        reader.problem(
            f"Option 'onConflict' is '{conflict}': what is decided is put as it is "
            f"('{map_options.REPLACE}') or merged ('{map_options.MERGE}'). Take it away, or set "
            f"'commit' to '{options.IDEMPOTENT}'."
        )
    elif (conflict == map_options.MERGE) != (name is not None):
        reader.problem(
            "Option 'onConflict' 'merge' and option 'mergeFunction' go together: one says that "
            "entry and row are merged, the other by which function."
        )
    if name is not None:
        try:
            merge_function(name)
        except ValueError as error:
            reader.problem(f"Option 'mergeFunction' is '{name}': it {error}.")
    return name
