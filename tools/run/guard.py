"""The process between `eo-kafka run` and a driver, which it starts and outlives.

It leads the driver's session, so that all that the driver starts is found. Its standard input is a
pipe from the supervisor: one byte asks the driver to end, and its end says that the supervisor is
dead. A driver that nobody watches would be started a second time elsewhere, so it is ended then.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from .processes import await_empty, kill_all

LOOK_S = 0.1
AGAIN_S = 1.0  # from the first SIGTERM to the second
STOP_S = 20.0  # from SIGTERM to SIGKILL for a driver that nobody watches


def main(command: Sequence[str]) -> int:
    """Run the command to its end; its exit code, or 128 and the signal that ended it."""
    try:
        driver = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"eo-kafka run: {command[0]} cannot be started: {error.strerror}.", file=sys.stderr)
        return 127
    while driver.poll() is None:
        if not select.select([0], [], [], LOOK_S)[0]:
            continue
        if os.read(0, 1):
            driver.send_signal(signal.SIGTERM)
        else:
            _end_unwatched(driver)
    return driver.returncode if driver.returncode >= 0 else 128 - driver.returncode


def _end_unwatched(driver: subprocess.Popen[bytes]) -> None:
    """Asked first: what it has open is ended with it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # who read our stderr is dead
    deadline = time.monotonic() + STOP_S
    for _ in range(2):  # the second time a program of ours stops its query in the batch
        driver.send_signal(signal.SIGTERM)
        time.sleep(AGAIN_S)
    while driver.poll() is None and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    await_empty(os.getpid(), deadline - time.monotonic(), but=(os.getpid(),))
    kill_all(os.getpid(), but=(os.getpid(),))
    driver.wait()


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # It ends when the driver does. A handler, as the driver would inherit what is ignored.
        signal.signal(number, lambda *_: None)
    sys.exit(main(sys.argv[1:]))
