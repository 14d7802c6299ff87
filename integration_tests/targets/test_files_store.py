"""`eo-files` into a real object store, reached as S3: as into a directory, but for readers that do
not honour the manifest, which may see a batch in part while it is published."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import obstore
import pyarrow as pa
import pytest

from eo_kafka.errors import EnvironmentRefused, LedgerError
from eo_kafka.targets.files import bucket
from eo_kafka.targets.files.bucket import Bucket
from eo_kafka.targets.files.manifest import successor
from eo_kafka.targets.files.target import FilesTarget
from eo_kafka.testing import check_target
from files_job import (
    REFERENCE,
    FilesJob,
    files_job,
    honest_rows,
    leave_unpublished,
    settings_of,
    words,
)
from object_store import ADMIN, BUCKET, GUARDED, SECRET, USER, ObjectStore, object_store
from table_job import driver, kill_at, overtaken

FULL = pytest.mark.full
POINTS = ("files.before_link", "files.after_link", "files.while_publishing", "files.before_rename")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as found:
        yield found


@pytest.fixture
def url(store, monkeypatch) -> str:
    for name, value in store.environment().items():
        monkeypatch.setenv(name, value)
    bucket._store.cache_clear()
    return f"s3://{BUCKET}/some where/{uuid.uuid4()}"


@pytest.fixture
def job(url, broker, tmp_path) -> FilesJob:
    found = files_job(tmp_path, broker.bootstrap_servers)
    found.given["path"] = found.database = url
    return found


def keys(url: str) -> Counter[str]:
    """How many objects of each kind."""
    return Counter(key.split("/")[1].split("-")[0] for key in Bucket(url)._keys("_eo_files"))


@pytest.mark.timeout(300)
def test_it_keeps_its_promises(url):
    def rows(number: int) -> pa.Table:
        return words(*[number * 100 + n for n in range(20)])

    check_target(REFERENCE, settings_of(url), rows, lambda: honest_rows(url), kills=6)


@pytest.mark.parametrize("point", [*POINTS, pytest.param("files.after_rename", marks=FULL)])
def test_a_driver_that_is_killed_leaves_each_batch_to_be_shown_once(job, crash_points, point):
    job.run(0)
    kill_at(job, crash_points, point, 1)
    assert job.there() == job.expected(*(0, 1)[: 1 if point == POINTS[0] else 2])
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    assert keys(job.database) == {"manifest.json": 1, "published": 1}


@pytest.mark.parametrize("point", [*POINTS, pytest.param("files.after_rename", marks=FULL)])
def test_a_driver_that_was_paused_changes_nothing_when_it_goes_on(job, crash_points, point):
    overtaken(job, crash_points, point)
    job.run(3)
    assert job.there() == job.expected(0, 1, 2, 3)
    assert keys(job.database) == {"manifest.json": 1, "published": 1}


def test_a_paused_driver_puts_nothing_back_that_was_removed_since(job, crash_points):
    """Of its batch, which others have published."""

    job.run(0)
    crash_points.arm("files.while_publishing", "stop")
    with driver(job, 1) as process:
        assert crash_points.wait_reached("files.while_publishing") == process.pid
        job.run(1, 2)
        there = Bucket(job.database)
        obstore.delete(there._store, [one for one in there._keys() if one.startswith("batch=")])
        os.kill(process.pid, signal.SIGCONT)
        _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "Fenced" in said
    assert job.there() == Counter()
    job.run(3)
    assert job.there() == job.expected(3)


def test_another_job_publishes_what_one_left_before_it_goes_on(url):
    one = FilesTarget(settings_of(url))
    one.apply("eo-a", {}, None, b"0")
    leave_unpublished(one)
    FilesTarget(settings_of(url)).apply("eo-b", {}, None, b"1")
    assert [row[0] for row in honest_rows(url)] == [7]


def test_a_late_driver_never_takes_the_place_of_a_newer_one(url):
    settings = settings_of(url)
    late, others = FilesTarget(settings), FilesTarget(settings)
    others.apply("eo-a", {}, None, b"0")
    seen = late._home.newest()
    assert seen is not None
    for number in range(20):
        others.apply("eo-a", {}, b"%d" % number, b"%d" % (number + 1))
    for _ in range(2):
        assert late._home.create(seen, seen, "eo-a") is False
    assert others.marker("eo-a") == b"20"


def test_of_many_at_once_one_writes(url):
    settings = settings_of(url)
    homes = [FilesTarget(settings)._home for _ in range(8)]
    FilesTarget(settings).apply("eo-a", {}, None, b"0")
    read = [home.newest() for home in homes]
    with ThreadPoolExecutor(8) as pool:
        won = list(
            pool.map(
                lambda n: homes[n].create(
                    successor(read[n], "eo-a", b"%d" % n, "", ()), read[n], "eo-a"
                ),
                range(8),
            )
        )
    assert won.count(True) == 1
    newest = homes[0].newest()
    assert newest is not None
    assert newest.marker("eo-a") == b"%d" % won.index(True)


def test_a_manifest_that_was_restored_without_the_batches_is_told(job):
    job.run(0)
    there = Bucket(job.database)
    older = bytes(obstore.get(there._store, "_eo_files/manifest.json").bytes())
    job.run(1)
    obstore.put(there._store, "_eo_files/manifest.json", older)
    job.given["failOnDataLoss"] = "false"
    with pytest.raises(LedgerError, match="Restore all of it from one copy"):
        job.run(2)


def test_what_is_no_empty_prefix_is_refused_and_no_secret_is_told(url, monkeypatch):
    there = Bucket(url)
    obstore.put(there._store, "part-0.parquet", b"x")
    with pytest.raises(EnvironmentRefused, match="is not empty") as told:
        settings_of(url)
    assert SECRET not in str(told.value)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    bucket._store.cache_clear()
    with pytest.raises(Exception, match="Forbidden|Denied|SignatureDoesNotMatch") as told:
        settings_of(url)
    assert ADMIN not in str(told.value)
    bucket._store.cache_clear()


def test_the_object_of_an_empty_folder_is_nothing_foreign(url, monkeypatch):
    """A console that makes a folder puts an object of its name there, which has none below it."""
    monkeypatch.setattr(Bucket, "_keys", lambda *_: {"": 0})
    assert Bucket(url).check() is None


def test_who_may_list_read_write_and_delete_there_can_write_there(url, store, monkeypatch):
    for name, value in store.environment(USER, SECRET).items():
        monkeypatch.setenv(name, value)
    bucket._store.cache_clear()
    target = FilesTarget(settings_of(f"s3://{BUCKET}/{GUARDED}/{uuid.uuid4()}"))
    target.stage("eo-a-1", 0, words(1))
    target.apply("eo-a", {"eo-a-1": 1}, None, b"1")
    assert target.marker("eo-a") == b"1"
    with pytest.raises(Exception, match="403|Denied"):
        settings_of(url)
    bucket._store.cache_clear()


def test_a_store_that_honours_no_conditions_is_refused(url, monkeypatch):
    """One that overwrites whatever it is asked; no such server is here."""
    put = obstore.put

    def overwrites(*given, mode=None, **more):
        return put(*given, **more)

    monkeypatch.setattr(obstore, "put", overwrites)
    with pytest.raises(EnvironmentRefused, match="does not honour conditional writes"):
        settings_of(url)


SPARK = """
import sys
from pyspark.sql import SparkSession

url, servers = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(1000).selectExpr("id", "string(id) word")
given = {"jobName": url[-36:], "batchId": "1", "kafka.bootstrap.servers": servers}
for _ in range(2):
    rows.write.format("eo-files").mode("append").options(**given).save(url)
found = spark.read.format("eo-files").load(url.replace("s3://", "s3a://"))
assert sorted(found.collect()) == sorted(rows.collect())
"""


def test_spark_writes_and_reads_it(url, broker, monkeypatch):
    """In a driver of its own, as executors take the variables from its environment."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    words = [sys.executable, "-c", SPARK, url, broker.bootstrap_servers]
    done = subprocess.run(words, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(honest_rows(url)) == 1000
