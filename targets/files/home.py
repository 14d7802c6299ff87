"""Where files are: what a directory and an object store both can do."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .manifest import Manifest

if TYPE_CHECKING:
    import pyarrow as pa


class Shown(NamedTuple):
    """A file with rows that are shown: of which batch, and how large."""

    sequence: int
    file: str
    bytes: int


class Home(Protocol):
    """Methods raise OSError, or what the store's client raises, where it is away."""

    @property
    def place(self) -> str:
        """In words."""

    def check(self) -> Manifest | None:
        """Driver, at a start: the newest manifest. Raises EnvironmentRefused if the promise cannot
        be kept here."""

    def newest(self) -> Manifest | None:
        """The newest manifest; None: there is none yet. It is never older than any before it."""

    def create(self, new: Manifest, newest: Manifest | None, writer: str) -> bool:
        """The atomic step: whether `new` follows `newest` now. If not, nothing has changed."""

    def publish(self, newest: Manifest, *, fail: bool) -> None:
        """Bring its files to where they stay, whoever comes; all or nothing of it may have happened
        already. Raises LedgerError if one is gone and `fail`."""

    def clean(self, newest: Manifest) -> None:
        """Remove what nobody needs any more beside it."""

    def stage(self, file: str, data: pa.Buffer) -> None:
        """Whole and durable, or not at all."""

    def staged(self) -> Mapping[str, int]:
        """The staged files, with their sizes, and names of what is left of one that never became
        whole, with a size below 0."""

    def remove(self, files: Collection[str]) -> None:
        """Of what is staged."""

    def shown(self, newest: Manifest) -> list[Shown]:
        """The files of all batches up to this one. Raises LedgerError if one is gone that was never
        published."""

    def read(self, shown: Shown) -> pa.NativeFile:
        """One, where it is now. Raises FileNotFoundError if somebody has removed it."""


def home_of(path: str) -> Home:
    """Of a path, or a URL. Contacts nobody. Raises ValueError with the end of a sentence."""
    from .bucket import Bucket
    from .folder import Folder

    scheme, separator, rest = path.partition("://")
    if not separator and path.startswith("file:/"):  # as Hadoop writes one
        scheme, separator, rest = "file", "://", path.removeprefix("file:")
    if separator and scheme == "file":
        if not rest.startswith("/"):  # file://host/path: not the directory /host/path
            raise ValueError("must be file:///path: what follows two slashes is a machine's name")
        path, separator = "/" + rest.lstrip("/"), ""
    if not separator:
        if not path.startswith("/"):
            raise ValueError("must be a whole path: driver and executors may be in other folders")
        return Folder(path)
    if scheme in ("s3", "s3a"):
        bucket = rest.partition("/")[0]
        # a ':' begins a password, whose '/' would end what is taken for the bucket
        if not bucket or "@" in bucket or ":" in bucket or "?" in rest:
            raise ValueError(
                "must be s3://bucket/prefix, and nothing else: the environment's variables AWS_... "
                "say where the store is, and who asks"
            )
        return Bucket(path)
    raise ValueError(
        f"is of scheme '{scheme}', which is not supported: take a directory that driver and "
        "executors see, or s3://bucket/prefix"
    )
