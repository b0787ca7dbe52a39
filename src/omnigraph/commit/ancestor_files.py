"""The file with the ancestor commits that a merge is about to publish.

If the merge is interrupted, recovery can finish it with this file, even if the source branch was deleted. The file is
written before the sidecar, which names it, and removed after the sidecar. It is below `__staging`. If no sidecar names
it, cleanup removes it together with old staging directories.
"""

from __future__ import annotations

import re
import zlib
from contextlib import suppress

import pyarrow as pa

from omnigraph.commit.manifest import SCHEMA
from omnigraph.commit.staging_directories import DIRECTORY
from omnigraph.errors import ObjectNotFoundError, OmnigraphError
from omnigraph.storage.objects import ObjectStore

_SUMMED = re.compile(r"/ancestors-([0-9a-f]{8})\.arrow$")


def write_ancestors(objects: ObjectStore, operation_id: str, rows: pa.Table) -> str:
    """Write ancestor rows durably. Returns the path, which contains the checksum of the file."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    data = sink.getvalue().to_pybytes()
    path = f"{DIRECTORY}/{operation_id.lower()}/ancestors-{zlib.crc32(data):08x}.arrow"
    objects.create(path, data)
    return path


def read_ancestors(objects: ObjectStore, path: str) -> pa.Table | None:
    """Read the rows of a file. None if the file is missing or damaged: recovery then cannot finish the merge."""
    try:
        data = objects.get(path).data
    except ObjectNotFoundError:
        return None
    named = _SUMMED.search(path)
    if named is not None and named[1] != f"{zlib.crc32(data):08x}":
        return None
    try:
        return pa.ipc.open_file(pa.BufferReader(data)).read_all().cast(SCHEMA)
    except (pa.ArrowException, OSError, ValueError):
        return None


def remove_ancestors(objects: ObjectStore, path: str | None) -> None:
    """Remove the file of a settled merge. If the removal fails, cleanup removes the file later."""
    if path is not None:
        with suppress(OmnigraphError):
            objects.delete_prefix(path.rpartition("/")[0])
