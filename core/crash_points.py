"""Named places in the code where a test makes a process die, stop or fail.

A crash point costs one comparison unless the environment variable `EO_KAFKA_CRASH_POINTS` names a
folder when the process starts. There a test arms a point by writing a file with the point's name
and an action in it; the first process to reach the point takes the file away and acts:

    kill            SIGKILL this process
    kill-driver     SIGKILL the driver's JVM above this process, if any, then this process
    stop            SIGSTOP this process (the test continues it)
    raise           raise CrashPointReached
    raise-always    the same, in each process: nobody takes the file away
    wait            go on once the file `<name>.go` exists

`reached` files (`<name>.reached`, holding the process id) tell the test that it happened.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

FOLDER = os.environ.get("EO_KAFKA_CRASH_POINTS")

# Each batch of a stream that reads and writes topics comes past these, in this order, if it is
# `exactly-once` by `commit=two-phase`: the defaults. (The first one: only a query's first batch.)
STREAM_POINTS = (
    "source.after_initial_resolution",  # start resolved, nothing in Spark's offset log yet
    "source.before_partitions",  # the offset log holds the batch, no row is read
    "S1.after_fence",
    "S1.after_generation",
    "S2.before_init",  # nobody had taken over a moment ago; the id is not taken yet
    "S2.after_init",
    "S3.while_writing",  # rows are on their way, not flushed
    "S4.after_token",
    "S5.after_flush",  # everything of the task is with the broker
    "S5.prepared",  # the message is about to be returned
    "S6.before_fence",  # the reports are there; nobody was asked whether this driver still may
    "S6.before_decision",
    "S6.after_decision",  # decided; no EndTxn sent
    "S7.after_first_end_txn",
    "S7.after_last_end_txn",
    "S8.after_done",  # commit() is about to return; Spark's commit log is not written
)
# What only some jobs come past, by what such a job does.
OTHER_POINTS = {
    "a batch with commit=idempotent": ("one-phase.committed",),  # its message is not returned yet
    "a batch that fails before its decision": ("abort.before_end_txn",),
    "a batch with snapshots=true": ("S6.snapshot_taken",),  # nothing of it is decided
    "a batch whose snapshot is too large for one transaction": (
        "S6.while_sending_ahead",  # some of its files are in the state topic
    ),
    "a start with a new checkpoint and onReset": (
        "reset.before_write",  # what the query before left is settled; the ledger is still its
        "reset.after_write",  # the ledger is the new query's; no task of it has run
    ),
    "a start that restores a snapshot": (
        "restore.while_writing",  # a part of the checkpoint's files is there
    ),
    "a batch that reads a map": (
        "source.while_reading_map",  # a task has handed out some of its rows
    ),
    "a batch that joins a map by eo_kafka.SideInput": (
        "side-input.before_pin",  # a version of the entries is kept; no batch uses it
    ),
    "a batch that puts rows into a map": (
        "map.before_put",  # the task may write into the map: nobody newer had a moment ago
        "map.after_put",  # some of its rows are in the map
        "map.committed",  # the members remember the batch; Spark's commit log is not written
    ),
    "a batch that writes a map with commit=two-phase": (
        "map.while_staging",  # some of a task's chunks are on their way
        "S7.lanes_taken",  # older drivers are shut out; nothing more is applied yet
        "S7.in_chunk",  # a transaction of a map's members has its rows, and is not committed
        "S7.after_chunk",
        "S7.applied",  # all staged rows are in their map
    ),
    "a batch whose queue has messages": (
        "queue.received",  # they are in the driver's memory, and nothing of them is in Kafka
        "queue.before_commit",  # their transaction has them, and is not committed
        "queue.after_commit",  # they are in the inbox, and not acknowledged
        "queue.after_acknowledgement",  # they are out of the queue; no batch is planned with them
    ),
    "a batch that writes a table": (
        "postgres.while_staging",  # some of a task's rows are on their way
        "S7.in_table",  # the transaction has rows and marker, and is not committed
    ),
    "a batch that writes a table with commit=two-phase": (
        "postgres.before_prepare",  # a task's transaction has its rows and their mark
        "postgres.prepared",  # it is prepared; nobody else knows
        "S7.in_commits",  # of the decided transactions the first is committed
    ),
    "a batch that writes a target of one's own": (
        "target.while_staging",  # some of a task's chunks are staged
        "S7.before_target",  # it is decided, and nothing of it is shown
        "S7.in_target",  # the target shows it, and nobody knows
    ),
    "a batch that writes files": (  # beside those of a target of one's own
        "files.before_link",  # its manifest is written, under another name
        "files.after_link",  # it is shown to readers that honour the manifest
        "files.while_publishing",  # a file has moved on; the next one has not
        "files.before_rename",  # all are in one folder, which plain readers do not see
        "files.after_rename",  # they see it, and nobody knows
    ),
}
POINTS = frozenset({*STREAM_POINTS}.union(*OTHER_POINTS.values()))


class CrashPointReached(Exception):
    """What the action `raise` raises."""


def crash_point(name: str) -> None:
    """Act if a test armed `name`; otherwise do nothing."""
    if FOLDER is not None:
        _act(Path(FOLDER), name)


def armed(name: str) -> bool:
    """Whether a test waits for `name`: then requests that go out together go one by one."""
    return FOLDER is not None and (Path(FOLDER) / name).exists()


def _act(folder: Path, name: str) -> None:
    if name not in POINTS:
        raise ValueError(f"'{name}' is not a crash point; see eo_kafka.core.crash_points.POINTS")
    mine = folder / f"{name}.{os.getpid()}.taken"
    try:
        if (folder / name).read_text().strip() == "raise-always":
            raise CrashPointReached(name)
        (folder / name).rename(mine)  # atomic: of several processes, one takes it
    except FileNotFoundError:
        return
    action = mine.read_text().strip()
    (folder / f"{name}.reached").write_text(str(os.getpid()))
    if action == "raise":
        raise CrashPointReached(name)
    if action == "wait":
        while not (folder / f"{name}.go").exists():
            time.sleep(0.02)
    elif action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif action in ("kill", "kill-driver"):
        if action == "kill-driver" and (java := _java_above(os.getpid())):
            os.kill(java, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        raise ValueError(f"'{action}' is not an action of a crash point")


def _java_above(pid: int) -> int | None:
    """The nearest ancestor that is a JVM (Linux only, as the tests are); None in the Python process
    that started the JVM, whose end is the driver's."""
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        if status.splitlines()[0].split("\t")[1] == "java":
            return pid
        pid = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("PPid:"))
    return None
