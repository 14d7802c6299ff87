"""What S1 tells the process beside the driver holds passwords; the folder may be open to all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import psutil
import pytest

from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import after_driver

OPTIONS = SinkOptions.parse(
    {
        "kafka.bootstrap.servers": "nowhere:1",
        "kafka.sasl.password": "hunter2",
        "kafka.sasl.username": "me",
        "topic": "t",
        "jobName": "j",
    },
    streaming=True,
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a pipe that is another user's")
def test_a_pipe_of_another_user_is_told_nothing(tmp_path: Path) -> None:
    pipe = tmp_path / "eo-kafka.pipe"
    os.mkfifo(pipe, 0o666)
    os.chown(pipe, 4711, -1)
    strangers = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    before = set(psutil.Process().children())
    after_driver.tell(str(tmp_path), "a job", OPTIONS, 1)
    (told,) = set(psutil.Process().children()) - before
    told.kill()
    told.wait()
    assert os.read(strangers, 4096) == b""
    assert (pipe.stat().st_uid, stat.S_IMODE(pipe.stat().st_mode)) == (0, 0o600)


def test_a_file_in_its_place_is_told_nothing(tmp_path: Path) -> None:
    file = tmp_path / "eo-kafka.pipe"
    file.touch(0o666)
    after_driver.tell(str(tmp_path), "a job", OPTIONS, None)
    assert file.read_bytes() == b""
