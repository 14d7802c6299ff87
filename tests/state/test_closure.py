"""Which files a restart needs: on the listings of real checkpoints, against a naive simulation of
how Spark loads a version, and where something is missing."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eo_kafka.state.snapshots.closure import Incomplete, needed, tables

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoints"
REAL_ZIP = (GOLDEN / "rocks-15.zip").read_bytes()  # as Spark 4.3 wrote it
KINDS = ("hdfs", "rocks", "rocks-cl", "rocks-v2")
BATCHES = range(16)
SCHEMA = {"state/0/_metadata/metadata", "state/0/0/_metadata/schema"}
STORES = [f"state/0/{number}" for number in (0, 1)]


def packed(names: Iterable[str], logs: Iterable[str] | None = None) -> bytes:
    """A RocksDB zip as far as we read it."""
    fields: dict[str, object] = {"sstFiles": [{"dfsSstFileName": name} for name in names]}
    if logs is not None:
        fields["logFiles"] = [{"dfsLogFileName": name} for name in logs]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("CURRENT", "MANIFEST-000005\n")
        archive.writestr("metadata", "v1\n" + json.dumps(fields))
    return stream.getvalue()


def commit(*ids: str) -> bytes:
    """One of checkpoint format 2, as Spark 4.3 writes it: a list of stores for each partition."""
    partitions = {"0": [[one] for one in ids]}
    fields = {"nextBatchWatermarkMs": 0, **({"stateUniqueIds": partitions} if ids else {})}
    return b"v2\n" + json.dumps(fields, separators=(",", ":")).encode()


class Listing:
    """The paths of a real checkpoint, and the tables that its zips name."""

    def __init__(self, kind: str) -> None:
        self.paths = (GOLDEN / f"{kind}.txt").read_text().split()
        named = GOLDEN / f"{kind}.tables.json"
        self.tables: dict[str, list[str]] = json.loads(named.read_text()) if named.exists() else {}

    def read(self, path: str) -> bytes:
        if path.startswith("commits/"):
            written = int(path.rpartition("/")[2]) + 1
            named = re.findall(rf" state/0/[01]/{written}_(\S+)\.changelog ", " ".join(self.paths))
            return commit(*named)
        return packed(self.tables[path])

    def tables_of(self, path: str) -> set[str]:
        return {f"{path.rpartition('/')[0]}/SSTs/{name}" for name in self.tables[path]}


def logs(batch: int) -> set[str]:
    before = {f"offsets/{batch - 1}", f"commits/{batch - 1}"} if batch else set()
    return {"metadata", f"offsets/{batch}", *before}


def hdfs_state(listing: Listing, batch: int) -> set[str]:
    full = 11 if batch >= 11 else 0
    deltas = {f"{store}/{at}.delta" for store in STORES for at in range(full + 1, batch + 1)}
    return deltas | ({f"{store}/11.snapshot" for store in STORES} if full else set())


def rocks_state(listing: Listing, batch: int) -> set[str]:
    zips = {f"{store}/{batch}.zip" for store in STORES} if batch else set()
    return zips.union(*(listing.tables_of(path) for path in zips))


def changelog_state(listing: Listing, batch: int) -> set[str]:
    full = 10 if batch >= 10 else 0
    steps = {f"{store}/{at}.changelog" for store in STORES for at in range(full + 1, batch + 1)}
    zips = {f"{store}/10.zip" for store in STORES} if full else set()
    return steps.union(zips, *(listing.tables_of(path) for path in zips))


def state_with_ids(listing: Listing, batch: int) -> set[str]:
    full = 10 if batch >= 10 else 0
    files = re.compile(rf"state/0/[01]/(?:{full}_\S+\.zip|(\d+)_\S+\.changelog)(\.crc)?")
    parsed = filter(None, map(files.fullmatch, listing.paths))
    found = {one[0] for one in parsed if one[1] is None or full < int(one[1]) <= batch}
    zips = [path for path in found if path.endswith(".zip")]
    return found.union(*(listing.tables_of(path) for path in zips))


STATE: dict[str, Callable[[Listing, int], set[str]]] = {
    "hdfs": hdfs_state,
    "rocks": rocks_state,
    "rocks-cl": changelog_state,
    "rocks-v2": state_with_ids,
}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_real_checkpoint(kind: str, batch: int) -> None:
    listing = Listing(kind)

    found = needed(listing.paths, batch, listing.read)

    assert set(found) == logs(batch) | SCHEMA | STATE[kind](listing, batch)
    assert found == sorted(set(found))


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_spark_has_not_begun_is_incomplete(kind: str) -> None:
    listing = Listing(kind)

    with pytest.raises(Incomplete):
        needed(listing.paths, 16, listing.read)


@pytest.mark.parametrize("kind", KINDS)
def test_a_commit_that_is_missing_matters_where_it_says_which_files_count(kind: str) -> None:
    """Spark goes on without it, with a warning, from the newest one there is or without any."""
    listing = Listing(kind)
    rest = set(listing.paths) - {"commits/14"}
    if kind == "rocks-v2":
        with pytest.raises(Incomplete, match="commits/14 is not there"):
            needed(rest, 15, listing.read)
        return
    whole = set(needed(listing.paths, 15, listing.read))
    assert set(needed(rest, 15, listing.read)) == whole - {"commits/14"} | {"commits/13"}
    none = {path for path in rest if not path.startswith("commits/")}
    assert set(needed(none, 15, listing.read)) == whole - {"commits/14"}


@pytest.mark.parametrize("batch", [1, 5, 13, 15])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_file_that_it_needs_it_is_incomplete_and_names_it(kind: str, batch: int) -> None:
    listing = Listing(kind)
    # Spark writes a schema again that is not there.
    for path in set(needed(listing.paths, batch, listing.read)) - SCHEMA:
        rest = set(listing.paths) - {path}
        folder, _, name = path.rpartition("/")
        version = re.match(r"\d+", name)
        if kind != "rocks-v2" and path == f"commits/{batch - 1}":
            continue  # see the next test
        if path.endswith(".crc") or can_be_missed(path, rest):
            assert path not in needed(rest, batch, listing.read)
            continue
        with pytest.raises(Incomplete) as missing:
            needed(rest, batch, listing.read)
        assert (f"{folder} has no version {version and version[0]}," in str(missing.value)) or (
            f"{path} is not there" in str(missing.value)
        )


def can_be_missed(path: str, rest: set[str]) -> bool:
    """Whether the batch can be had from other files of `rest`: with its steps a full file can be
    missed."""
    folder, _, name = path.rpartition("/")
    stem, _, kind = name.rpartition(".")
    other = {"snapshot": "delta", "zip": "changelog", "changelog": "zip"}.get(kind)
    return f"{folder}/{stem}.{other}" in rest


SOME = {"metadata", "offsets/2", "offsets/1", "commits/1", "offsets/0", "commits/0"}
JOIN = ("left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues")


def no_zip(path: str) -> bytes:
    raise AssertionError(f"{path} was read")


def test_a_joins_stores_are_looked_at_one_by_one() -> None:
    state = {
        f"state/0/{number}/{store}/{at}.delta"
        for number in (0, 1)
        for store in JOIN
        for at in (1, 2, 3)
    }
    lagging = {f"state/0/1/{JOIN[1]}/{name}" for name in ("1.snapshot", "2.snapshot")}

    found = needed(SOME | state | lagging, 2, no_zip)

    later = {path for path in state if path.endswith("3.delta")}
    replaced = {f"state/0/1/{JOIN[1]}/{name}" for name in ("1.delta", "2.delta", "1.snapshot")}
    assert set(found) == (SOME - {"offsets/0", "commits/0"}) | (state - later - replaced) | {
        f"state/0/1/{JOIN[1]}/2.snapshot"
    }


def test_operators_are_looked_at_one_by_one() -> None:
    hdfs = {f"state/0/0/{at}.delta" for at in (1, 2)}
    rocks = {"state/1/0/2.zip", "state/1/0/SSTs/a.sst", "state/1/0/logs/b.log"}
    left = {"state/1/0/1.zip", "state/1/0/SSTs/old.sst", "state/1/0/logs/old.log"}

    found = needed(SOME | hdfs | rocks | left, 2, lambda _: packed(["a.sst"], ["b.log"]))

    assert set(found) == (SOME - {"offsets/0", "commits/0"}) | hdfs | rocks


def test_what_is_neither_log_nor_versioned_state_belongs_to_every_batch() -> None:
    others = {
        "sources/0/0",
        "sources/0/1",
        "state/0/_metadata/metadata",
        "state/0/_metadata/v2/0",
        "state/0/_stateSchema/default/0_5f2e",
        "state/0/0/_metadata/schema",
        "state/0/0/left-keyToNumValues/_metadata/schema",
    }

    assert others < set(needed(SOME | others, 2, no_zip))


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ({"state/0/1/a/1.delta"}, "state/0/1/a is not there"),
        ({f"state/0/1/{store}/1.delta" for store in "ab"}, "state/0/1/"),
    ],
)
def test_a_store_that_a_listing_passed_over_is_missed(missing: set[str], named: str) -> None:
    stores = {f"state/0/{number}/{store}/1.delta" for number in (0, 1, 2) for store in "ab"}
    assert stores < set(needed(SOME | stores, 1, no_zip))

    with pytest.raises(Incomplete, match=named):
        needed((SOME | stores) - missing, 1, no_zip)


def test_before_the_first_batch_is_committed_no_store_is_missed() -> None:
    half_written = {"state/0/2/1.delta"}

    assert set(needed(SOME | half_written, 0, no_zip)) == {"metadata", "offsets/0"}


@pytest.mark.parametrize("kind", ["snapshot", "zip"])
def test_a_checksum_without_its_file_stands_for_nothing(kind: str) -> None:
    step = "delta" if kind == "snapshot" else "changelog"
    steps = {f"state/0/0/{at}.{step}" for at in (1, 2)}
    orphan = f"state/0/0/2.{kind}.crc"

    assert steps < set(needed(SOME | steps | {orphan}, 2, no_zip))
    assert orphan not in needed(SOME | steps | {orphan}, 2, no_zip)
    with pytest.raises(Incomplete, match="no version 2"):
        needed((SOME | steps | {f"state/0/0/2.{step}.crc"}) - {f"state/0/0/2.{step}"}, 2, no_zip)


def test_a_checksum_goes_with_its_file() -> None:
    files = {"state/0/0/2.snapshot", "state/0/0/2.snapshot.crc"}
    steps = {f"state/0/0/{at}.delta{crc}" for at in (1, 2) for crc in ("", ".crc")}

    found = set(needed(SOME | files | steps, 2, no_zip))

    assert files < found
    assert not steps & found


# --- checkpoint format 2: files of several attempts --------------------------------------------

TWO = [f"state/0/0/{at}_x.{kind}" for at in (1, 2, 3, 4) for kind in ("changelog", "zip")]
LOGS = {"metadata", *(f"{log}/{at}" for log in ("offsets", "commits") for at in range(7))}
COMMITS = {f"commits/{at}": commit("x", "y") for at in range(6)}


def with_ids(
    paths: Iterable[str], batch: int, tables: dict[str, str], commits: dict[str, bytes] = COMMITS
) -> set[str]:
    """What of the state is needed; `tables` are those that a zip names, by its name."""
    read = {**commits, **{f"state/0/0/{at}": packed(one.split()) for at, one in tables.items()}}
    found = needed(
        {*LOGS, *paths} - (LOGS & COMMITS.keys() - commits.keys()), batch, read.__getitem__
    )
    return {path for path in found if path.startswith("state/")}


def test_older_zips_whose_tables_a_clean_up_removed_are_neither_needed_nor_read() -> None:
    steps = [f"state/0/0/{at}_x.changelog" for at in (5, 6)]
    whole = {"state/0/0/4_x.zip", "state/0/0/SSTs/new.sst"}

    assert with_ids({*TWO, *steps, *whole}, 6, {"4_x.zip": "new.sst"}) == {*steps, *whole}


def test_of_two_attempts_the_one_that_the_commit_names_is_what_older_zips_are_left_out_for() -> (
    None
):
    rival, table = "state/0/0/4_dead.changelog", "state/0/0/SSTs/new.sst"
    paths = {*TWO, rival, table, "state/0/0/5_x.changelog"}

    found = with_ids(paths, 5, {"4_x.zip": "new.sst"})

    assert found == {"state/0/0/4_x.zip", table, "state/0/0/5_x.changelog"}


def test_a_table_of_the_zip_that_is_loaded_is_needed() -> None:
    with pytest.raises(Incomplete, match=r"SSTs/new\.sst is not there"):
        with_ids(TWO, 4, {"4_x.zip": "new.sst"})


@pytest.mark.parametrize("knows", ["the commit", "nobody"])
def test_another_attempts_zip_is_not_what_older_ones_are_left_out_for(knows: str) -> None:
    """`4_dead` was uploaded by an attempt that no commit names."""
    dead = {"state/0/0/4_dead.changelog", "state/0/0/4_dead.zip"}
    alive = [path for path in TWO if path != "state/0/0/4_x.zip"]
    table = "state/0/0/SSTs/3.sst"
    named = {"4_dead.zip": "", "3_x.zip": "3.sst", "2_x.zip": "gone.sst", "1_x.zip": "gone.sst"}
    commits = COMMITS if knows == "the commit" else {"commits/4": COMMITS["commits/4"]}
    paths = {*alive, *dead, table, "state/0/0/5_x.changelog"}
    if knows == "nobody":
        paths -= {f"state/0/0/{at}_x.zip" for at in (1, 2)}

    found = with_ids(paths, 5, named, commits)

    assert {"state/0/0/3_x.zip", table, "state/0/0/4_x.changelog"} <= found
    assert not {"state/0/0/2_x.zip", "state/0/0/3_x.changelog"} & found
    with pytest.raises(Incomplete, match=r"SSTs/3\.sst is not there"):
        with_ids(paths - {table}, 5, named, commits)


def test_where_nobody_knows_whose_zips_they_are_all_are_needed() -> None:
    both = {path.replace("_x", id) for path in TWO[-4:] for id in ("_x", "_y")}
    named = {f"{at}_{id}.zip": f"{at}{id}" for at in (3, 4) for id in "xy"}
    tables = {f"state/0/0/SSTs/{one}" for one in named.values()}
    commits = {"commits/4": commit("z")}
    before = {*TWO[:1], *TWO[2:3], "state/0/0/5_z.changelog"}

    assert with_ids(both | tables | before, 5, named, commits) == both | tables | before
    with pytest.raises(Incomplete, match="SSTs/3y is not there"):
        with_ids(both | tables - {"state/0/0/SSTs/3y"} | before, 5, named, commits)


def test_the_version_that_the_commit_names_is_needed() -> None:
    with pytest.raises(Incomplete, match=r"no version 4 that commits/3 names"):
        with_ids(TWO, 4, {f"{at}_x.zip": "" for at in range(5)}, {"commits/3": commit("y")})


@pytest.mark.parametrize("text", [b"", b"v2\n[]", b'v2\n{"stateUniqueIds":{"0":1}}', b"v2\n\xff"])
def test_a_commit_that_cannot_be_read_is_incomplete(text: bytes) -> None:
    with pytest.raises(Incomplete, match="commit cannot be read"):
        with_ids(TWO, 4, {}, {**COMMITS, "commits/3": text})


# --- any history of a store, against loading it as Spark does ---------------------------------

STEP = {"hdfs": "delta", "rocks": "changelog"}
FULL = {"hdfs": "snapshot", "rocks": "zip"}


def load_hdfs(names: set[str], version: int) -> set[str] | None:
    """HDFSBackedStateStoreProvider.loadMap: the files it opens, or None if it fails."""
    opened, last = set(), version
    while last > 0 and f"{last}.snapshot" not in names:
        last -= 1
    if last > 0:
        opened.add(f"{last}.snapshot")
    for delta in range(last + 1, version + 1):
        if f"{delta}.delta" not in names:
            return None
        opened.add(f"{delta}.delta")
    return opened


def load_rocks(names: set[str], version: int, named: dict[str, list[str]]) -> set[str] | None:
    """RocksDB.load with RocksDBFileManager.getLatestSnapshotVersion and replayChangelog."""
    zips = [int(name[:-4]) for name in names if name.endswith(".zip")]
    latest = max([at for at in zips if at <= version], default=0)
    opened = set()
    if latest > 0:
        opened = {f"{latest}.zip", *(f"SSTs/{name}" for name in named[f"{latest}.zip"])}
    for at in range(latest + 1, version + 1):
        opened.add(f"{at}.changelog")
    return opened if opened <= names else None


@st.composite
def histories(draw: st.DrawFn) -> tuple[str, set[str], dict[str, list[str]], int]:
    """Provider, the names in a store's folder, what its zips name, and a batch."""
    provider = draw(st.sampled_from(["hdfs", "rocks"]))
    newest = draw(st.integers(1, 12))
    names: set[str] = set()
    named: dict[str, list[str]] = {}
    for at in range(1, newest + 1):
        kinds = draw(st.sampled_from([(0,), (0,), (1,), (0, 1)])) if provider == "rocks" else (0,)
        if provider == "hdfs" and draw(st.integers(0, 3)) == 0:
            kinds = (0, 1)
        names |= {f"{at}.{(STEP, FULL)[kind][provider]}" for kind in kinds}
        if f"{at}.zip" in names:
            named[f"{at}.zip"] = draw(
                st.lists(st.sampled_from(["a.sst", "b.sst", "c.sst"]), unique=True)
            )
            names |= {f"SSTs/{name}" for name in named[f"{at}.zip"]}
    cleaned = draw(st.integers(0, newest))  # maintenance, or an accident
    names -= {name for name in names if name[0] != "S" and int(name.split(".")[0]) < cleaned}
    names -= set(draw(st.lists(st.sampled_from(sorted(names)), max_size=2)) if names else ())
    return provider, names, named, draw(st.integers(0, newest))


