"""`eo-files` into a directory: invisible before the decision, whole after it, once, whoever is
killed or paused, for readers that honour the manifest and for plain ones."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eo_kafka.core.crash_points import OTHER_POINTS
from eo_kafka.errors import EnvironmentRefused, LedgerError, OptionsError, Undecided
from eo_kafka.targets import MarkerChanged
from eo_kafka.targets.files import folder
from eo_kafka.targets.files.manifest import OWN
from eo_kafka.targets.files.target import FilesTarget
from eo_kafka.tools import cli
from files_job import (
    FilesJob,
    files_job,
    honest_rows,
    leave_unpublished,
    plain_rows,
    settings_of,
    words,
)
from harness import committed
from table_job import driver, kill_at, overtaken

FULL = pytest.mark.full
POINTS = OTHER_POINTS["a batch that writes files"]
OF_TARGETS = ("target.while_staging", "S6.after_decision", "S7.in_target", "S8.after_done")
WRITER = "eo-a"


@pytest.fixture
def job(tmp_path, broker) -> FilesJob:
    return files_job(tmp_path, broker.bootstrap_servers)


@contextmanager
def watched(job: FilesJob) -> Iterator[list[Counter]]:
    """Both kinds of readers look all the time; what each saw is whole batches."""
    ended, seen = threading.Event(), []
    whole = [job.expected(n) for n in range(6)]

    def look() -> None:
        while not ended.wait(0.02):  # who writes needs the machine, too
            for found in (job.there(), job.plain()):
                seen.append(found)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield seen
    finally:
        ended.set()
        looking.join(60)
    for found in seen:
        parts = sum((batch for batch in whole if batch <= found), Counter())
        assert found == parts, "a part of a batch was seen"


def left(job: FilesJob) -> list[str]:
    """What nobody needs any more."""
    own = Path(job.database) / OWN
    known = ("manifest-", "published-")
    more = [name for name in os.listdir(own) if not name.startswith(known) or "new" in name]
    assert sorted(more) == ["publishing", "staged"]
    return [*os.listdir(own / "publishing"), *os.listdir(own / "staged")]


def test_a_batch_is_invisible_until_its_decision_and_then_whole(job):
    job.prepare(0)
    assert job.there() == job.plain() == Counter()
    assert len(job.left()) == 2
    job.commit(0)
    assert job.there() == job.plain() == job.expected(0)
    job.run(1, 2)
    job.run(2)  # again
    assert job.there() == job.plain() == job.expected(0, 1, 2)
    assert left(job) == []


@pytest.mark.parametrize("point", [*OF_TARGETS, *POINTS])
def test_a_driver_that_is_killed_leaves_each_batch_to_be_shown_once(job, crash_points, point):
    job.run(0)
    with watched(job) as seen:
        kill_at(job, crash_points, point, 1)
        if point in POINTS[1:]:  # decided for readers of the manifest, published or not
            assert job.there() == job.expected(0, 1)
        job.run(1, 2)
    assert seen
    assert job.there() == job.plain() == job.expected(0, 1, 2)
    assert left(job) == []


@pytest.mark.parametrize("point", ["S6.after_decision", "S7.before_target", *POINTS])
def test_a_driver_that_was_paused_changes_nothing_when_it_goes_on(job, crash_points, point):
    with watched(job):
        overtaken(job, crash_points, point)
        job.run(3)
    assert job.there() == job.plain() == job.expected(0, 1, 2, 3)
    assert left(job) == []


@pytest.mark.parametrize("point", POINTS)
def test_one_that_was_paused_for_longer_than_manifests_are_kept_changes_nothing(
    job, crash_points, point
):
    """The name of its manifest is free again, and somebody has removed old batches meanwhile."""
    job.run(0)
    crash_points.arm(point, "stop")
    with driver(job, 1) as process:
        assert crash_points.wait_reached(point) == process.pid
        job.run(*range(1, folder.KEEP + 3))
        batches = sorted(Path(job.database).glob("batch=*"))
        for old in batches[:-2]:
            shutil.rmtree(old)
        kept = job.expected(folder.KEEP + 1, folder.KEEP + 2)
        assert job.there() == kept
        os.kill(process.pid, signal.SIGCONT)
        _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "Fenced" in said
    assert job.there() == job.plain() == kept
    job.run(folder.KEEP + 3)
    assert job.there() == job.plain() == kept + job.expected(folder.KEEP + 3)
    assert left(job) == []


def test_a_late_manifest_in_a_gap_is_no_truth(tmp_path):
    """Its link succeeds, as the name is free again."""
    settings = settings_of(str(tmp_path / "t"))
    one, late = FilesTarget(settings), FilesTarget(settings)
    one.apply(WRITER, {}, None, b"0")
    late.stage("eo-a-late", 0, words(0))
    write, home = folder._write, Path(settings["path"]) / OWN

    def paused(path, data):
        write(path, data)
        folder._write = write
        for number in range(1, folder.KEEP + 3):
            one.stage(f"eo-a-{number}", 0, words(number))
            one.apply(WRITER, {f"eo-a-{number}": 1}, str(number - 1).encode(), b"%d" % number)
        assert path.exists() is False, "old manifests that were never linked are removed"
        write(path, data)  # as one that is not cleaned away

    folder._write = paused
    try:
        with pytest.raises(MarkerChanged):
            late.apply(WRITER, {"eo-a-late": 1}, b"0", b"1")
    finally:
        folder._write = write
    assert (home / "manifest-0000000002.json").exists(), "the case that this test is about"
    shown = sorted(honest_rows(settings["path"]))
    assert [row[0] for row in shown] == list(range(1, folder.KEEP + 3))
    assert sorted(plain_rows(settings["path"])) == shown
    number = folder.KEEP + 2
    one.apply(WRITER, {}, str(number).encode(), b"next")
    assert not (home / "manifest-0000000002.json").exists()
    assert len(list(home.glob("manifest-*"))) == folder.KEEP


def test_with_a_topic_both_have_one_decision(tmp_path, broker, make_topic, crash_points):
    topic = make_topic("out", partitions=2)
    job = files_job(tmp_path, broker.bootstrap_servers, topic=topic)
    job.run(0)
    kill_at(job, crash_points, "S6.after_decision", 1)
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    sent = Counter(word.encode() for _, word in job.sent(0, 1, 2).elements())
    assert committed(broker.bootstrap_servers, topic) == sent


@pytest.mark.parametrize("lost", ["before its decision", "after its decision"])
def test_staged_files_that_are_lost_are_written_again(job, crash_points, lost):
    job.run(0)
    if lost == "before its decision":
        job.prepare(1)
        job.read()[1].made().discard(job.left()[:1])
        with pytest.raises(Undecided, match="rows of partitions"):
            job.commit(1)
    else:
        kill_at(job, crash_points, "S6.after_decision", 1)
        job.read()[1].made().discard(job.left()[:1])
    job.run(1, 2)
    assert job.there() == job.plain() == job.expected(0, 1, 2)


def test_a_file_that_is_lost_between_manifest_and_publication_is_told(job, crash_points):
    job.run(0)
    kill_at(job, crash_points, "files.after_link", 1)
    gone = sorted((Path(job.database) / OWN / "staged").iterdir())[0]
    copy = gone.rename(Path(job.database).parent / gone.name)
    for _ in range(2):
        with pytest.raises(LedgerError, match=rf"1 of its files \({gone.name}; 50 rows\) were rem"):
            job.run(1)
    with pytest.raises(LedgerError, match="Bring them back"):
        job.there()
    assert job.plain() == job.expected(0)
    shutil.copy(copy, gone)
    job.run(1)
    assert job.there() == job.plain() == job.expected(0, 1)
    kill_at(job, crash_points, "files.after_link", 2)
    sorted((Path(job.database) / OWN / "staged").iterdir())[0].unlink()
    job.given["failOnDataLoss"] = "false"
    job.run(2, 3)
    assert job.plain() == job.there()
    assert (job.expected(0, 1, 2, 3) - job.there()).total() == 50


def test_a_directory_that_was_restored_or_whose_manifests_went_stops_the_job(job, tmp_path):
    job.run(0)
    shutil.copytree(job.database, tmp_path / "copy")
    job.run(1, 2)
    newest = max(Path(job.database).glob(f"{OWN}/manifest-*"))
    held = newest.rename(tmp_path / newest.name)
    with pytest.raises(LedgerError, match=r"shows batch 1 .* the ledger has batch 2"):
        job.prepare(3)
    job.given["failOnDataLoss"] = "false"
    with pytest.raises(LedgerError, match="Restore all of it from one copy"):
        job.run(3)
    held.rename(newest)
    del job.given["failOnDataLoss"]
    shutil.rmtree(job.database)
    shutil.copytree(tmp_path / "copy", job.database)
    with pytest.raises(LedgerError, match=r"shows batch 0 .* the ledger has batch 2"):
        job.run(3)
    job.given["failOnDataLoss"] = "false"
    job.run(3)
    assert job.there() == job.plain() == job.expected(0, 3)


def test_old_batches_may_be_removed_also_the_newest(job):
    job.run(0, 1)
    for batch in Path(job.database).glob("batch=*"):
        shutil.rmtree(batch)
    assert job.there() == Counter()
    job.run(2)
    assert job.there() == job.plain() == job.expected(2)


def test_another_job_publishes_what_one_left_before_it_goes_on(tmp_path):
    settings = settings_of(str(tmp_path / "t"))
    one = FilesTarget(settings)
    one.apply("eo-a", {}, None, b"0")
    leave_unpublished(one)
    assert plain_rows(settings["path"]) == []
    FilesTarget(settings).apply("eo-b", {}, None, b"1")
    assert [row[0] for row in plain_rows(settings["path"])] == [7]
    assert plain_rows(settings["path"]) == honest_rows(settings["path"])


def test_another_job_has_a_marker_of_its_own(job):
    job.run(0, 1)
    job.given["jobName"] += "-2"
    job.run(0, 1)
    assert job.there() == job.plain() == job.expected(0, 1, 0, 1)


def test_a_directory_with_files_of_somebody_else_is_refused(job):
    place = Path(job.database)
    (place / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(EnvironmentRefused, match="Spark's own file sink"):
        job.run(0)
    (place / "_spark_metadata").rmdir()
    (place / "part-0.parquet").touch()
    with pytest.raises(EnvironmentRefused, match=r"not empty \(part-0.parquet\)"):
        job.run(0)
    (place / "part-0.parquet").unlink()
    job.run(0)
    assert job.there() == job.expected(0)


def test_a_full_disk_loses_nothing(tmp_path, broker, request):
    place = tmp_path / "small"
    place.mkdir()
    if os.system(f"mount -t tmpfs -o size=256k none {place} 2>/dev/null"):
        pytest.skip("a file system cannot be mounted here")
    request.addfinalizer(lambda: os.system(f"umount -l {place}"))
    job = files_job(place, broker.bootstrap_servers)
    job.run(0)
    filler = place / "filler"
    with pytest.raises(OSError) as full, filler.open("wb") as file:
        while True:
            file.write(bytes(1024))
            file.flush()
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(Exception, match="No space left on device"):
        job.run(1)
    assert job.there() == job.plain() == job.expected(0)
    filler.unlink()
    job.run(1, 2)
    assert job.there() == job.plain() == job.expected(0, 1, 2)
    assert left(job) == []


def test_an_executor_that_does_not_see_the_directory_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="Mount the same one everywhere"):
        FilesTarget({"path": str(tmp_path / "elsewhere")}).stage("eo-a-1", 0, words(1))
    assert not (tmp_path / "elsewhere").exists()


def test_columns_may_be_added_and_keep_their_types(job):
    job.run(0)
    schema = job.read()[1].settings["schema"]
    options, target = job.read()
    other = schema.replace('"long"', '"integer"')
    with pytest.raises(OptionsError, match="'id' of the rows is integer, and long in the files"):
        FilesTarget({**target.settings, "schema": other}).check()
    with pytest.raises(OptionsError, match="'ID' of the rows is 'id' in the files"):
        FilesTarget({**target.settings, "schema": schema.replace('"id"', '"ID"')}).check()
    assert options.target == f"directory {job.database}"


def test_a_command_finishes_what_is_decided(job, crash_points, tmp_path):
    job.run(0)
    kill_at(job, crash_points, "S6.after_decision", 1)
    config = tmp_path / "config"
    config.write_text(f"path={job.database}\n")
    name, _ = job.options.job_and_ledger
    servers = ("--bootstrap-servers", job.given["kafka.bootstrap.servers"])
    assert cli.main(["job", "reset", name, *servers]) != 0  # it does not know where
    assert job.there() == job.expected(0)
    assert cli.main(["job", "reset", name, *servers, "--table-config", str(config)]) == 0
    assert job.there() == job.plain() == job.expected(0, 1)
    job.run(0)  # of a new query
    assert job.there() == job.plain() == job.expected(0, 1, 0)
