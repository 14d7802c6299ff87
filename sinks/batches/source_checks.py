"""Whether the topics that a batch's sources read are those that they were: one that was deleted and
made again has other records under the same offsets.

Runs on the driver, in `commit(N)`; nothing here reads or writes anything.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ...core.errors import BatchMismatch, DataLossError
from ...core.transaction import with_ids
from ...state.ledger.ledger import Ledger
from ...state.snapshots.batch_ends import ids_of, name_of, topics_of, without_marks
from ..options import SinkOptions
from .batch_identity import BatchIdentity, decision_before

log = logging.getLogger(__name__)


def check_state(
    options: SinkOptions, identity: BatchIdentity, ledger: Ledger, now: Mapping[str, str]
) -> None:
    """Of a batch of a query with state that is written and was run again: raise DataLossError if
    its records were not read again, as their topic was made again since. `now` are the topics' ids
    in the sink's cluster. It is the source's if it had the same ids at the decision."""
    written = ledger.decisions[options.sink, identity.batch]
    before, read = dict(written.source_ids), identity.topic_ids
    gone = [t for t in read if read[t] == before.get(t) and now.get(t, read[t]) != read[t]]
    if not gone:
        return
    raise DataLossError(
        f"Batch {identity.batch} of job '{options.job}' is written, and Spark runs it again for "
        f"its state; but topics {sorted(gone)} were deleted and made again since, and its records "
        "with them. The state would lack them, so that later rows would be wrong or come twice. "
        "Nothing was written now, whatever 'failOnDataLoss' says. Give up the job's memory: "
        f"'{options.reset_command}', and a new checkpoint with "
        "'startingOffsets' at the readers (without it, they start at 'latest')."
    )


def check_names(options: SinkOptions, identity: BatchIdentity) -> None:
    """Of a new batch: raise BatchMismatch if a source with a name went, and one with another name
    reads a topic of it: to Spark that is a new source, which starts anew by `startingOffsets`. With
    `failOnDataLoss=false`, a warning."""
    before = {name_of(line): line for line in identity.starts}
    here = {name_of(line): line for line in identity.ends}
    gone = {name: topics_of(before[name]) for name in before.keys() - here.keys() - {""}}
    for name in sorted(here.keys() - before.keys() - {""}):
        was = sorted(old for old in gone if gone[old] & topics_of(here[name]))
        if not was:
            continue
        sentence = (
            f"Source '{was[0]}' of the query is gone, and source '{name}' has come and reads its "
            f"topics {sorted(gone[was[0]] & topics_of(here[name]))}: a new name is a new source, "
            "which starts where its 'startingOffsets' say, and not where the old one ended, at "
            f"{without_marks(before[was[0]])}. Records between would be passed over, or come twice."
        )
        if options.fail_on_data_loss:
            raise BatchMismatch(
                f"Batch {identity.batch} of job '{options.job}' is not decided: {sentence} Nothing "
                f"of it is visible. Give the source its name back ('{was[0]}'), delete "
                f"'offsets/{identity.batch}' of the checkpoint and the hidden file "
                f"'.{identity.batch}.crc' beside it, and start again; or, if it starts where it "
                "should, set 'failOnDataLoss' to false at the sink until a batch is written."
            )
        log.warning("%s The sink's 'failOnDataLoss' is false.", sentence)


def check_sources(
    options: SinkOptions, identity: BatchIdentity, ledger: Ledger, now: Sequence[tuple[str, str]]
) -> None:
    """S6: raise DataLossError if a topic that the sources read is not the one that the batch before
    read: it was deleted and made again. With `failOnDataLoss=false`, a warning."""
    batch = identity.batch
    newest = decision_before(options, batch, ledger)
    known = newest or ledger.succession  # the query before, whom this one continues
    before, here = with_ids(known.source_ids), dict(now)
    if not (replaced := sorted(t for t in here.keys() & before.keys() if here[t] != before[t])):
        return
    since = f"batch {newest.batch}" if newest else "the query before"
    sentence = (
        f"Source topics {replaced}, as the sink's cluster has them, were deleted and made again "
        f"since {since} (topic ids {[before[t] for t in replaced]}, now "
        f"{[here[t] for t in replaced]})."
    )
    if options.fail_on_data_loss:
        # The first batch of a query that continues another one starts where it ends.
        named = ids_of(identity.starts or identity.ends)
        raise DataLossError(
            f"{sentence} Nothing of batch {batch} is visible. "
            f"{_ways_on(known={*named} >= {*replaced})}"
        )
    log.warning("%s Batch %d goes on, as the sink's 'failOnDataLoss' is false.", sentence, batch)


def _ways_on(*, known: bool) -> str:
    """`known`: the source's position says which topic it was, so that the source acts on it."""
    if known:
        return (
            "The source reads the new topic from its beginning, if its 'failOnDataLoss' is false. "
            "To go on so, set 'failOnDataLoss' to false at the sink, too, until a batch is written."
        )
    return (
        "The source goes on at the old topic's offsets and skips what the new topic holds below "
        "them. To skip that, set 'failOnDataLoss' to false at the sink until a batch is written. "
        "To read the new topic from its beginning, and all other topics, too, delete the "
        "checkpoint, set option 'onReset' to 'new-job' and 'startingOffsets' to 'earliest'."
    )
