"""Open Lance datasets of one graph: cached handles, file checks, and conversion of errors to `OmnigraphError`."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from lance import LanceDataset
from lance.dataset import Session  # type: ignore[attr-defined]  # public, but not declared so

from omnigraph.errors import (
    DAMAGED_FILE_HINT,
    InputError,
    OmnigraphError,
    StorageError,
    StorageErrorKind,
    VersionReclaimedError,
)
from omnigraph.settings import CACHE_MEMORY
from omnigraph.storage.base_paths import at_root, open_dataset
from omnigraph.storage.blobs import check_blobs_by, stored_blobs
from omnigraph.storage.file_checks import FileChecks, FileDamage, VerifiedFiles
from omnigraph.storage.fingerprints import fragment_digests
from omnigraph.storage.id_fragments import IdFragments
from omnigraph.storage.lance_failures import is_missing, is_panic, lance_failure, reporting
from omnigraph.storage.latest_version import base_directories, latest_damage, opened_without_indexes
from omnigraph.storage.lru_cache import LruCache
from omnigraph.storage.table_files import below
from omnigraph.storage.table_ref import TableRef, table_directory

_WITH_INDEXES = "with indexes"
_LOG = logging.getLogger("omnigraph")

_METADATA_SHARE = 8
"""Lance may cache manifests and file footers of an eighth of `OMNIGRAPH_CACHE_MEMORY`.

Each commit adds a manifest with all fragments of its table, so a process that writes for a long time fills the cache.
The default of Lance is 1 GiB.
"""

_HANDLES = 64
"""Maximum number of cached handles."""

_FRAGMENTS = 8_000
"""Maximum number of fragments in the cached handles of one branch of a table, and of cached digests of fragments.

A handle has all fragments of its version, about 0.5 KB each, outside of the limits of Lance. A digest takes 73 bytes.
Each commit adds a version with all fragments of its base and a new one.
"""

_VERSIONS = 4
"""Versions of a branch of a table that are cached, however many fragments they have."""


_SESSION_VERSIONS = 256
"""After this number of opened versions, Lance starts with empty caches.