@given(histories())
def test_any_history_is_what_spark_would_load(
    history: tuple[str, set[str], dict[str, list[str]], int],
) -> None:
    provider, names, named, batch = history
    always = {"metadata", *(f"{log}/{at}" for log in ("offsets", "commits") for at in range(13))}
    paths = always | {f"state/0/0/{name}" for name in names}
    loaded = load_hdfs(names, batch) if provider == "hdfs" else load_rocks(names, batch, named)

    def read(path: str) -> bytes:
        return packed(named[path.rpartition("/")[2]])

    if loaded is None:
        assume(any(name[0] != "S" for name in names))  # of one store no other tells that it was
        with pytest.raises(Incomplete):
            needed(paths, batch, read)
    else:
        expected = logs(batch) | {f"state/0/0/{name}" for name in loaded}
        assert set(needed(paths, batch, read)) == expected


# --- zips -------------------------------------------------------------------------------------


def test_a_real_zip_names_its_tables() -> None:
    listed = json.loads((GOLDEN / "rocks.tables.json").read_text())["state/0/0/15.zip"]

    assert tables(REAL_ZIP) == [f"SSTs/{name}" for name in listed]


def test_a_zip_that_is_cut_anywhere_is_incomplete() -> None:
    for length in range(0, len(REAL_ZIP), 7):
        with pytest.raises(Incomplete, match="zip cannot be read"):
            tables(REAL_ZIP[:length])


