"""A target of files, which can break each promise: what `check_target` must find."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from eo_kafka.targets import MarkerChanged, NotStaged, Target


class FileTarget(Target):
    """One file holds the marker and the names that are shown; `shown` has links to those. For
    `target.broken` it breaks one promise. With `target.server` another process does what `apply`
    asks for, also when who asked is dead."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._path, self._broken = Path(options["path"]), options.get("broken")
        self._has_server = "server" in options

    @property
    def place(self) -> str:
        return f"files in {self._path}"

    def stage(self, name: str, number: int, rows: pa.Table) -> None:
        at = "shown" if self._broken == "shows_at_once" else "."
        told = rows.to_pylist()
        if self._broken == "makes_floats":
            told = [{**row, "id": float(row["id"])} for row in told]
        self._write(self._path / at / f"{name}.{number}", json.dumps(told))

    def staged(self, writer: str) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for file in self._path.glob(f"{writer}*.*"):
            found[file.stem] = found.get(file.stem, 0) + 1
        return found

    def marker(self, writer: str) -> bytes | None:
        return self._finish(writer)

    def apply(
        self, writer: str, names: Mapping[str, int], before: bytes | None, after: bytes
    ) -> None:
        if not self._has_server:
            self._apply(writer, names, before, after)
            return
        server = os.fork()
        if not server:
            for stream in range(3):
                os.close(stream)  # the one that asks is waited for by these
            try:
                self._apply(writer, names, before, after)
            except (MarkerChanged, NotStaged) as refused:
                os._exit(1 + isinstance(refused, NotStaged))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(server, 0)[1])
        if code:
            raise (MarkerChanged, NotStaged)[code - 1]

    def _apply(
        self, writer: str, names: Mapping[str, int], before: bytes | None, after: bytes
    ) -> None:
        with self._locked():
            found = self.marker(writer)
            if self._broken == "any_marker":
                found = before if found and before else found
            if self._broken != "looks_at_no_marker" and found != before:
                raise MarkerChanged
            files = [f"{name}.{n}" for name, of in names.items() for n in range(of)]
            for file in files:
                if not (self._path / file).exists() and self._broken != "takes_what_is_there":
                    raise NotStaged(file)
            time.sleep(0.05)  # for whoever kills, and for another driver
            if self._broken == "first_name_only":
                files = [file for file in files if file.startswith(f"{next(iter(names))}.")]
            if self._broken == "cuts_the_marker":
                after = after[:200]
            if self._broken == "forgets_the_marker" and names:
                after = b"other"
            marker = self._marker(writer)
            if self._broken == "marker_first":
                self._write(marker, json.dumps({"marker": after.decode(), "files": []}))
                time.sleep(0.3)
            if self._broken == "slow_then_torn":
                time.sleep(0.3)  # what a store takes that is not on this disk
                for file in files:
                    os.link(self._path / file, self._path / "shown" / file)
                time.sleep(0.2)
            self._write(marker, json.dumps({"marker": after.decode(), "files": files}))
            self._finish(writer)

    def discard(self, names: Collection[str]) -> None:
        for name in names:
            for file in self._path.glob(f"{name}{self._end}*"):
                file.unlink(missing_ok=True)
            if self._broken == "discards_what_is_shown":
                for file in (self._path / "shown").glob(f"{name}.*"):
                    file.unlink()

    @property
    def _end(self) -> str:
        return "" if self._broken == "discards_more" else "."

    def _marker(self, writer: str) -> Path:
        return self._path / ("marker-all" if self._broken == "one_for_all" else f"marker-{writer}")

    def _finish(self, writer: str) -> bytes | None:
        """Show what the marker's file names: whoever comes next does so, if a driver died in it.
        The marker whose files are shown then: a server may write the next one meanwhile."""
        file = self._marker(writer)
        if not file.exists():
            return None
        found = json.loads(file.read_text())
        for name in found["files"]:
            shown = self._path / "shown" / name
            if not shown.exists() and (self._path / name).exists():
                with suppress(FileExistsError):  # another one is as quick
                    os.link(self._path / name, shown)
        return str(found["marker"]).encode()

    def _write(self, path: Path, text: str) -> None:
        staged = self._path / f"new-{os.getpid()}"
        staged.write_text(text)
        staged.replace(path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._broken == "no_lock":
            yield
            return
        with (self._path / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
