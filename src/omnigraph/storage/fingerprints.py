"""What a version of a table is made of, in short names."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from lance import LanceDataset


def parts(dataset: LanceDataset) -> tuple[str, ...]:
    """A name for each fragment of a version, in their order: the same in two versions exactly when its rows are.

    Lance never changes a file, and gives each a name that no other has. So this tells apart what path and version
    number do not: a table that was removed and made again, or that was put back from a copy and then took another way.
    """
    found = []
    for fragment in dataset.get_fragments():
        made = fragment.metadata
        deleted = "" if made.deletion_file is None else made.deletion_file.path(made.id)
        files = " ".join(file.path for file in made.files)
        text = f"{made.id} {made.physical_rows} {files} {deleted}"
        found.append(blake2b(text.encode(), digest_size=8).hexdigest())
    return tuple(found)


def fingerprint(place: str, parts: Iterable[str]) -> str:
    """A name for all rows of a version: the same for two versions exactly when they are made of the same parts.

    Args:
        place: where the table is.
        parts: what it is made of.
    """
    return blake2b("\n".join([place, *parts]).encode(), digest_size=16).hexdigest()
