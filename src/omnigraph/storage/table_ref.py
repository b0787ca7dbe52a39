"""Table versions, and the paths of their files below the graph root."""

from __future__ import annotations

from dataclasses import field
from urllib.parse import quote

from omnigraph.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class TableRef:
    """One exact version of one table.

    Attributes:
        path: path of the dataset below the graph root.
        branch: the Lance branch of the version; None is the dataset's main branch.
        version: the version number, never "latest".
        seal: checksum of the version's manifest file, if known.
    """

    path: str
    branch: str | None
    version: int
    seal: str | None = field(default=None, compare=False)

    @property
    def directory(self) -> str:
        """Directory of the table's branch, below the root."""
        return table_directory(self.path, self.branch)

    @property
    def manifest_path(self) -> str:
        """Path of the version's manifest file, below the root."""
        return f"{self.directory}/_versions/{manifest_name(self.version)}"

    @property
    def place(self) -> str:
        """The name of the table for caches: its path. It is the same for all versions."""
        return self.path

    @property
    def is_whole(self) -> bool:
        """Whether readers see all rows of the stored version. If not, no file on disk is derived from it."""
        return True

    def at(self, version: int) -> TableRef:
        """Another version of the same branch of the table."""
        return TableRef(self.path, self.branch, version)


def table_directory(path: str, branch: str | None) -> str:
    """Directory of one branch of a table, below the root."""
    return path if branch is None else f"{path}/tree/{branch}"


def branch_ref_path(name: str) -> str:
    """Path of a branch's ref file, below its dataset."""
    return f"_refs/branches/{quote(name, safe='')}.json"


def manifest_name(version: int) -> str:
    """File name of a version's manifest. Lance numbers manifests downwards, so the newest is listed first."""
    return f"{2**64 - 1 - version:020d}.manifest"
