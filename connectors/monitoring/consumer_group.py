"""`eo_kafka.ConsumerGroup`: commits a query's progress into a consumer group.

A listener, so that it runs after Spark has noted the batch as done, also for the last one of a run.
The group's offsets are for people and monitors: the query itself never reads them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from ...core.options import KafkaSettings, OptionReader
from .group_commits import GroupCommits

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

LAST_S = 15.0
RENEW_S = 6 * 3600.0  # brokers may keep offsets for a day only

log = logging.getLogger(__name__)


class ConsumerGroup(StreamingQueryListener):
    """Commits a query's progress into a consumer group, for tools that watch lag.

    Add it with `spark.streams.addListener` before the query starts. Runs on the driver after each
    batch, in a thread. The query itself never reads the group, and the group must have no members
    of its own. If several sources of the query read one topic, the slowest one's position is
    committed; topics of another cluster are left out. A commit that fails is tried again for ten
    seconds, then logged; the next batch makes up for it. Deleted topics are logged once. While the
    query waits for records, the last position is committed again each six hours: Kafka drops the
    offsets of a group without members after seven days.

    Args:
        group: The consumer group's name.
        options: The `kafka.*` options of the query's sources.
        query: The query's name or id.

    Raises:
        OptionsError: A name is empty, or `kafka.bootstrap.servers` is missing or an option wrong.

    Examples:
        >>> lag = eo_kafka.ConsumerGroup("orders-app", kafka, query="totals")
        >>> spark.streams.addListener(lag)
        >>> spark.streams.removeListener(lag)
    """

    def __init__(self, group: str, options: Mapping[str, str], *, query: str) -> None:
        reader = OptionReader(options)
        settings = reader.kafka({})
        if not group.strip():
            reader.problem("The consumer group must have a name.")
        if not query.strip():
            reader.problem("The query must be given by its name or id.")
        reader.finish()
        self._group = group
        self._query = query
        self._settings: KafkaSettings = settings.merged(group_id=group, enable_auto_commit="false")
        self._changed = threading.Condition()
        self._query_id = ""
        self._ends: list[str | None] | None = None  # of the newest batch, until they are taken
        self._newest: list[str | None] = []
        self._renewed = 0.0  # time.monotonic()
        self._is_over = False
        self._thread: threading.Thread | None = None

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Kafka drops what a group has not committed for offsets.retention.minutes, seven days by
        default, though nothing came that could be committed."""
        with self._changed:
            is_mine = str(event.id) == self._query_id and not self._is_over
            if is_mine and time.monotonic() - self._renewed >= RENEW_S:
                self._give(self._newest)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """After a batch is in Spark's commit log. All listeners of a session wait for each other,
        and a commit may take a minute: so a thread of its own does that."""
        progress = event.progress
        if self._query not in (progress.name, str(progress.id)):
            return
        with self._changed:
            self._query_id, self._is_over = str(progress.id), False
            self._give([source.endOffset for source in progress.sources])

    def _give(self, ends: list[str | None]) -> None:
        self._ends = self._newest = ends
        self._renewed = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """A program may end with its query: the last commit has a moment. A query that is started
        again gets another connection."""
        with self._changed:
            if str(event.id) == self._query_id:
                self._is_over = True
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._thread is None, LAST_S)

    def _work(self) -> None:
        commits = GroupCommits(self._settings, self._group)
        while (ends := self._next()) is not None:
            try:
                commits.commit(ends)
            except Exception as error:  # it must not end here: the next batch makes up for it
                log.warning(
                    "The progress of query '%s' was not committed into consumer group '%s': %s",
                    self._query,
                    self._group,
                    error,
                )
        commits.close()

    def _next(self) -> list[str | None] | None:
        """The newest batch's ends, when there are some; None: the query has ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._ends is not None or self._is_over)
            found, self._ends = self._ends, None
            if found is None:
                self._thread = None
                self._changed.notify_all()
            return found
