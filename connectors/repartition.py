"""`eo_kafka.repartition`: Spark's offline repartition of state, with checks before it.

Spark 4.3 writes the entry in its offset log first and looks at the state store afterwards: with any
store but RocksDB it then fails, and the query never starts again. So this checks everything first.
Source: StreamingCheckpointManager and OfflineStateRepartitionRunner of Spark 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import CheckpointError, EnvironmentRefused, OptionsError
from ..state.snapshots.checkpoint import open_checkpoint
from ..state.snapshots.offset_log import batches_in, is_repartition, planned_batch
from ..state.snapshots.snapshot import RESTORING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


def repartition(spark: SparkSession, checkpoint: str, partitions: int) -> None:
    """Change the number of state partitions of a stopped query.

    Spark's own offline repartition does it. Checks first that Spark will succeed, because a failed
    try leaves a checkpoint that never starts again. The output does not change: nothing is written
    or repeated. The query takes its next snapshot with its next batch; if the checkpoint is lost
    before that, a restore brings the old number back. If it was interrupted, call it again with the
    same number. Runs on the driver, on Spark Classic 4.2 or newer.

    Args:
        spark: The session.
        checkpoint: The query's `checkpointLocation`, a path or URL. Its state must be in RocksDB,
            and its last batch finished.
        partitions: The new number of partitions, at least 1.

    Raises:
        OptionsError: `partitions` is below 1.
        CheckpointError: This checkpoint cannot be repartitioned. It was not touched.
        EnvironmentRefused: Spark is older than 4.2, or is Spark Connect.

    Examples:
        >>> eo_kafka.repartition(spark, "/data/firsts", 3)
    """
    if partitions < 1:
        raise OptionsError([f"partitions must be at least 1, and is {partitions}."])
    folder = open_checkpoint(checkpoint)
    paths = folder.paths()
    if RESTORING in paths:
        raise CheckpointError(
            f"The checkpoint '{folder.url}' was not restored to its end. Restore it again first."
        )
    batches = batches_in("offsets", paths)
    if not batches:
        raise CheckpointError(f"There is no checkpoint at '{folder.url}': nothing was changed.")
    *before, newest = [planned_batch(folder, batch) for batch in batches[-2:]]
    if newest.state_partitions is None:
        raise CheckpointError(
            f"offsets/{batches[-1]} of '{folder.url}' does not say how many partitions the state "
            "has: nothing was changed."
        )
    provider = str(newest.settings.get(_PROVIDER, ""))
    if not provider.endswith(".RocksDBStateStoreProvider"):
        raise CheckpointError(
            f"The state in '{folder.url}' is kept by {provider or 'a store not named'}, "
            "and Spark can repartition that of RocksDB only: a try would leave the checkpoint "
            "stuck (STREAMING_UNFINISHED_REPARTITION_DETECTED). Nothing was changed. A query "
            "cannot change its state store: start a new query, which builds its state again."
        )
    unfinished = f"commits/{batches[-1]}" not in paths
    if unfinished and not any(is_repartition(one, newest) for one in before):
        raise CheckpointError(
            f"Batch {batches[-1]} of '{folder.url}' is not finished, and a repartition would "
            "skip it. Nothing was changed. Run the query once with trigger(availableNow=True) "
            "and the present number of partitions, then repartition."
        )
    if not unfinished and newest.state_partitions == partitions:
        raise CheckpointError(
            f"The state in '{folder.url}' has {partitions} partitions already: nothing was changed."
        )
    manager = getattr(spark, "_streamingCheckpointManager", None)
    if manager is None:
        raise EnvironmentRefused(
            "Offline repartitioning needs Spark Classic 4.2 or newer. Nothing was changed."
        )
    manager.repartition(checkpoint, partitions, True)
