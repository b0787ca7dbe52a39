"""Errors of an S3 store, with their kind and a hint.

Messages of the store are not shown, since they may contain credentials: the message for a rejected signature quotes the
whole request.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from obstore.exceptions import (
    AlreadyExistsError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from omnigraph.errors import StorageError, StorageErrorKind

_Kind = StorageErrorKind
_LOOK_FIRST = "the write may or may not have taken effect: read the graph before trying again"

# The client's exceptions have only a message, so the status is parsed from it.

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_CONNECT = re.compile(r"kind: Connect\b|dns error|tcp connect error")

_CODES: dict[str, tuple[StorageErrorKind, str]] = {
    "NoSuchBucket": (_Kind.CONFIGURATION, "the bucket does not exist: create it, or check its name and the endpoint"),
    "InvalidAccessKeyId": (_Kind.CONFIGURATION, "check AWS_ACCESS_KEY_ID"),
    "SignatureDoesNotMatch": (_Kind.CONFIGURATION, "check AWS_SECRET_ACCESS_KEY"),
    "ExpiredToken": (_Kind.CONFIGURATION, "the session has expired: get new credentials"),
    "AccessDenied": (_Kind.CONFIGURATION, "the credentials do not allow this: check the policy of the bucket"),
    "PermanentRedirect": (_Kind.CONFIGURATION, "the bucket is in another region: set AWS_REGION"),
    "AuthorizationHeaderMalformed": (_Kind.CONFIGURATION, "the bucket may be in another region: set AWS_REGION"),
    "RequestTimeTooSkewed": (_Kind.CONFIGURATION, "set the clock of this machine"),
    "NotImplemented": (_Kind.CONFIGURATION, "the store lacks a feature that a graph needs; use another store"),
    "SlowDown": (_Kind.TRANSIENT, "the store is busy: try again later"),
    "ServiceUnavailable": (_Kind.TRANSIENT, "the store is busy: try again later"),
    "RequestLimitExceeded": (_Kind.TRANSIENT, "the store is busy: try again later"),
}


def is_missing(error: Exception) -> bool:
    """Whether the object does not exist, in a bucket that exists."""
    return isinstance(error, FileNotFoundError) and _code(error) != "NoSuchBucket"


def is_precondition(error: Exception) -> bool:
    """Whether the store refused a conditional request because its condition does not hold."""
    return isinstance(error, (AlreadyExistsError, PreconditionError)) and _code(error) != "NoSuchBucket"


def s3_failure(error: Exception, uri: str, path: str, *, write: bool, secrets: Iterable[str] = ()) -> StorageError:
    """The storage error for an exception of the S3 client.

    Args:
        error: the exception.
        uri: the root of the store.
        path: the object below it.
        write: whether the request was a write.
        secrets: values that must not be shown.
    """
    kind, reason, hint = _read(error)
    if write and kind is _Kind.TRANSIENT and not _not_applied(error):
        kind, hint = _Kind.UNKNOWN, _LOOK_FIRST
    for secret in secrets:
        reason = reason.replace(secret, "***")
    return StorageError(reason, kind=kind, uri=uri, path=path, hint=hint)


def _read(error: Exception) -> tuple[StorageErrorKind, str, str]:
    text = str(error)
    code = _code(error)
    status = _status(text)
    answer = f"the store answered {status}" + (f" {code}" if code else "") if status else ""
    if code in _CODES:
        kind, hint = _CODES[code]
        return kind, answer or f"the store answered {code}", hint
    if isinstance(error, UnknownConfigurationKeyError):
        key = re.search(r"key: '([\w.-]{1,64})'", text)
        return _Kind.CONFIGURATION, f"there is no storage option {key[1] if key else ''}".rstrip(), "check its spelling"
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)) or status in (401, 403):
        return (
            _Kind.CONFIGURATION,
            answer or "the store refused the credentials",
            "check the credentials and the policy",
        )
    if isinstance(error, (NotSupportedError, NotImplementedError)) or status in (405, 501):
        return (
            _Kind.CONFIGURATION,
            answer or "the store does not support the request",
            "use a store with conditional writes",
        )
    if isinstance(error, InvalidPathError):
        return _Kind.PERMANENT, "no object can have this name", "use another name"
    if status in (301, 302, 307, 308):
        return _Kind.CONFIGURATION, answer, "check the endpoint and AWS_REGION"
    if status in (408, 425, 429) or (status or 0) >= 500:
        return _Kind.TRANSIENT, answer, "try again later"
    if status:
        return _Kind.PERMANENT, answer, "check the endpoint: is it an S3 store?"
    if _CONNECT.search(text):
        return _Kind.TRANSIENT, "the store cannot be reached", "check the endpoint and the network, then try again"
    if "redirect" in text:
        return (
            _Kind.CONFIGURATION,
            "the store redirects to another address",
            "the bucket may be in another region: set AWS_REGION",
        )
    if "BadScheme" in text or "builder error" in text:
        return _Kind.CONFIGURATION, "the endpoint cannot be used", "write it as https://host or http://host:port"
    if "redential" in text or "metadata" in text:
        return _Kind.CONFIGURATION, "no credentials were found", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    if "HTTP error" in text or "imed out" in text or isinstance(error, TimeoutError):
        return _Kind.TRANSIENT, "the connection to the store failed or timed out", "try again later"
    return _Kind.UNKNOWN, f"the client failed with {type(error).__name__}", _LOOK_FIRST


def _not_applied(error: Exception) -> bool:
    """Whether a failed write certainly had no effect: it did not reach the store, or was rejected."""
    text = str(error)
    return bool(_CONNECT.search(text)) or _code(error) in _CODES or _status(text) in (408, 425, 429)


def _code(error: Exception) -> str | None:
    found = _CODE.search(str(error))
    return found[1] if found else None


def _status(text: str) -> int | None:
    found = _STATUS.search(text)
    return int(found[1]) if found else None
