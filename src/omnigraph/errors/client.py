"""Errors of clients: wrong settings, servers that do not answer, and answers that do not arrive in time."""

from __future__ import annotations

from omnigraph.errors.family import InputError, RetryableError


class ConfigurationError(InputError):
    """A client is not set up for a call: an address, a graph id or an option does not fit. Nothing was sent."""

    code = "configuration"


class NetworkError(RetryableError):
    """The server could not be reached, or the answer of a read broke off. Nothing was written."""

    code = "network"


class RequestTimeoutError(NetworkError):
    """The answer of a read did not arrive in time, or the connection was not made in time. Nothing was written."""

    code = "request_timeout"
