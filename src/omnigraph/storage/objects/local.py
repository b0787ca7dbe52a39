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
from omnigraph.storage.objects.contract import INTERNAL, PIECE, ObjectInfo, ObjectList, StoredObject, normal_path
from omnigraph.storage.objects.durable import sync_directory, sync_file, sync_tree
from omnigraph.storage.objects.os_failures import os_failure
from omnigraph.storage.uri import GraphUri

_LOCK = f"{INTERNAL}lock"
_TEMPORARY = f"{INTERNAL}tmp-"
_STALE_SECONDS = 3600
_FILES = f"{INTERNAL}files"
"""Where files lie until they are whole, that are meant for the directories of tables: nothing of ours lies there."""
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NO_HARD_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
_ATTEMPTS = 16


class LocalObjectStore:
    """A directory. Each object is a file that is never changed in place.

    A write goes to a temporary file beside the object and is then renamed (or, to create, linked) into place, so a
    reader that opened the file keeps what it opened. Writers that depend on what is there (`replace`, `delete_if`)
    and those that could come between their look and their act (`put`, `delete`) take turns under a `flock` on a file
    in the object's directory. The kernel gives that lock up when its process dies.

    Args:
        uri: the directory; it is made by the first write.
        fsync: whether a write that returned survives a power failure.
    """

    def __init__(self, uri: GraphUri, *, fsync: bool = True) -> None:
        self._uri = uri
        self._fsync = fsync
        self._swept: set[str] = set()

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
        """The content of a file of any size, piece by piece.

        Raises:
            ObjectNotFoundError: there is none.
        """
        path = normal_path(path)
        with self._reporting(path):
            try:
                with open(self._file(path), "rb", buffering=0) as opened:
                    while piece := opened.read(PIECE):
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
        """Write a file of any size, piece by piece, replacing what is there when the block ends well.

        It is not forced to disk: `sync_files` does that for many files at once.
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
        """Flush files that Lance wrote, and the directories above them up to the root; nothing without `fsync`."""
        if not self._fsync:
            return
        paths = [normal_path(path, root=True) for path in paths]
        with self._reporting(paths[0] if len(paths) == 1 else ""):
            sync_tree(self._uri.path, paths, levels)

    # The steps of a write

    def _write(self, path: str, data: bytes, publish: Callable[[str, str], None]) -> str:
        """Put data into a temporary file and have it published; what is published is complete and flushed."""
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
                    # Somebody reclaims the directory at this very moment.
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
            # The time of the file becomes its version: exact to a millisecond, random below. So an object that was
            # changed and changed back differs, even if the file system used the same inode within one clock tick.
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

    # Places

    def _file(self, path: str) -> str:
        """Where an object lies, refusing to be led out of the root by a symbolic link."""
        names = path.split("/")
        place = self._uri.path
        for name in names[:-1]:
            place = os.path.join(place, name)
            try:
                mode = os.lstat(place).st_mode
            except _ABSENT:
                break
            if stat.S_ISLNK(mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        return self._uri.key(path)

    def _make_directory(self, directory: str) -> None:
        """A directory and all above it, each durable before the next is made in it."""
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
        """Once per directory: remove what writers left behind that were killed an hour ago or earlier."""
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
    """The objects in a directory, in any order. Symbolic links are not followed."""
    for entry in _entries(directory):
        if entry.name.startswith(INTERNAL):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path, f"{prefix}{entry.name}/")
        elif entry.is_file(follow_symlinks=False):
            with suppress(FileNotFoundError):  # deleted meanwhile
                yield _info(prefix + entry.name, entry.stat(follow_symlinks=False))


@contextmanager
def _locked(directory: str) -> Iterator[None]:
    """Be the only writer in a directory, among all threads and processes."""
    name = f"{directory}/{_LOCK}"
    while True:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            try:
                if _is_at(descriptor, name):
                    yield
                    return
            finally:
                # Explicitly, because a child that was forked meanwhile keeps the descriptor open.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, name: str) -> bool:
    """Whether the lock that was waited for is still the one that others would take."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False


def _reclaim(directory: str) -> None:
    """Remove a directory with all that is in it, but not what symbolic links in it point at."""
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
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # else: a new object arrived
            raise


def delete_empty(uri: GraphUri, prefix: str, before: datetime) -> None:
    """Remove the directories below a prefix in which no object is, and has been since a time.

    That of the prefix goes as soon as it is empty. Who writes there at this very moment makes it again.
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
        if _holds_nothing(directory):
            with _locked(directory):
                if _holds_nothing(directory):
                    _remove_directory(directory)


def delete_leftovers(uri: GraphUri, prefix: str) -> None:
    """Remove the temporary files in a directory that writers left behind who were killed an hour ago or earlier."""
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


def _holds_nothing(directory: str) -> bool:
    """Whether a directory has a lock at most, and what writers left behind that were killed."""
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
