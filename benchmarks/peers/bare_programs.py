"""The programs in C over the librdkafka that confluent-kafka brings: built here, and run."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.environments import PeerMissing
from benchmarks.queries import WrongResult


@contextmanager
def built(name: str) -> Iterator[Path]:
    """The program of `name`.c, made with this machine's C compiler. Raises PeerMissing."""
    from eo_kafka.core import librdkafka

    library = librdkafka.library()._name
    with tempfile.TemporaryDirectory(prefix="eo-kafka-bench-bare-") as folder:
        program = Path(folder, name)
        # what the library itself needs lies beside it, and is found when it is loaded
        link = [library, f"-Wl,-rpath,{Path(library).parent}", "-Wl,--allow-shlib-undefined"]
        source = str(Path(__file__).with_name(f"{name}.c"))
        command = ["cc", "-O2", "-pthread", "-o", str(program), source, *link]
        try:
            made = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise PeerMissing(f"{name} is a C program: install a compiler, cc.") from None
        if made.returncode:
            raise PeerMissing(f"{name} could not be built: {made.stderr.strip()[-800:]}")
        yield program


def ran(command: Sequence[str], timeout_s: float) -> str:
    """What a program printed. Raises WrongResult."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise WrongResult(f"{name} was not done within {timeout_s} s.") from None
    if done.returncode:
        raise WrongResult(f"{name} failed: {done.stderr.strip()[-800:]}")
    return done.stdout