Its caches keep the pages of replaced indexes up to their limit, although no later version uses them.
"""


def _new_session() -> Session:
    # A commit replaces an index, and its pages stay in the cache until the limit. The default of Lance is 6 GiB.
    limit = CACHE_MEMORY.amount()
    return Session(metadata_cache_size_bytes=limit // _METADATA_SHARE, index_cache_size_bytes=limit)


class Datasets:
    """Opens exact versions of the datasets below one root.

    On a local disk, the files of a version are checked before Lance reads them.

    Args:
        root: the graph root in the form that Lance takes.
        options: storage options for object stores.
    """

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.options = dict(options) if options else None
        self._session = _new_session()
        self._opened = 0
        self._checks = FileChecks(root) if "://" not in root else None
        self._handles: LruCache[LanceDataset] = LruCache(_HANDLES)
        self._digests: LruCache[tuple[str, ...]] = LruCache(256)
        self._id_fragments: LruCache[IdFragments] = LruCache(16)
        self._damaged_indexes: dict[TableRef, frozenset[str]] = {}
        self._logged: set[str] = set()

    # Opening

    def open(self, ref: TableRef) -> LanceDataset:
        """A cached handle for reading. If index files of the version are damaged, the handle has no indexes.

        Raises:
            DamagedFileError: a data file of the version is damaged.
            VersionReclaimedError: the version does not exist.
        """
        found = self._handles.get(ref)
        return self._keep(ref, ref, self.open_uncached(ref)) if found is None else found

    def open_uncached(self, ref: TableRef) -> LanceDataset:
        """As `open`, but a new handle that no other thread uses."""
        damaged = self._check(ref)
        found = self.open_unchecked(ref)
        if damaged:
            found = opened_without_indexes(found, self.options)
        if self._checks is not None and stored_blobs(found.schema):
            bases = base_directories(found)

            def check(name: str, base: int | None) -> None:
                directory = ref.directory if base is None else below(bases[base], ref.path)
                checks.check_file(f"{directory}/data/{name}")

            checks = self._checks
            check_blobs_by(found, check)
        return found

    def open_with_indexes(self, ref: TableRef) -> LanceDataset:
        """A handle with all indexes, including damaged ones: for commits, and for changes of indexes."""
        handle = self.open(ref)
        if ref not in self._damaged_indexes:
            return handle
        key = (ref, _WITH_INDEXES)
        found = self._handles.get(key)
        return self._keep(key, ref, self.open_unchecked(ref)) if found is None else found

    def open_unchecked(self, ref: TableRef) -> LanceDataset:
        """A new handle, without a check of the files.

        Raises:
            VersionReclaimedError: the version does not exist.
        """
        self._count_version()
        found = self.find(ref.path, ref.branch, ref.version)
        if found is None:
            raise _missing(ref)
        return found

    def open_main(self, path: str) -> LanceDataset:
        """The latest version of a dataset's main branch.

        Raises:
            VersionReclaimedError: the dataset does not exist.
        """
        found = self.find(path, None, None)
        if found is None:
            raise VersionReclaimedError(f"{path} does not exist", hint="another program removed the files")
        return found

    def find(self, path: str, branch: str | None, version: int | None, *, cached: bool = True) -> LanceDataset | None:
        """Open a dataset; None if it certainly does not exist. A store that cannot be reached raises.

        Args:
            path: the dataset below the root.
            branch: its branch; None for the main branch.
            version: its version; None for the latest.
            cached: use Lance's session cache. A version never changes, but cleanup may remove it.
        """
        session = self._session if cached else None
        try:
            found = open_dataset(self.root, path, branch, version, options=self.options, session=session)
        except OmnigraphError:
            raise
        except Exception as error:
            if is_missing(error):
                return None
            raise self._open_failure(error, path, branch, version) from error
        except BaseException as error:
            if not is_panic(error):
                raise
            raise self._open_failure(error, path, branch, version) from error
        if found.version == 0 or version not in (None, found.version):
            raise self._open_failure(ValueError("its newest file is not a valid version"), path, branch, version)
        return found

    def exists(self, ref: TableRef) -> bool:
        """Whether a version exists now. Reads storage, not the cache."""
        return self.find(ref.path, ref.branch, ref.version, cached=False) is not None

    def _open_failure(self, error: BaseException, path: str, branch: str | None, version: int | None) -> OmnigraphError:
        """The error for a version that Lance cannot open. Names the damaged file, if there is one."""
        directory = table_directory(path, branch)
        return latest_damage(self.root, directory, version) or lance_failure(error, self.root, directory)

    # Caching

    def add(self, ref: TableRef, dataset: LanceDataset) -> None:
        """Cache the handle of a version that was just committed, unless it has the old caches of Lance.

        A commit hands the caches of its base on, so without reads from disk they would never be dropped.
        """
        self._count_version()
        session = self._session
        home = at_root(dataset, self.root, ref.path, options=self.options, session=session)
        if home.session().is_same_as(session):  # type: ignore[attr-defined]  # not declared
            self._keep(ref, ref, home)

    def _count_version(self) -> None:
        """Count an opened version. From time to time, drop the caches of Lance and the handles that refer to them."""
        self._opened += 1
        if self._opened % _SESSION_VERSIONS == 0:
            self._session = _new_session()
            self._handles.clear()

    def _keep(self, key: Hashable, ref: TableRef, dataset: LanceDataset) -> LanceDataset:
        """Cache a handle. If the handles of its branch have too many fragments, drop the least recently used ones."""
        self._handles.put(key, dataset)
        _trim(self._handles, ref, len(dataset.fragment_ids()))
        return dataset

    def fragment_digests(self, ref: TableRef) -> tuple[str, ...]:
        """Digest of each fragment of a version, cached. Equal digests mean equal rows."""
        found = self._digests.get(ref)
        if found is None:
            found = self._digests.put(ref, fragment_digests(self.open(ref)))
            _trim(self._digests, ref, len(found))
        return found

    def id_fragments(self, ref: TableRef) -> IdFragments:
        """The cached ids of the small fragments of a branch of a table."""
        key = (ref.path, ref.branch)
        found = self._id_fragments.get(key)
        return self._id_fragments.put(key, IdFragments()) if found is None else found

    def forget_branch(self, path: str, branch: str) -> None:
        """Drop the cached handles of one branch of a table."""
        self._id_fragments.discard(lambda key: key == (path, branch))
        self._handles.discard(lambda key: _branch_of(key) == (path, branch))

    def forget(self, path: str) -> None:
        """Drop everything that is cached of a table. To be called after versions of it were removed."""
        self._session = _new_session()
        self._id_fragments.discard(lambda key: isinstance(key, tuple) and key[0] == path)
        self._handles.discard(lambda key: _branch_of(key)[0] == path)
        self._digests.discard(lambda ref: isinstance(ref, TableRef) and ref.path == path)
        if self._checks is not None:
            self._checks.forget(path)

    # Checks of files

    def damaged_indexes(self, ref: TableRef) -> frozenset[str]:
        """Ids of the index segments of an open version whose files are damaged."""
        return self._damaged_indexes.get(ref, frozenset())

    def seal(self, ref: TableRef) -> str | None:
        """Checksum of a version's manifest file; None in an object store.

        Raises:
            DamagedFileError: the file is damaged.
        """
        return None if self._checks is None else self._checks.seal_of(ref.manifest_path, ref.version)

    def damages(self, ref: TableRef) -> list[FileDamage]:
        """Damaged files of a version, by a quick check: file sizes, and checksums of small files. Uses no cache."""
        if self._checks is None:
            missing = self.find(ref.path, ref.branch, ref.version, cached=False) is None
            return [FileDamage(ref.manifest_path, "it is missing")] if missing else []
        return FileChecks(self.root).damages(ref.path, ref.directory, ref.manifest_path, ref.version, ref.seal)

    def verify_files(self, ref: TableRef) -> VerifiedFiles:
        """Compare all files of a version with their recorded sizes and checksums, whatever their size.

        Raises:
            DamagedFileError: the manifest file is damaged.
            InputError: the graph is in an object store, which keeps its own checksums.
            VersionReclaimedError: the version does not exist.
        """
        if self._checks is None:
            raise InputError(
                f"{ref.directory} cannot be verified: a graph in an object store has no recorded checksums",
                hint="rely on the checksums of the object store",
            )
        manifest = self._checks.manifest(ref.manifest_path, ref.version, ref.seal)
        if manifest is None:
            raise VersionReclaimedError(f"{ref.manifest_path} no longer exists", hint=DAMAGED_FILE_HINT)
        return self._checks.verify(ref.path, ref.directory, manifest)

    def _check(self, ref: TableRef) -> bool:
        """Check the files of a version. Returns whether some of its indexes are damaged.

        Raises:
            DamagedFileError: a file that is not part of an index is damaged.
        """
        if self._checks is None:
            return False
        manifest = self._checks.manifest(ref.manifest_path, ref.version, ref.seal)
        if manifest is None:
            return False  # a detached version (outside of the version chain), or a removed version
        damages = self._checks.check(ref.path, ref.directory, manifest)
        if not damages:
            self._damaged_indexes.pop(ref, None)
            return False
        for each in damages:
            if each.path in self._logged:
                continue
            self._logged.add(each.path)
            _LOG.warning(
                "%s is damaged: %s; queries scan the table instead of using its indexes, which is slow; "
                "run 'omnigraph repair', then 'omnigraph optimize'",
                each.path,
                each.reason,
            )
        self._damaged_indexes[ref] = frozenset(str(each.index) for each in damages)
        return True

    # Errors

    @contextmanager
    def reporting(self, ref: TableRef, *, write: bool = False) -> Iterator[None]:
        """Convert Lance's exceptions to `OmnigraphError`. Reports a damaged file of the version, if there is one."""
        try:
            with reporting(self.root, ref.path, write=write):
                yield
        except StorageError as error:
            if error.kind not in (StorageErrorKind.TRANSIENT, StorageErrorKind.CONFIGURATION):
                self._raise_damage(ref, error)
            raise
        except (OmnigraphError, GeneratorExit):
            raise
        except Exception as error:
            self._raise_damage(ref, error)
            raise

    @contextmanager
    def reading(self, ref: TableRef) -> Iterator[None]:
        """Report a failed read. Raises VersionReclaimedError if the version does not exist any more.

        Cleanup removes a version before its files, so a reader that misses a file can find out why.
        """
        try:
            with self.reporting(ref):
                yield
        except StorageError as error:
            with suppress(StorageError):
                if not self.exists(ref):
                    raise _missing(ref) from error
            raise

    def _raise_damage(self, ref: TableRef, error: Exception) -> None:
        """After an unexpected failure, check all files of the version. Raises an error for the first damaged file."""
        if self._checks is None:
            return
        damages = self.verify_files(ref).damages
        if damages:
            raise damages[0].error(self.root) from error


def _trim(cached: LruCache[Any], ref: TableRef, fragments: int) -> None:
    """If the cached versions of a branch of a table have too many fragments, drop the least recently used ones.

    Args:
        cached: values by version.
        ref: the version that was added last.
        fragments: the number of its fragments.
    """
    versions = max(_VERSIONS, _FRAGMENTS // max(1, fragments))
    if versions < _HANDLES:
        cached.trim(lambda other: _branch_of(other) == (ref.path, ref.branch), versions)


def _branch_of(key: Hashable) -> tuple[str, str | None]:
    """The table and the branch of a cached handle."""
    ref = key[0] if isinstance(key, tuple) else key
    assert isinstance(ref, TableRef)
    return ref.path, ref.branch


def _missing(ref: TableRef) -> VersionReclaimedError:
    return VersionReclaimedError(
        f"version {ref.version} of {ref.directory} no longer exists",
        hint="cleanup or another program has removed it",
    )
