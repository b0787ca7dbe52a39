"""The files of a table: its versions, and the files that each version needs.

Lance reports the files of a table's versions, except blobs, which are in a directory beside their data file, and
indexes that a fork has from its parent. So a blob counts as needed if its data file is needed. An index is identified
by its id, in whatever directory it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import field

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset
from lance.fragment import DataFile

from omnigraph.dataclass import dataclass
from omnigraph.errors import CorruptionError

_MANIFEST = re.compile(r"\d{20}\.manifest")
_HINT = "latest_version_hint.json"
_SET_ASIDE = ".torn"
"""Suffix of files that repair and recovery have quarantined for the user to inspect."""

_SWEPT = ("data", "_deletions", "_indices", "_transactions")


def data_file_name(file: DataFile) -> str:
    """Name of a data file below the `data` directory of its table.

    `DataFile.path` has the same value, but creates a class at each call, which takes 10 µs.
    """
    return str(file._path)


@dataclass(slots=True)
class Needs:
    """Files of the versions of a table that cleanup keeps, and of those that it removes. Paths are below the root.

    Attributes:
        files: files of the versions that stay.
        freed: files of the versions that are removed. Versions that stay may also need some of them.
        indexes: index ids of the versions that stay.
    """

    files: set[str] = field(default_factory=set)
    freed: set[str] = field(default_factory=set)
    indexes: set[str] = field(default_factory=set)

    def add(self, other: Needs) -> None:
        self.files |= other.files
        self.freed |= other.freed
        self.indexes |= other.indexes


def needs(
    dataset: LanceDataset,
    path: str,
    stay: Collection[int],
    gone: Collection[int],
    at: Callable[[int], LanceDataset | None],
) -> Needs:
    """The files of the versions of a table, or of one of its forks.

    Args:
        dataset: any version of it.
        path: path of the table below the root.
        stay: the known versions that stay. New versions stay, too.
        gone: the versions that are removed.
        at: opens a version; returns None if it does not exist.
    """
    found = Needs()
    going = pa.array(sorted(gone), pa.int64())
    for batch in dataset.tracked_files():
        bases = batch.column("base_uri")
        places = pa.array([below(base, path) for base in bases.dictionary.to_pylist()], pa.utf8())
        files = pc.binary_join_element_wise(places.take(bases.indices), batch.column("path"), "/")
        removed = pc.is_in(batch.column("version"), value_set=going)
        found.files.update(pc.unique(files.filter(pc.invert(removed))).to_pylist())
        found.freed.update(pc.unique(files.filter(removed)).to_pylist())
    for version in stay:
        opened = at(version)
        if opened is not None:
            found.indexes |= {str(part.uuid) for index in opened.describe_indices() for part in index.segments}
    return found


def below(base: str, path: str) -> str:
    """Convert an absolute directory from a Lance manifest to a path below the root.

    Raises:
        CorruptionError: it is neither the directory of the table nor of one of its forks.
    """
    place = base.rstrip("/")
    start = place.rfind(f"/{path}")
    found = place[start + 1 :]
    if start < 0 or not (found == path or found.startswith(f"{path}/tree/")):
        raise CorruptionError(
            f"table {path} refers to files at {base}, which is not a directory of the table",
            hint="another program changed the table: restore it from a backup",
        )
    return found


def versions(dataset: LanceDataset) -> list[int]:
    """All versions, oldest first."""
    return sorted(int(ref["version"]) for ref in dataset.version_refs())


def is_swept(name: str) -> bool:
    """Whether cleanup may remove a file of a table that no version needs. It never removes manifests and refs.

    The manifest of a detached version is an exception: the process that created it normally removes it, but may crash.
    """
    directory, _, rest = name.partition("/")
    if name.endswith(_SET_ASIDE):
        return False
    if directory == "_versions":
        return not (_MANIFEST.fullmatch(rest) or rest == _HINT)
    return directory in _SWEPT


def is_needed(directory: str, name: str, known: Needs) -> bool:
    """Whether a version that stays needs a file.

    Args:
        directory: directory of the table or of a fork.
        name: the file in it.
        known: the files that versions need.
    """
    if name.startswith("_indices/") and name.split("/")[1] in known.indexes:
        return True
    return counted_as(directory, name) in known.files


def counted_as(directory: str, name: str) -> str:
    """The file to check to find out whether a file is needed: for a blob its data file, otherwise the file itself."""
    if name.startswith("data/") and name.count("/") > 1:
        return f"{directory}/data/{name.split('/')[1]}.lance"
    return f"{directory}/{name}"
