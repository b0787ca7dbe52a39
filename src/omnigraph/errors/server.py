"""Errors of the HTTP layer of the server: identity, permission, methods, media types and admission."""

from __future__ import annotations

from omnigraph.errors.family import InputError, RetryableError


class UnauthorizedError(InputError):
    """A request has no bearer token, or its token is not valid."""

    code = "unauthorized"


class ForbiddenError(InputError):
    """The policy does not allow the actor to make this request. Nothing happened."""

    code = "forbidden"


class MethodNotAllowedError(InputError):
    """The route does not answer this HTTP method.

    Attributes:
        allowed: the methods that the route answers.
    """

    code = "method_not_allowed"

    def __init__(self, method: str, allowed: tuple[str, ...]) -> None:
        super().__init__(f"this route does not answer {method}", hint=f"use {' or '.join(allowed)}")
        self.allowed = allowed


class MediaTypeError(InputError):
    """The body of a request has a media type that the route does not read."""

    code = "unsupported_media_type"


class TooManyRequestsError(RetryableError):
    """The actor has too many requests in flight, or requests that are too large together. Nothing happened.

    Attributes:
        retry_after: seconds to wait before the request is sent again.
    """

    code = "too_many_requests"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, hint=f"send it again after {retry_after} seconds")
        self.retry_after = retry_after