@given(st.integers(0, len(REAL_ZIP) - 1), st.integers(1, 255))
def test_a_zip_with_a_changed_byte_is_incomplete_or_says_the_same(at: int, change: int) -> None:
    torn = bytearray(REAL_ZIP)
    torn[at] ^= change
    try:
        found = tables(bytes(torn))
    except Incomplete:
        return
    assert found == tables(REAL_ZIP)


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"sstFiles":null}',
        '{"sstFiles":[1]}',
        '{"sstFiles":[{}]}',
        '{"sstFiles":[],"logFiles":3}',
        "[" * 100_000,
    ],
    ids=lambda body: body[:20],
)
def test_a_zip_that_says_something_else_is_incomplete(body: str) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("metadata", "v1\n" + body)

    with pytest.raises(Incomplete):
        tables(stream.getvalue())


def test_what_an_offline_repartition_left_of_more_partitions_is_not_needed():
    paths = {*logs(5), "state/0/_metadata/metadata", "state/0/1/_metadata/schema"}
    now = {f"state/0/{number}/5.zip" for number in (0, 1)}
    left = {"state/0/2/3.zip", "state/0/2/_metadata/schema"}
    read = {path: packed([]) for path in now}.__getitem__
    assert set(needed(paths | now | left, 5, read, partitions=2)) == paths | now
    with pytest.raises(Incomplete, match="state of more partitions than 1"):
        needed(paths | now | left, 5, read, partitions=1)  # live state is never passed over
    with pytest.raises(Incomplete, match="state/0/2 has no version 4"):
        needed(paths | now | left, 5, read)
