"""What the files of a table are for: the versions that there are, and what each of them needs.

Lance tells which files the versions of a table need, with two gaps. It leaves out blobs, which lie in a directory
beside their data file, and the indexes that a fork has from its parent. So a blob counts as its data file does, and an
index by its id, wherever it lies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.errors import CorruptionError

_MANIFEST = re.compile(r"\d{20}\.manifest")
_HINT = "latest_version_hint.json"
_SET_ASIDE = ".torn"
"""What repair and recovery have set aside, for a person to look at."""

_SWEPT = ("data", "_deletions", "_indices", "_transactions")


@dataclass(slots=True)
class Needs:
    """What versions of a table need, and what the others of the same table needed. Paths are below the root.

    Attributes:
        files: what the versions that stay need.
        freed: what versions need that go; some of it may be needed as well.
        indexes: the ids of the indexes that the versions that stay have.
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
    """What the versions of a table, or of one of its forks, need.

    Args:
        dataset: any version of it.
        path: the table's place below the root.
        stay: the versions that stay, as far as they are known. What is made meanwhile stays, too.
        gone: the versions that go.
        at: opens a version; None when it is not there.
    """
    found = Needs()
    going = pa.array(sorted(gone), pa.int64())
    for batch in dataset.tracked_files():
        bases = batch.column("base_uri")
        places = pa.array([below(base, path) for base in bases.dictionary.to_pylist()], pa.utf8())
        files = pc.binary_join_element_wise(places.take(bases.indices), batch.column("path"), "/")
        goes = pc.is_in(batch.column("version"), value_set=going)
        found.files.update(pc.unique(files.filter(pc.invert(goes))).to_pylist())
        found.freed.update(pc.unique(files.filter(goes)).to_pylist())
    for version in stay:
        opened = at(version)
        if opened is not None:
            found.indexes |= {str(part.uuid) for index in opened.describe_indices() for part in index.segments}
    return found


def below(base: str, path: str) -> str:
    """A directory that Lance names, as it is below the root: the table's own or that of one of its forks."""
    place = base.rstrip("/")
    start = place.rfind(f"/{path}")
    found = place[start + 1 :]
    if start < 0 or not (found == path or found.startswith(f"{path}/tree/")):
        raise CorruptionError(f"{path} has files at {base}", hint="a table lies below its graph; leave the files alone")
    return found


def versions(dataset: LanceDataset) -> list[int]:
    """The versions that there are, oldest first."""
    return sorted(int(ref["version"]) for ref in dataset.version_refs())


def is_swept(name: str) -> bool:
    """Whether a file of a table is of a kind that goes when no version needs it. Versions and refs never do so.

    A version that only its makers know of is none for that: they remove it themselves, unless they die.
    """
    directory, _, rest = name.partition("/")
    if name.endswith(_SET_ASIDE):
        return False
    if directory == "_versions":
        return not (_MANIFEST.fullmatch(rest) or rest == _HINT)
    return directory in _SWEPT


def is_needed(directory: str, name: str, known: Needs) -> bool:
    """Whether a file is needed by a version that stays.

    Args:
        directory: that of the table or of a fork of it.
        name: the file in it.
        known: what versions need.
    """
    if name.startswith("_indices/") and name.split("/")[1] in known.indexes:
        return True
    return counted_as(directory, name) in known.files


def counted_as(directory: str, name: str) -> str:
    """The file that decides about another: the data file for a blob, otherwise the file itself."""
    if name.startswith("data/") and name.count("/") > 1:
        return f"{directory}/data/{name.split('/')[1]}.lance"
    return f"{directory}/{name}"
