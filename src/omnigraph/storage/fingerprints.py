"""What a version of a table is made of, as one short name."""

from __future__ import annotations

from hashlib import blake2b

from lance import LanceDataset


def fingerprint(dataset: LanceDataset, place: str) -> str:
    """A name for the rows of a version: the same for two versions exactly when they have the same files.

    Lance never changes a file, and gives each a name that no other has. So this tells apart what path and version
    number do not: a table that was removed and made again, or that was put back from a copy and then took another way.

    Args:
        dataset: the version.
        place: where the table is.
    """
    digest = blake2b(place.encode(), digest_size=16)
    for fragment in dataset.get_fragments():
        parts = fragment.metadata
        gone = parts.deletion_file
        deleted = "" if gone is None else gone.path(parts.id)
        files = " ".join(file.path for file in parts.files)
        digest.update(f"\n{parts.id} {parts.physical_rows} {files} {deleted}".encode())
    return digest.hexdigest()
