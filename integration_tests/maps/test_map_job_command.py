"""`eo-kafka job reset` and `repair` for a job that writes an IMap in two phases: with the members
they finish it, without them they say what is left there."""

from __future__ import annotations

from pathlib import Path

import pytest

from eo_kafka.errors import ForeignLedger
from eo_kafka.tools.cli import main
from map_two_phase_job import QUERY, MapJob, assert_exact, kill_at


@pytest.fixture
def command(map_job: MapJob, tmp_path: Path):
    """`eo-kafka job ACTION`, with the members or without; its exit code."""
    config = tmp_path / "map.properties"
    names = ("map", "hazelcast.members")
    config.write_text("".join(f"{name}={map_job.given[name]}\n" for name in names))

    def run(action: str, *arguments: str, members: bool = True) -> int:
        known = ["--map-config", str(config)] if members else []
        servers = ["--bootstrap-servers", map_job.given["kafka.bootstrap.servers"]]
        return main(["job", action, map_job.given["jobName"], *arguments, *known, *servers])

    return run


@pytest.mark.full
def test_a_reset_applies_what_is_decided_and_removes_what_is_not(
    map_job, written_map, staged, hazelcast_client, crash_points, command, capsys
) -> None:
    map_job.run(0)
    kill_at(map_job, crash_points, "S6.after_decision", 1)
    crash_points.clear()
    assert command("reset", members=False) == 1
    assert "or give the command --map-config" in capsys.readouterr().err
    assert_exact(map_job, hazelcast_client, written_map, 0)
    assert command("reset") == 0
    assert_exact(map_job, hazelcast_client, written_map, 0, 1)
    assert staged.size() == 0
    map_job.prepare(0)  # the next query begins with batch 0; its driver dies
    assert staged.size() == 6
    assert command("reset") == 0
    assert staged.size() == 0
    map_job.run(0)  # markers of before do not stand in its way
    assert dict(written_map.entry_set()) == map_job.expected(0, 1, 0)


@pytest.mark.full
def test_a_new_query_takes_the_ledger_over_when_the_map_has_what_was_decided(
    map_job, written_map, staged, hazelcast_client, crash_points, tmp_path
) -> None:
    map_job.run(0)
    kill_at(map_job, crash_points, "S6.after_decision", 1)
    crash_points.clear()
    (tmp_path / "metadata").write_text('{"id":"new"}')
    given = {"checkpointlocation": str(tmp_path), "onReset": "new-job"}
    new = MapJob({**map_job.given, **given}, query="new")
    new.prepare(0)
    assert_exact(map_job, hazelcast_client, written_map, 0, 1)
    new.commit(0)
    assert dict(written_map.entry_set()) == new.expected(0, 1, 0)
    assert staged.size() == 0
    with pytest.raises(ForeignLedger, match="query new has taken it over"):
        MapJob({**map_job.given, "onReset": "new-job", **_place(tmp_path / "old")}).prepare(2)


def _place(folder: Path) -> dict[str, str]:
    """The checkpoint of the first query."""
    folder.mkdir()
    (folder / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    return {"checkpointlocation": str(folder)}


def test_without_the_members_it_says_what_is_left_there(
    map_job, written_map, staged, command, capsys
) -> None:
    map_job.run(0)
    map_job.prepare(1)
    assert command("reset", members=False) == 0
    said = capsys.readouterr().out
    assert f"wrote map '{written_map.name}' of Hazelcast" in said
    assert f"still in map '{staged.name}'" in said
    assert staged.size() == 6
    assert command("reset") == 0
    assert staged.size() == 0


@pytest.mark.full
def test_a_repair_goes_on_without_what_the_members_lost(
    map_job, written_map, staged, crash_points, command, capsys
) -> None:
    map_job.run(0)
    kill_at(map_job, crash_points, "S7.after_chunk", 1)
    staged.clear()
    before = dict(written_map.entry_set())
    assert command("reset") == 1
    assert "Batch 1 is partly lost" in capsys.readouterr().err
    assert command("repair", "--batch", "1", "--accept-loss") == 0
    assert "Batch 1 is DONE with the 0 rows" in capsys.readouterr().out
    assert dict(written_map.entry_set()) == before
    map_job.run(1, 2)
    assert {"0", "1", "2"} >= set(written_map.values())
    assert dict(written_map.entry_set()).items() >= map_job.expected(2).items()
