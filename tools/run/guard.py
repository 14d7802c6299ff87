"""The process between `eo-kafka run` and a driver, which it starts and outlives.

It leads the driver's session, so that all that the driver starts is found. Its standard input is a
pipe from the supervisor: a `T` asks the driver to end, an `A` says that the supervisor is alive,
and its end that it is dead. A driver that nobody watches would be started a second time elsewhere,
so it is ended then: also when a supervisor that says `A` has not been heard of for its lease.
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
LEASE_S = 10.0  # as long as a supervisor keeps its place without a word
STOP_S = 20.0  # from SIGTERM to SIGKILL for a driver that nobody watches
UNWATCHED = 119  # exit code: the driver was ended as its supervisor was not heard of


def main(lease_s: float, command: Sequence[str]) -> int:
    """Run the command to its end; its exit code, or 128 and the signal that ended it, or UNWATCHED.
    `lease_s`: 0 if the supervisor does not say that it is alive."""
    try:
        driver = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"eo-kafka run: {command[0]} cannot be started: {error.strerror}.", file=sys.stderr)
        return 127
    heard_s = time.monotonic()
    while driver.poll() is None:
        if not select.select([0], [], [], LOOK_S)[0]:
            if lease_s and time.monotonic() - heard_s > lease_s:
                _end_unwatched(driver)
                return UNWATCHED  # whatever it ended with: nobody asked it to
            continue
        heard_s = time.monotonic()
        said = os.read(0, 1)
        if said == b"T":
            driver.send_signal(signal.SIGTERM)
        elif not said:
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
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
