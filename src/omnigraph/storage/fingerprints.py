"""Digests of the content of a table version."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from lance import LanceDataset


def fragment_digests(dataset: LanceDataset) -> tuple[str, ...]:
    """Digest of each fragment, in order: equal in two versions exactly if the fragment has the same rows.

    Lance never changes a file, and file names are unique. So digests also distinguish versions with the same path and
    number: for example, of a table that was removed and created again, or restored from a copy and changed.
    """
    found = []
    for fragment in dataset.get_fragments():
        made = fragment.metadata
        deleted = "" if made.deletion_file is None else made.deletion_file.path(made.id)
        files = " ".join(file.path for file in made.files)
        text = f"{made.id} {made.physical_rows} {files} {deleted}"
        found.append(blake2b(text.encode(), digest_size=8).hexdigest())
    return tuple(found)


def fingerprint(place: str, digests: Iterable[str]) -> str:
    """Digest of all rows of a version: equal for two versions exactly if they have the same fragments.

    Args:
        place: address of the table.
        digests: digests of its fragments.
    """
    return blake2b("\n".join([place, *digests]).encode(), digest_size=16).hexdigest()
