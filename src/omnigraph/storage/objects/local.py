"""Control objects as files in a directory."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import blake2b

from omnigraph.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError, StorageError, StorageErrorKind
from omnigraph.storage.objects.contract import CHUNK_BYTES, INTERNAL, ObjectInfo, ObjectList, StoredObject, normal_path
from omnigraph.storage.objects.durable import DurableDirectories, sync_directory, sync_file, sync_tree
from omnigraph.storage.objects.os_failures import os_failure
from omnigraph.storage.uri import GraphUri

_LOCK = f"{INTERNAL}lock"
_TEMPORARY = f"{INTERNAL}tmp-"
_STALE_SECONDS = 3600
_FILES = f"{INTERNAL}files"
"""Directory for incomplete files. They are renamed into table directories, in which this store must not leave files of
its own.
"""
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_ATTEMPTS = 16


class LocalObjectStore:
    """A directory. Each object is a file that is never changed in place.

    A write goes to a temporary file beside the object, which is then renamed (or, to create, linked) into place, so a
    reader with an open file keeps its content. Conditional writes (`replace`, `delete_if`) check and then change an
    object. No other write may run in between, so `put` and `delete` take the same lock: a `flock` on a file in the
    object's directory. The kernel releases the lock when the process dies.

    Args:
        uri: the directory. The first write creates it.
        fsync: flush every write before it returns.
    """

    def __init__(self, uri: GraphUri, *, fsync: bool = True) -> None:
        self._uri = uri
        self._fsync = fsync
        self._swept: set[str] = set()
        self._known = DurableDirectories()

    @property
    def uri(self) -> GraphUri:
        return self._uri

    # Reading

    def get(self, path: str) -> StoredObject:
        path = normal_path(path)
        with self._reporting(path):
            stored = self._read(self._file(path))
        if stored is None:
            raise ObjectNotFoundError(str(self._uri), path)
        return stored

    def head(self, path: str) -> ObjectInfo:
        path = normal_path(path)
        with self._reporting(path):
            found = _stat(self._file(path))
        if found is None:
            raise ObjectNotFoundError(str(self._uri), path)
        return _info(path, found)

    def reading(self, path: str) -> Iterator[bytes]:
        """Read a file of any size in chunks.

        Raises:
            ObjectNotFoundError: it does not exist.
        """
        path = normal_path(path)
        with self._reporting(path):
            try:
                with open(self._file(path), "rb", buffering=0) as opened:
                    while piece := opened.read(CHUNK_BYTES):
                        yield piece
            except _ABSENT:
                raise ObjectNotFoundError(str(self._uri), path) from None

    def exists(self, path: str) -> bool:
        path = normal_path(path)
        with self._reporting(path):
            return _stat(self._file(path)) is not None

    def list(self, prefix: str = "") -> ObjectList:
        prefix = normal_path(prefix, root=True)
        with self._reporting(prefix):
            directory = self._file(prefix)
            if prefix and not _is_directory(directory):
                return []
            return sorted(_files(directory, f"{prefix}/" if prefix else ""), key=lambda info: info.path)

    # Writing

    def put(self, path: str, data: bytes) -> str:
        def publish(temporary: str, file: str) -> None:
            with _locked(os.path.dirname(file)):
                os.rename(temporary, file)

        return self._write(normal_path(path), data, publish)

    @contextmanager
    def writing(self, path: str) -> Iterator[io.RawIOBase]:
        """Write a file of any size in chunks. It replaces the old one when the block ends without an error.

        It is not flushed: `sync_files` does that for many files at once.
        """
        path = normal_path(path)
        with self._reporting(path):
            file = self._file(path)
            directory = self._uri.key(_FILES)
            self._make_directory(directory)
            self._sweep(directory)
            self._make_directory(os.path.dirname(file))
            temporary = f"{directory}/{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
            try:
                with open(temporary, "xb", buffering=0) as opened:
                    yield opened
                os.rename(temporary, file)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)

    def create(self, path: str, data: bytes) -> str:
        path = normal_path(path)

        def publish(temporary: str, file: str) -> None:
            try:
                os.link(temporary, file)
            except FileExistsError:
                if os.path.isdir(file):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR)) from None
                raise ObjectExistsError(str(self._uri), path) from None
            except OSError as error:
                if error.errno in _NO_HARD_LINKS:
                    raise self._no_hard_links(path) from error
                raise

        return self._write(path, data, publish)

    def replace(self, path: str, data: bytes, etag: str) -> str:
        path = normal_path(path)

        def publish(temporary: str, file: str) -> None:
            with _locked(os.path.dirname(file)):
                self._expect(path, file, etag)
                os.rename(temporary, file)

        with self._reporting(path):
            if _stat(self._file(path)) is None:
                raise ObjectChangedError(str(self._uri), path)
        return self._write(path, data, publish)

    def delete(self, path: str) -> None:
        path = normal_path(path)
        self._remove(path, lambda file: None)

    def delete_if(self, path: str, etag: str) -> None:
        path = normal_path(path)
        if not self._remove(path, lambda file: self._expect(path, file, etag)):
            raise ObjectChangedError(str(self._uri), path)

    def delete_prefix(self, prefix: str) -> None:
        prefix = normal_path(prefix)
        with self._reporting(prefix):
            directory = self._file(prefix)
            if _is_directory(directory):
                _reclaim(directory)
                self._sync_directory(os.path.dirname(directory))

    def delete_files(self, paths: Iterable[str]) -> None:
        for path in paths:
            path = normal_path(path)
            with self._reporting(path), suppress(*_ABSENT):
                os.unlink(self._file(path))

    def rewrite_file(self, path: str, data: bytes, etag: str) -> None:
        path = normal_path(path)
        with self._reporting(path):
            file = self._file(path)
            directory = self._uri.key(_FILES)
            self._make_directory(directory)
            self._sweep(directory)
            temporary = f"{directory}/{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
            try:
                self._write_temporary(temporary, data)
                found = _stat(file)
                if found is None:
                    raise ObjectChangedError(str(self._uri), path)
                os.utime(temporary, ns=(found.st_atime_ns, found.st_mtime_ns))
                os.chmod(temporary, stat.S_IMODE(found.st_mode))
                self._expect(path, file, etag)
                os.rename(temporary, file)
                self._sync_directory(os.path.dirname(file))
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(temporary)

    def sync_files(self, paths: Iterable[str], *, levels: int | None = None) -> None:
        """Flush files that Lance wrote, and the directories above them up to the root. Does nothing without `fsync`."""
        if not self._fsync:
            return
        paths = [normal_path(path, root=True) for path in paths]
        with self._reporting(paths[0] if len(paths) == 1 else ""):
            sync_tree(self._uri.path, paths, levels, self._known)

    # Steps of a write

    def _write(self, path: str, data: bytes, publish: Callable[[str, str], None]) -> str:
        """Write data to a temporary file, flush it and publish it."""
        published = False
        with self._reporting(path, lambda: published):
            file = self._file(path)
            directory = os.path.dirname(file)
            for attempt in range(_ATTEMPTS):
                self._make_directory(directory)
                self._sweep(directory)
                temporary = f"{directory}/{_TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
                try:
                    etag = self._write_temporary(temporary, data)
                    publish(temporary, file)
                    published = True
                    self._sync_directory(directory)
                    return etag
                except FileNotFoundError:
                    # Another process is removing the directory.
                    if published or attempt == _ATTEMPTS - 1:
                        raise
                finally:
                    with suppress(FileNotFoundError, NotADirectoryError):
                        os.unlink(temporary)
        raise AssertionError("unreachable")

    def _write_temporary(self, name: str, data: bytes) -> str:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            # The modification time is part of the etag. Its milliseconds are exact, and its lower bits are random. So
            # an object that was changed and changed back has another etag, even if the file system reused the inode
            # within one clock tick.
            now = time.time_ns() >> 20 << 20
            os.utime(descriptor, ns=(now, now | secrets.randbits(20)))
            if self._fsync:
                sync_file(descriptor)
            return _etag(data, os.fstat(descriptor))
        finally:
            os.close(descriptor)

    def _remove(self, path: str, check: Callable[[str], None]) -> bool:
        removed = False
        with self._reporting(path, lambda: removed):
            file = self._file(path)
            directory = os.path.dirname(file)
            if _stat(file) is None:
                return False
            try:
                with _locked(directory):
                    check(file)
                    os.unlink(file)
                    removed = True
            except _ABSENT:
                return False
            self._sync_directory(directory)
        return True

    def _expect(self, path: str, file: str, etag: str) -> None:
        stored = self._read(file)
        if stored is None or stored.etag != etag:
            raise ObjectChangedError(str(self._uri), path)

    def _read(self, file: str) -> StoredObject | None:
        try:
            descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except _ABSENT:
            return None
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return None
            with open(descriptor, "rb", buffering=0, closefd=False) as opened:
                data = opened.readall()
        finally:
            os.close(descriptor)
        return StoredObject(data, _etag(data, found))

    # Paths

    def _file(self, path: str) -> str:
        """Path of an object. Refuses symbolic links out of the root."""
        names = path.split("/")
        place = self._uri.path
        for name in names[:-1]:
            place = f"{place}/{name}"
            try:
                mode = os.lstat(place).st_mode
            except _ABSENT:
                break
            if stat.S_ISLNK(mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return self._uri.key(path)

    def _make_directory(self, directory: str) -> None:
        """Create a directory and its parents, each flushed before the next is created in it."""
        missing = []
        while not os.path.isdir(directory) and directory != os.path.dirname(directory):
            missing.append(directory)
            directory = os.path.dirname(directory)
        for made in reversed(missing):
            try:
                os.mkdir(made)
            except FileExistsError:
                if not os.path.isdir(made):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
                continue
            self._sync_directory(os.path.dirname(made))

    def _sync_directory(self, directory: str) -> None:
        if self._fsync:
            sync_directory(directory)

    def _sweep(self, directory: str) -> None:
        """Once per directory: remove temporary files that crashed writers left at least an hour ago."""
        if directory in self._swept:
            return
        self._swept.add(directory)
        _remove_leftovers(directory)

    @contextmanager
    def _reporting(self, path: str, published: Callable[[], bool] = lambda: False) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise os_failure(error, str(self._uri), path, in_effect=published()) from error

    def _no_hard_links(self, path: str) -> StorageError:
        return StorageError(
            "the file system has no hard links, so an object cannot be created exactly once",
            kind=StorageErrorKind.CONFIGURATION,
            uri=str(self._uri),
            path=path,
            hint="keep the graph on a file system with hard links, such as ext4, xfs, btrfs, apfs or nfs",
        )


def _files(directory: str, prefix: str) -> Iterator[ObjectInfo]:
    """The objects in a directory, in any order. Does not follow symbolic links."""
    for entry in _entries(directory):
        if entry.name.startswith(INTERNAL):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path, f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):  # just deleted
                yield _info(prefix + entry.name, entry.stat(follow_symlinks=False))


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Hold the write lock of a directory, among all threads and processes."""
    name = f"{directory}/{_LOCK}"
    while True:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                if _has_name(descriptor, name):
                    yield
                    return
            finally:
                # Unlock explicitly, because a forked child process keeps the descriptor open.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _has_name(descriptor: int, name: str) -> bool:
    """Whether an open lock file still has its name. If not, other processes lock a newer file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False


def _reclaim(directory: str) -> None:
    """Remove a directory with everything in it, but not the targets of symbolic links."""
    with suppress(FileNotFoundError), _locked(directory):
        _remove_directory(directory)


def _remove_directory(directory: str) -> None:
    for entry in list(_entries(directory)):
        if entry.is_dir(follow_symlinks=False):
            _reclaim(entry.path)
        elif entry.name != _LOCK:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
    os.unlink(f"{directory}/{_LOCK}")
    try:
        os.rmdir(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # not an error: another process has written a new object
            raise


def delete_empty(uri: GraphUri, prefix: str, before: datetime) -> None:
    """Remove directories below a prefix that have had no objects since a time.

    The prefix itself is removed as soon as it is empty. A concurrent writer creates it again.
    """
    directory = uri.key(normal_path(prefix))
    try:
        for entry in list(_entries(directory)):
            if entry.is_dir(follow_symlinks=False):
                _reclaim_empty(entry.path, before.timestamp())
        with suppress(FileNotFoundError, NotADirectoryError):
            os.rmdir(directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise os_failure(error, str(uri), prefix, in_effect=False) from error


def _reclaim_empty(directory: str, before: float) -> None:
    with suppress(FileNotFoundError):
        if os.stat(directory).st_mtime >= before:
            return
        for entry in list(_entries(directory)):
            if entry.is_dir(follow_symlinks=False):
                _reclaim_empty(entry.path, before)
        if _has_no_objects(directory):
            with _locked(directory):
                if _has_no_objects(directory):
                    _remove_directory(directory)


def delete_leftovers(uri: GraphUri, prefix: str) -> None:
    """Remove temporary files in a directory that crashed writers left at least an hour ago."""
    try:
        _remove_leftovers(uri.key(normal_path(prefix)))
    except OSError as error:
        raise os_failure(error, str(uri), prefix) from error


def _remove_leftovers(directory: str) -> None:
    stale = time.time() - _STALE_SECONDS
    for entry in _entries(directory):
        if entry.name.startswith(_TEMPORARY):
            with suppress(FileNotFoundError):
                if entry.stat(follow_symlinks=False).st_mtime < stale:
                    os.unlink(entry.path)


def _has_no_objects(directory: str) -> bool:
    """Whether a directory has no files except a lock file and temporary files of crashed writers."""
    stale = time.time() - _STALE_SECONDS
    return all(
        entry.name == _LOCK
        or (entry.name.startswith(_TEMPORARY) and entry.stat(follow_symlinks=False).st_mtime < stale)
        for entry in _entries(directory)
    )


def _entries(directory: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            yield from entries
    except _ABSENT:
        return


def _stat(file: str) -> os.stat_result | None:
    try:
        found = os.lstat(file)
    except _ABSENT:
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def _is_directory(place: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(place).st_mode)
    except _ABSENT:
        return False


def _etag(data: bytes, found: os.stat_result) -> str:
    return f"{blake2b(data, digest_size=12).hexdigest()}-{found.st_ino:x}-{found.st_mtime_ns:x}"


def _info(path: str, found: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, found.st_size, datetime.fromtimestamp(found.st_mtime, UTC))
