"""Addresses of graphs: what a user may write, and what it means."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from urllib.parse import quote, unquote

from omnigraph.errors import InputError, cut
from omnigraph.storage.s3_settings import S3Settings

_SCHEME = re.compile(r"(file|s3|memory|https?)://(.*)", re.IGNORECASE | re.DOTALL)
_LIKE_A_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Scheme(StrEnum):
    """The kinds of places that a graph can lie in."""

    LOCAL = "file"
    S3 = "s3"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class GraphUri:
    """The address of a graph, in one spelling. Two addresses of the same spelling are equal.

    Example:
        >>> str(GraphUri.parse("/data/./graphs/../papers/"))
        '/data/papers'
        >>> str(GraphUri.parse("s3://bucket//papers/"))
        's3://bucket/papers'

    Attributes:
        scheme: the kind of place.
        authority: the bucket, or the name of the memory; empty for a directory.
        path: an absolute directory, or a prefix without slashes at its ends.
        storage_options: what the caller said about reaching the place. May hold credentials, so it is never shown.
    """

    scheme: Scheme
    authority: str
    path: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def parse(cls, text: str, storage_options: Mapping[str, str] | None = None) -> GraphUri:
        """Read an address as a user writes it.

        Args:
            text: a path, `file:///path`, `s3://bucket/prefix`, or `memory://name` (for tests: lives and dies with
                the process).
            storage_options: how to reach the place; overrides the environment.

        Raises:
            InputError: no graph can lie there.
        """
        if not text or _CONTROL.search(text):
            raise InputError("the address of a graph is empty or has control characters in it", hint=_FORMS)
        options = dict(storage_options or {})
        match = _SCHEME.fullmatch(text)
        if match is None:
            unknown = _LIKE_A_SCHEME.match(text)
            if unknown is not None:
                raise InputError(f"a graph cannot lie at {unknown[0]}…", hint=_FORMS)
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
                raise InputError("a file address has no host and an absolute path", hint="write file:///absolute/path")
            return cls(Scheme.LOCAL, "", _absolute("/" + unquote(path)), options)
        return cls(Scheme(scheme), _authority(scheme, host), _prefix(scheme, path), options)

    def with_options(self, storage_options: Mapping[str, str]) -> GraphUri:
        """The same address, reached in another way."""
        return replace(self, storage_options=dict(storage_options))

    def __str__(self) -> str:
        if self.scheme is Scheme.LOCAL:
            return self.path
        return f"{self.scheme}://{self.authority}" + (f"/{self.path}" if self.path else "")

    @property
    def identity(self) -> str:
        """The same text for every spelling of one place; for a directory, symbolic links are resolved."""
        return os.path.realpath(self.path) if self.scheme is Scheme.LOCAL else str(self)

    def key(self, path: str) -> str:
        """A path below the root, as the name of an object in the bucket or memory, or as a file name."""
        return os.path.join(self.path, path) if path else self.path

    def lance_uri(self, path: str = "") -> str:
        """What Lance takes as the address of a table below the root."""
        key = self.key(path)
        if self.scheme is Scheme.LOCAL:
            return key
        scheme = "shared-memory" if self.scheme is Scheme.MEMORY else "s3"
        return f"{scheme}://{self.authority}" + (f"/{quote(key)}" if key else "")

    @property
    def lance_storage_options(self) -> dict[str, str]:
        """What Lance takes as storage options, so that it reaches the same place in the same way."""
        if self.scheme is not Scheme.S3:
            return {}
        return S3Settings.resolve(self.storage_options, os.environ).lance_options()


_FORMS = "give a path, file:///path or s3://bucket/prefix"


def _absolute(path: str) -> str:
    """Lexical: `..` takes away the name before it, whatever that is."""
    absolute = os.path.normpath(os.path.join(os.getcwd(), path))
    return absolute[1:] if absolute.startswith("//") else absolute


def _authority(scheme: str, host: str) -> str:
    # Not shown in the message: what stands before an @ may be a password.
    if "@" in host:
        raise InputError(
            "an address holds no credentials",
            hint="take out what stands before the @, and set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if not host or re.search(r"[\s?#%:\\]", host):
        what = "bucket" if scheme == "s3" else "name"
        raise InputError(f"the address names no {what}", hint=f"write {scheme}://{what}/prefix")
    return host


def _prefix(scheme: str, path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "?" in path or "#" in path:
        raise InputError(f"'..', '?' and '#' have no place in an {scheme}:// address", hint=_FORMS)
    return "/".join(parts)


def check_directory(uri: GraphUri) -> None:
    """See whether a graph on this machine can be looked for at all.

    Raises:
        InputError: there is a file in its place, or the directory cannot be read.
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
    raise InputError(f"{cut(str(uri))} is not a directory, and a graph is one", hint="check the address")
