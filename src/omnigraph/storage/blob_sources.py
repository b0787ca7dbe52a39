"""External blobs: normalise the addresses of their sources, look up sizes, and read the content."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import BinaryIO, TypeVar
from urllib.parse import quote, unquote

from omnigraph.dataclass import dataclass
from omnigraph.errors import ObjectNotFoundError, OmnigraphError
from omnigraph.storage.objects import open_store
from omnigraph.storage.objects.contract import ObjectStore
from omnigraph.storage.uri import GraphUri, Scheme

T = TypeVar("T")

_FORM = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(.*)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SEPARATOR = re.compile(r"%(2f|5c)", re.IGNORECASE)
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PLAIN = "!$&'()*+,;=:@~"
_SHOWN = 200


class UnusableUriError(ValueError):
    """A string is not a valid source address. The message does not quote it, since it may contain a password."""


@dataclass(frozen=True, slots=True)
class SourceUri:
    """The normalised address of a source (a file or object), or of a directory. It is equal for all spellings.

    Example:
        >>> str(SourceUri.parse("S3://assets/fleet/a b.jpg"))
        's3://assets/fleet/a%20b.jpg'
        >>> SourceUri.parse("s3://assets/fleet/../secret")
        Traceback (most recent call last):
        ...
        omnigraph.storage.blob_sources.UnusableUriError: it has dot segments
    """

    scheme: Scheme
    authority: str
    names: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, *, directory: bool = False) -> SourceUri:
        """Parse an address.

        Args:
            text: the text.
            directory: whether it is a directory, which may end with a slash.

        Raises:
            UnusableUriError: it is not a valid source address.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise UnusableUriError("it is not an absolute address")
        scheme, authority, path, rest = match[1].lower(), match[2], match[3], match[4]
        _check_parts(scheme, authority, path, rest)
        if directory:
            path = path.removesuffix("/")
        names = tuple(_name(part) for part in path.split("/")[1:])
        if not names and not directory:
            raise UnusableUriError("it has no path")
        return cls(Scheme(scheme), authority, names)

    def contains(self, other: SourceUri) -> bool:
        """Whether another address is below this one."""
        depth = len(self.names)
        return (
            (self.scheme, self.authority) == (other.scheme, other.authority)
            and len(other.names) > depth
            and other.names[:depth] == self.names
        )

    @property
    def path(self) -> str:
        """The file path, or the key in the bucket."""
        return ("/" if self.scheme is Scheme.LOCAL else "") + "/".join(self.names)

    def __str__(self) -> str:
        return f"{self.scheme.value}://{self.authority}/" + "/".join(quote(name, safe=_PLAIN) for name in self.names)


def _check_parts(scheme: str, authority: str, path: str, rest: str) -> None:
    if scheme not in (Scheme.S3.value, Scheme.LOCAL.value):
        raise UnusableUriError("only s3:// and file:// addresses can be sources")
    if rest:
        raise UnusableUriError("it has a query or a fragment")
    if "@" in authority:
        raise UnusableUriError("it has user information")
    if ":" in authority:
        raise UnusableUriError("it has a port")
    if "\\" in authority + path or _SEPARATOR.search(path):
        raise UnusableUriError("it has a backslash or an encoded separator")
    if scheme == Scheme.LOCAL.value and authority:
        raise UnusableUriError("a file address has no host: write file:///directory/name")
    if scheme == Scheme.S3.value and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", authority):
        raise UnusableUriError("it has no bucket")


def _name(part: str) -> str:
    """One unescaped path segment."""
    if _BROKEN_ESCAPE.search(part):
        raise UnusableUriError("it has a % without two hexadecimal digits after it; write %25 for a percent sign")
    try:
        name = unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise UnusableUriError("its %-escaped bytes are not UTF-8") from None
    if name in (".", ".."):
        raise UnusableUriError("it has dot segments")
    if not name:
        raise UnusableUriError("it has an empty segment")
    if _CONTROL.search(name):
        raise UnusableUriError("it has control characters")
    return name


def redacted(text: str) -> str:
    """An address for display: without user information, query and fragment, and shortened."""
    match = _FORM.fullmatch(text)
    if match is None:
        return "the reference"
    scheme, authority, path, _ = match.groups()
    shown = _CONTROL.sub("�", f"{scheme}://{authority.rpartition('@')[2]}{path}")
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


class SourceFailedError(Exception):
    """A source could not be read. The message is the reason."""


@dataclass(slots=True)
class BlobSources:
    """Reads sources. Safe to use from many threads.

    Attributes:
        options: options of the S3 store; override the environment.
    """

    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    _buckets: dict[str, ObjectStore] = field(default_factory=dict, repr=False)

    def size(self, source: SourceUri) -> int:
        """Size of a source in bytes.

        Raises:
            SourceFailedError: it does not exist, or cannot be read.
        """
        if source.scheme is Scheme.LOCAL:
            with _opened(source.path) as file:
                return os.fstat(file.fileno()).st_size
        return self._request(source, lambda bucket: bucket.head(source.path).size)

    def read(self, source: SourceUri) -> bytes:
        """Read a whole source.

        Raises:
            SourceFailedError: it cannot be read.
        """
        if source.scheme is Scheme.LOCAL:
            with _opened(source.path) as file:
                return file.read()
        return self._request(source, lambda bucket: bucket.get(source.path).data)

    def check_directory(self, source: SourceUri) -> None:
        """Check that a directory of sources exists. Does not check buckets.

        Raises:
            SourceFailedError: it does not exist.
        """
        if source.scheme is Scheme.LOCAL and not os.path.isdir(source.path):
            raise SourceFailedError("there is no such directory")

    def resolved(self, source: SourceUri) -> SourceUri:
        """Resolve the symbolic links of a file path. Returns other addresses unchanged."""
        if source.scheme is not Scheme.LOCAL:
            return source
        names = os.path.realpath(source.path).split("/")[1:]
        return SourceUri(source.scheme, source.authority, tuple(name for name in names if name))

    def _request(self, source: SourceUri, request: Callable[[ObjectStore], T]) -> T:
        try:
            bucket = self._buckets.get(source.authority)
            if bucket is None:
                bucket = open_store(GraphUri(Scheme.S3, source.authority, "", self.options))
                self._buckets[source.authority] = bucket
            return request(bucket)
        except ObjectNotFoundError:
            reason = "there is no such object"
        except OmnigraphError as error:
            reason = error.message.removeprefix(f"s3://{source.authority}/{source.path}: ")
        raise SourceFailedError(reason)


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    """Open a file. Fails for a symbolic link: the caller has resolved all links and then checked the path."""
    try:
        # Open without blocking: otherwise opening a pipe would wait until another process writes to it.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise SourceFailedError("it is not a file")
            with os.fdopen(handle, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(handle)
    except OSError as error:
        raise SourceFailedError(error.strerror or "it cannot be read") from None
