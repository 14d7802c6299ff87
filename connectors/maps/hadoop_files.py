"""Reads and writes small files where Spark keeps checkpoints, through the driver's JVM."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from ...core.errors import EnvironmentRefused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HadoopFiles:
    """The files below one folder. Driver. Raises EnvironmentRefused on Spark Connect."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        context = getattr(spark, "sparkContext", None)
        if context is None:
            raise EnvironmentRefused(
                "A side input keeps files through the driver's JVM, which Spark Connect does not "
                "show: use Spark Classic."
            )
        jvm: Any = context._jvm
        self._hadoop = jvm.org.apache.hadoop.fs
        self._flags = jvm.java.util.EnumSet.of(self._hadoop.CreateFlag.CREATE)
        self._new_array = context._gateway.new_array
        self._folder = folder.rstrip("/")
        root = self._hadoop.Path(self._folder)
        # Without a scheme it is where Spark takes such a path to be
        whole = root.getFileSystem(context._jsc.hadoopConfiguration()).makeQualified(root)
        self._files = self._hadoop.FileContext.getFileContext(
            whole.toUri(), context._jsc.hadoopConfiguration()
        )

    def names(self, folder: str) -> list[str]:
        """Of what is in a folder; nothing if there is none."""
        at = self._at(folder)
        if not self._files.util().exists(at):
            return []
        return sorted(one.getPath().getName() for one in self._files.util().listStatus(at))

    def read(self, name: str) -> str | None:
        """A file's text; None if there is none."""
        at = self._at(name)
        if not self._files.util().exists(at):
            return None
        stream = self._files.open(at)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write_new(self, name: str, text: str) -> None:
        """Write a whole file, unless there is one: then that stays."""
        at = self._at(name)
        self._files.mkdir(at.getParent(), None, True)
        temporary = self._hadoop.Path(at.getParent(), f".{uuid.uuid4().hex}.tmp")
        options = self._new_array(self._hadoop.Options.CreateOpts, 0)
        stream = self._files.create(temporary, self._flags, options)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        try:
            self._files.rename(temporary, at, self._new_array(self._hadoop.Options.Rename, 0))
        except Exception:
            self._files.delete(temporary, False)
            if not self._files.util().exists(at):
                raise

    def delete(self, name: str) -> None:
        """A file, or a folder with all that is in it."""
        self._files.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        return self._hadoop.Path(f"{self._folder}/{name}")
