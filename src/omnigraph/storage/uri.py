"""Addresses of graphs: parsing and normalisation."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import field, replace
from enum import StrEnum
from urllib.parse import quote, unquote

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, cut
from omnigraph.storage.s3_settings import S3Settings

_SCHEME = re.compile(r"(file|s3|memory|https?)://(.*)", re.IGNORECASE | re.DOTALL)
_LIKE_A_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Scheme(StrEnum):
    """Kinds of locations."""

    LOCAL = "file"
    S3 = "s3"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class GraphUri:
    """The normalised address of a graph.

    Example:
        >>> str(GraphUri.parse("/data/./graphs/../papers/"))
        '/data/papers'
        >>> str(GraphUri.parse("s3://bucket//papers/"))
        's3://bucket/papers'

    Attributes:
        scheme: the kind of location.
        authority: the bucket, or the name of the memory store; empty for a directory.
        path: an absolute directory, or a prefix without slashes at its ends.
        storage_options: the caller's options to reach the location. May hold credentials, so it is never shown.
    """

    scheme: Scheme
    authority: str
    path: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, storage_options: Mapping[str, str] | None = None) -> GraphUri:
        """Parse an address.

        Args:
            text: a path, `file:///path`, `s3://bucket/prefix`, or `memory://name` (for tests: exists as long as the
                process).
            storage_options: options to reach the location; override the environment.

        Raises:
            InputError: it is not a valid graph address.
        """
        if not text or _CONTROL.search(text):
            raise InputError("the address of a graph is empty, or contains control characters", hint=_FORMS)
        options = dict(storage_options or {})
        match = _SCHEME.fullmatch(text)
        if match is None:
            unknown = _LIKE_A_SCHEME.match(text)
            if unknown is not None:
                raise InputError(f"{unknown[0]}… is not a valid address of a graph", hint=_FORMS)
            return cls(Scheme.LOCAL, "", _absolute(text), options)
        scheme, rest = match[1].lower(), match[2]
        if scheme.startswith("http"):
            raise InputError(
                f"{scheme}:// is the address of a server, not of a graph in storage",
                hint="give a path or s3://bucket/prefix",
            )
        host, slash, path = rest.partition("/")
        if scheme == "file":
            if host.lower() not in ("", "localhost") or not slash:
                raise InputError(
                    "a file address must have no host and an absolute path", hint="write file:///absolute/path"
                )
            return cls(Scheme.LOCAL, "", _absolute("/" + unquote(path)), options)
        return cls(Scheme(scheme), _authority(scheme, host), _prefix(scheme, path), options)

    def with_options(self, storage_options: Mapping[str, str]) -> GraphUri:
        """The same address with other options."""
        return replace(self, storage_options=dict(storage_options))

    def __str__(self) -> str:
        if self.scheme is Scheme.LOCAL:
            return self.path
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")

    @property
    def identity(self) -> str:
        """A text that is equal for all addresses of the same location. Resolves the symbolic links of a directory."""
        return os.path.realpath(self.path) if self.scheme is Scheme.LOCAL else str(self)

    def key(self, path: str) -> str:
        """A path below the root, as an object key in the bucket or memory, or as a file name."""
        return os.path.join(self.path, path) if path else self.path

    def lance_uri(self, path: str = "") -> str:
        """Address of a table below the root, for Lance."""
        key = self.key(path)
        if self.scheme is Scheme.LOCAL:
            return key
        scheme = "shared-memory" if self.scheme is Scheme.MEMORY else "s3"
        return f"{scheme}://{self.authority}" + (f"/{quote(key)}" if key else "")

    @property
    def lance_storage_options(self) -> dict[str, str]:
        """Storage options for Lance, so that it reaches the same location in the same way."""
        if self.scheme is not Scheme.S3:
            return {}
        return S3Settings.resolve(self.storage_options, os.environ).lance_options()


_FORMS = "give a path, file:///path or s3://bucket/prefix"


def _absolute(path: str) -> str:
    """Resolve `..` lexically: it removes the name before it."""
    absolute = os.path.normpath(os.path.join(os.getcwd(), path))
    return absolute[1:] if absolute.startswith("//") else absolute


def _authority(scheme: str, host: str) -> str:
    # Not shown in the message: the text before an @ may be a password.
    if "@" in host:
        raise InputError(
            "an address must not contain credentials",
            hint="remove the text before the @, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if not host or re.search(r"[\s?#%:\\]", host):
        what = "bucket" if scheme == "s3" else "name"
        raise InputError(f"the address has no valid {what}", hint=f"write {scheme}://{what}/prefix")
    return host


def _prefix(scheme: str, path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "?" in path or "#" in path:
        raise InputError(f"'..', '?' and '#' are not allowed in an {scheme}:// address", hint=_FORMS)
    return "/".join(parts)


def check_directory(uri: GraphUri) -> None:
    """Check that a local directory can be read.

    Raises:
        InputError: it is a file, or the directory cannot be read.
    """
    if uri.scheme is not Scheme.LOCAL:
        return
    try:
        found = os.stat(uri.path)
        if stat.S_ISDIR(found.st_mode):
            os.listdir(uri.path)
            return
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"cannot read {cut(str(uri))}: {error.strerror}", hint="check the address") from error
    raise InputError(f"{cut(str(uri))} is not a directory; a local graph is a directory", hint="check the address")
