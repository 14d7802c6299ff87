"""The records of an exported snapshot, in a topic of its own.

It holds chunks of blobs under the same keys as the state topic, and one head record, written last
and together with the manifest. A topic without a head is an unfinished export. Only one exporter at
a time writes, and none after the head: all that the head names stands before it, and it is among
the last records of the topic, whatever compaction does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import CorruptLedger, CorruptSnapshot, OptionsError, cut
from ...core.options import json_object
from ...core.progress import Told
from ..ledger import records
from ..ledger.blob_names import SnapshotHead
from ..ledger.job_topics import RESERVED, is_part
from ..ledger.log_reader import read_records
from ..ledger.record_fields import lines, string, whole
from . import blobs
from .assembly import pieces
from .manifest import Manifest
from .writing_back import read_blobs

VERSION = 1
KEY = b"snapshot"
LATEST = "latest"  # what the job's own newest snapshot is called
_TOPIC = "__eo_kafka.{job}.export.{name}"
_TOPIC_MAX = 249  # Kafka's limit
_HEAD_WITHIN = 16  # offsets before the end: behind the head is the marker of its transaction


@dataclass(frozen=True)
class Export:
    """What the head record says. `snapshot` is the job's own head, with `manifest_from` an offset
    of this topic. `offsets` are the ends of its batch, a line for each source, as Spark wrote them.
    `made_ms`, of the export, is in ms since 1970, of the exporter's clock.
    """

    name: str
    job: str
    made_ms: int
    snapshot: SnapshotHead
    offsets: tuple[str, ...]


def topic_of(job: str, name: str) -> str:
    """The topic of an export. Raises OptionsError if it cannot have this name."""
    topic = _TOPIC.format(job=job, name=name)
    if not is_part(name) or name == LATEST or len(topic) > _TOPIC_MAX:
        raise OptionsError(
            [
                f"'{cut(name)}' cannot be the name of an exported snapshot: letters, digits, '_' "
                f"and '-', at most {_TOPIC_MAX - len(_TOPIC.format(job=job, name=''))} of them, "
                f"and none of {', '.join((LATEST, *RESERVED))}."
            ]
        )
    return topic


def name_in(topic: str, job: str) -> str | None:
    """The name of the export that the topic holds; None if it is no export of this job."""
    stem = _TOPIC.format(job=job, name="")
    name = topic.removeprefix(stem)
    return name if name != topic and is_part(name) and name != LATEST else None


def encode(export: Export) -> bytes:
    """The value under KEY."""
    fields = {
        "v": VERSION,
        "name": export.name,
        "job": export.job,
        "madeMs": export.made_ms,
        "snapshot": json.loads(records.encode_snapshot(export.snapshot)),
        "offsets": export.offsets,
    }
    return _dump(fields)


def decode(value: bytes) -> Export:
    """Raises CorruptSnapshot."""
    try:
        fields = json_object(value.decode())
        if fields["v"] != VERSION:
            raise ValueError(f"version {cut(repr(fields['v']))} is not {VERSION}")
        found = Export(
            name=string(fields["name"], _TOPIC_MAX),
            job=string(fields["job"], _TOPIC_MAX),
            made_ms=whole(fields["madeMs"]),
            snapshot=records.decode_snapshot(_dump(fields["snapshot"])),
            offsets=lines(fields["offsets"]),
        )
        # Two values never mean the same: what a reading would pass over is seen here.
        if encode(found) != value:
            raise ValueError("it says more than a record of this version, or says it otherwise")
        return found
    except (CorruptLedger, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptSnapshot(
            f"The head of an exported snapshot cannot be decoded ({type(error).__name__}: "
            f"{cut(error)}). It was not used. If a newer eo-kafka wrote it, run that version; if "
            "somebody else wrote into the topic, delete the export."
        ) from None


def _dump(fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def read_head(settings: Mapping[str, str], topic: str, end: int) -> tuple[Export, int] | None:
    """The head of an export whose topic ends at `end`, and its offset, where the rest ends; None
    if the export is unfinished. Raises CorruptSnapshot, ReadTimeout."""
    start = max(0, end - _HEAD_WITHIN)
    for offset, key, value in read_records(settings, topic, 0, start, end):
        if key == KEY and value is not None:
            return decode(value), offset
    return None


def read_manifest(
    settings: Mapping[str, str], topic: str, end: int, head: SnapshotHead
) -> Manifest:
    """The manifest that the head names. Raises CorruptSnapshot, ReadTimeout."""
    return Manifest.decode(blobs.read_blob(settings, topic, head.manifest_from, end, head.manifest))


def copies(
    settings: Mapping[str, str],
    topic: str,
    end: int,
    manifest: Manifest,
    there: Collection[bytes],
    told: Told,
) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each chunk that the manifest's files need and `there` lacks. A blob's
    digest is checked before its first chunk is given.

    Raises CorruptSnapshot if one is not in [0, end) of `topic`, ReadTimeout.
    """
    wanted = {
        digest: blob
        for digest, blob in manifest.blobs().items()
        if any(key not in there for key in blob.chunk_keys())
    }
    done, total = 0, sum(blob.size for blob in wanted.values())
    told(done, total)
    for blob, content in read_blobs(settings, topic, end, wanted):
        yield from zip(blob.chunk_keys(), pieces(content), strict=True)
        done += blob.size
        told(done, total)
    if wanted:
        names = files_of(manifest, wanted)
        raise CorruptSnapshot(
            f"Topic '{topic}' lacks the contents of {len(names)} of {len(manifest.files)} files of "
            f"the snapshot, or parts of them: {', '.join(names[:3])}."
        )


def damaged(
    settings: Mapping[str, str], topic: str, end: int, manifest: Manifest, told: Told
) -> list[str]:
    """The files whose contents are not whole in [0, end) of `topic`. Raises ReadTimeout,
    CorruptSnapshot if there are records that cannot be ours."""
    wanted = manifest.blobs()
    done, total = 0, sum(blob.size for blob in wanted.values())
    told(done, total)
    for blob, _ in read_blobs(settings, topic, end, wanted):
        done += blob.size
        told(done, total)
    return files_of(manifest, wanted)


def read_files(
    settings: Mapping[str, str], topic: str, end: int, manifest: Manifest, paths: Collection[str]
) -> dict[str, bytes]:
    """The contents of a few small files.

    Raises CorruptSnapshot if one is not whole, ReadTimeout.
    """
    wanted = {manifest.files[path].blob.digest: manifest.files[path].blob for path in paths}
    found = {
        blob.digest: b"".join(pieces(content))
        for blob, content in read_blobs(settings, topic, end, wanted)
    }
    if wanted:
        names = [path for path in paths if manifest.files[path].blob.digest in wanted]
        raise CorruptSnapshot(
            f"The snapshot in topic '{topic}' is damaged: it lacks the contents of "
            f"{', '.join(names)}, or parts of them, and cannot be restored. Keep the job's "
            "checkpoint. 'eo-kafka snapshots verify' names all files that are not whole."
        )
    return {path: found[manifest.files[path].blob.digest] for path in paths}


def files_of(manifest: Manifest, digests: Collection[str]) -> list[str]:
    """The paths whose content has one of the digests."""
    return sorted(path for path, one in manifest.files.items() if one.blob.digest in digests)
