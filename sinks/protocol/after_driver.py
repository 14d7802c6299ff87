"""A process beside the driver that ends a batch's transactions if Spark is shut down in it.

That is, by SIGTERM or `spark.stop()`.

Spark does call `abort()` then, but kills the process that is to run it while it starts: Python
workers do not outlive Spark's shutdown, which waits for none. So S1 leaves one process for all jobs
of a driver, which sleeps until the driver's local directory is gone (Spark's shutdown removes it; a
driver that was killed leaves it there) and does what `abort()` would have done. It knows of the
jobs that are in a batch, and of no other, and holds no connection.
"""

from __future__ import annotations

import json
import os
import select
import stat
import struct
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..options import SinkOptions

WAIT_S = 30.0  # from the end of the driver's Python daemon to that of its local directory
_PIPE = "eo-kafka.pipe"
_HEAD = struct.Struct("=16sI")  # whose, and how many bytes follow; 0: it is in no batch any more


def tell(directory: str, whose: str, options: SinkOptions, generation: int | None) -> None:
    """S1 took `generation` for a batch; None: the batch has ended. Driver; cheap. Best effort: the
    next start, or the timeout, ends what this would have ended."""
    body = b"" if generation is None else _encode(options, generation)
    message = _HEAD.pack(whose.encode()[:16], len(body)) + body
    path = Path(directory, _PIPE)
    with suppress(OSError, ImportError), Path(directory, "eo-kafka.lock").open("w") as lock:
        import fcntl  # not on Windows

        fcntl.flock(lock, fcntl.LOCK_EX)
        pipe = _pipe(path, start=generation is not None)
        if pipe is None:
            return
        try:
            if os.write(pipe, message) < len(message):
                path.unlink()  # whoever reads is stuck: the next S1 starts another one
        finally:
            os.close(pipe)


def _encode(options: SinkOptions, generation: int) -> bytes:
    told = {field.name: getattr(options, field.name) for field in fields(options)}
    # Nothing that is staged is asked for, and no topic is made.
    told |= {"kafka": dict(options.kafka), "staging": None, "new_topics": None}
    return json.dumps([told, generation]).encode()


def _decode(body: bytes) -> tuple[SinkOptions, int]:
    from ...core.options import KafkaSettings
    from ..options import SinkOptions

    told, generation = json.loads(body)
    return SinkOptions(**{**told, "kafka": KafkaSettings(told["kafka"])}), generation


def _pipe(path: Path, *, start: bool) -> int | None:
    with suppress(OSError):  # nobody reads, or it is not there
        return _ours(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    if not start:
        return None
    path.unlink(missing_ok=True)
    os.mkfifo(path, 0o600)  # what the options hold is told to nobody else
    pipe = _ours(os.open(path, os.O_RDWR))  # kept open by who reads: it never ends
    command = [sys.executable, "-m", __name__, str(os.getppid()), str(path.parent)]
    nothing = subprocess.DEVNULL
    # Where we came by `--py-files`, only this process's path leads to us.
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.Popen(command, stdin=pipe, stdout=nothing, stderr=nothing, env=found)
    return pipe


def _ours(pipe: int) -> int:
    """Raises OSError if a stranger has put something else in its place: after `umask 000`, all may
    write in the driver's directory, and what is told holds passwords."""
    about = os.fstat(pipe)
    if about.st_uid == os.geteuid() and stat.S_ISFIFO(about.st_mode):
        return pipe
    os.close(pipe)
    raise PermissionError("not a pipe of ours")


class _Jobs:
    """The jobs that are in a batch, as they were told."""

    def __init__(self) -> None:
        self._rest = b""
        self.found: dict[bytes, bytes] = {}

    def read(self, timeout_s: float) -> None:
        """Take in what was told by now, or until something is."""
        if not select.select([0], [], [], timeout_s)[0]:
            return
        self._rest += os.read(0, 1 << 16)
        while len(self._rest) >= _HEAD.size:
            whose, size = _HEAD.unpack_from(self._rest)
            end = _HEAD.size + size
            if len(self._rest) < end:
                return
            self.found[whose] = self._rest[_HEAD.size : end]
            self._rest = self._rest[end:]


def _is_alive(pid: int) -> bool:
    """A process that nobody has asked for its exit code has ended."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except FileNotFoundError:
        return sys.platform != "linux"
    except OSError:
        return False


def _is_told(directory: Path) -> bool:
    """Whether the driver still speaks to this process: where it could not, it started another."""
    try:
        return os.path.samestat(os.stat(directory / _PIPE), os.fstat(0))
    except OSError:
        return True  # Spark is shutting down, and removes the directory file by file


def main(daemon: int, directory: Path) -> None:
    """Wait for the end of a driver, and end what its jobs have open."""
    # What ends the driver's Python workers is sent to their group, and Ctrl-C to the terminal's.
    os.setpgid(0, 0)
    jobs = _Jobs()
    while _is_alive(daemon):
        if not _is_told(directory):
            return
        jobs.read(0.25)
    deadline = time.monotonic() + WAIT_S
    while directory.exists() and time.monotonic() < deadline:
        jobs.read(0.05)
    jobs.read(0.0)  # the last words, as many as a pipe holds
    if directory.exists():
        return  # the driver goes on, or it was killed, and may be cut off from what it decided
    from . import committer

    for told in jobs.found.values():
        if told:
            with suppress(Exception):
                options, generation = _decode(told)
                committer.abort(options, [], generation)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
