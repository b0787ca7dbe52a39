"""Errors of the operating system as storage errors, with their kind and a hint."""

from __future__ import annotations

import errno

from omnigraph.errors import FlushFailedError, StorageError, StorageErrorKind
from omnigraph.storage.objects.durable import FlushError

_Kind = StorageErrorKind

_OS_KINDS: dict[int, tuple[StorageErrorKind, str]] = {
    errno.EACCES: (_Kind.CONFIGURATION, "check the permissions of the file and of its directory"),
    errno.EPERM: (_Kind.CONFIGURATION, "check the permissions of the file and of its directory"),
    errno.EROFS: (_Kind.CONFIGURATION, "the file system is mounted read-only"),
    errno.ELOOP: (
        _Kind.CONFIGURATION,
        "symbolic links below the root of a graph are not followed; use a real directory",
    ),
    errno.ENOENT: (_Kind.NOT_FOUND, "check the address of the graph; the file may have been deleted meanwhile"),
    errno.EISDIR: (_Kind.PERMANENT, "there is a directory of this name"),
    errno.ENOTDIR: (_Kind.PERMANENT, "there is a file where a directory is needed"),
    errno.ENAMETOOLONG: (_Kind.PERMANENT, "use shorter names"),
    errno.ENOSPC: (
        _Kind.PERMANENT,
        "the disk is full: free disk space, for example with 'omnigraph cleanup', then try again",
    ),
    errno.EDQUOT: (_Kind.PERMANENT, "the disk quota is exceeded: free disk space, then try again"),
    errno.EMFILE: (_Kind.TRANSIENT, "this process has too many files open; try again, or raise its limit"),
    errno.ENFILE: (_Kind.TRANSIENT, "the system has too many files open; try again"),
    errno.ENOMEM: (_Kind.TRANSIENT, "out of memory; try again"),
    errno.EAGAIN: (_Kind.TRANSIENT, "try again"),
    errno.EBUSY: (_Kind.TRANSIENT, "try again"),
    errno.ESTALE: (_Kind.TRANSIENT, "the file handle of the network file system is stale; try again"),
    errno.ETIMEDOUT: (_Kind.TRANSIENT, "the network file system does not answer; try again"),
}


_SAYS_ENOUGH = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}
)


def os_advice(number: int) -> tuple[StorageErrorKind, str] | None:
    """Kind and hint for an error number of the operating system; None if the number does not show the cause."""
    return _OS_KINDS[number] if number in _SAYS_ENOUGH else None


def refuse_forbidden(error: OSError, uri: str, path: str) -> None:
    """Raise an error for a file without read permission, which must not be reported as damaged.

    Raises:
        StorageError: the permission is missing.
    """
    if error.errno in (errno.EACCES, errno.EPERM):
        raise os_failure(error, uri, path) from error


def os_failure(error: OSError, uri: str, path: str, *, in_effect: bool = False) -> StorageError:
    """The storage error for an error of the operating system.

    Args:
        error: the error.
        uri: the root of the store.
        path: the object below it.
        in_effect: whether the write is already visible, so that only its durability is uncertain.
    """
    kind, hint = _OS_KINDS.get(error.errno or 0, (_Kind.PERMANENT, "check the disk and the system log"))
    reason = (error.strerror or "input/output error").lower()
    if isinstance(error, FlushError):
        where = "" if error.filename is None else f" ({error.filename})"
        hint = "check the disk and the system log" if kind is _Kind.NOT_FOUND else hint
        return FlushFailedError(f"{reason}{where}", uri=uri, path=path, in_effect=in_effect, hint=hint)
    if in_effect:
        kind, hint = _Kind.UNKNOWN, f"the write is visible, but may not survive a power failure: {hint}"
    return StorageError(reason, kind=kind, uri=uri, path=path, hint=hint)
