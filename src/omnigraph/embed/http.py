"""HTTP requests to an embedding provider, with retries and a deadline."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import field
from email.utils import parsedate_to_datetime
from typing import NoReturn
from urllib.parse import urlsplit

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.errors import EmbeddingError, EmbeddingUnavailableError

MAX_RESPONSE_BYTES = 64 * 2**20
"""Maximum size of a response of a provider."""

_MAX_BACKOFF_EXPONENT = 10
_SHOWN_CHARACTERS = 200

_LEAST_SECONDS = 0.001
"""Time for an attempt whose deadline has passed before it begins. A socket takes no negative time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits of a request, in seconds, and the number of attempts.

    Attributes:
        deadline: the time limit of a request with all its attempts; None for no limit.
        timeout: the time limit of one attempt.
        attempts: the maximum number of attempts.
        backoff: the pause after the first attempt. Each further pause is twice as long.
    """

    deadline: float | None = 60.0
    timeout: float = 30.0
    attempts: int = 4
    backoff: float = 0.2


class _TransientError(Exception):
    """An attempt failed for a temporary reason."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects. A redirect would send the API key to another host."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a provider. Errors never contain its API key.

    Attributes:
        base_url: the base URL of the API.
        headers: the headers of every request.
        secret: the API key. It must not appear in errors.
    """

    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    secret: str | None = field(repr=False)
    limits: Limits
    _opener: urllib.request.OpenerDirector = field(
        default_factory=lambda: urllib.request.build_opener(_NoRedirects), repr=False
    )

    def __reduce__(self) -> tuple[type[Endpoint], tuple[object, ...]]:
        """Pickle without the connection opener. Other processes create their own."""
        return Endpoint, (self.base_url, dict(self.headers), self.secret, self.limits)

    @property
    def host(self) -> str:
        """Host and port, for error messages: without credentials and query."""
        parts = urlsplit(self.base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    def post(self, path: str, payload: object) -> object:
        """Send a request and return the decoded response.

        Raises:
            EmbeddingUnavailableError: the provider was busy, failing or not reachable until the deadline.
            EmbeddingError: the provider refused the request, or its response is not JSON.
        """
        body = orjson.dumps(payload)
        limits, started = self.limits, time.monotonic()
        for attempt in range(1, limits.attempts + 1):
            left = None if limits.deadline is None else limits.deadline - (time.monotonic() - started)
            timeout = limits.timeout if left is None else min(limits.timeout, max(left, _LEAST_SECONDS))
            try:
                answer = self._attempt(path, body, timeout)
                break
            except _TransientError as failure:
                pause = max(limits.backoff * 2 ** min(attempt - 1, _MAX_BACKOFF_EXPONENT), failure.wait)
                spent = time.monotonic() - started
                if limits.deadline is not None and spent + pause >= limits.deadline:
                    raise self._unavailable(f"{failure}; the deadline leaves no time for a retry", attempt) from failure
                if attempt == limits.attempts:
                    raise self._unavailable(str(failure), attempt) from failure
                time.sleep(pause)
        try:
            return orjson.loads(answer)
        except orjson.JSONDecodeError:
            raise EmbeddingError(f"the answer of the embedding provider at {self.host} is not JSON") from None

    def _unavailable(self, reason: str, attempts: int) -> EmbeddingUnavailableError:
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        return EmbeddingUnavailableError(
            f"the embedding provider at {self.host} failed: {reason} ({tries})",
            hint="nothing was written; try again later, or raise OMNIGRAPH_EMBED_DEADLINE_MS",
        )

    def _attempt(self, path: str, body: bytes, timeout: float) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self.headers}
        request = urllib.request.Request(f"{self.base_url}{path}", body, headers, method="POST")
        until = time.monotonic() + timeout
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return self._read(response, until)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error)
        except urllib.error.URLError as error:
            reason = error.reason
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise EmbeddingError(
                    f"the certificate of {self.host} is not trusted: {reason.verify_message}"
                ) from None
            raise _TransientError("timeout" if isinstance(reason, TimeoutError) else str(reason)) from None
        except TimeoutError:
            raise _TransientError("timeout") from None
        except (OSError, http.client.HTTPException) as error:
            raise _TransientError(f"connection lost ({type(error).__name__})") from None

    def _read(self, response: http.client.HTTPResponse, until: float) -> bytes:
        """Read the body, with a time limit and a size limit."""
        parts: list[bytes] = []
        size = 0
        while part := response.read1(2**16):
            size += len(part)
            if size > MAX_RESPONSE_BYTES:
                raise EmbeddingError(
                    f"the answer of the embedding provider at {self.host} has more than {MAX_RESPONSE_BYTES} bytes"
                )
            if time.monotonic() > until:
                raise TimeoutError
            parts.append(part)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(parts)

    def _refused(self, error: urllib.error.HTTPError) -> NoReturn:
        if error.code == 429 or error.code >= 500:
            raise _TransientError(f"HTTP status {error.code}", _retry_after(error.headers.get("Retry-After")))
        if error.code in (401, 403):  # do not quote this response: it may contain the API key
            raise EmbeddingError(
                f"the embedding provider at {self.host} answered with HTTP status {error.code}: invalid API key",
                hint="check the key in the provider's environment variable",
            )
        try:
            reason = self._reason(error.read(_SHOWN_CHARACTERS * 100))
        except (OSError, http.client.HTTPException):
            reason = ""  # the response cannot be read: report the HTTP status only
        raise EmbeddingError(f"the embedding provider at {self.host} answered with HTTP status {error.code}{reason}")

    def _reason(self, answer: bytes) -> str:
        """The reason that the provider gives in its response, truncated and without the API key."""
        text = answer.decode("utf-8", "replace")
        try:
            match orjson.loads(answer):
                case {"error": {"message": str(message)}} | {"error": str(message)} | {"message": str(message)}:
                    text = message
        except orjson.JSONDecodeError:
            pass  # the response is not JSON: show its text as it is
        if self.secret:
            text = text.replace(self.secret, "…")
        text = " ".join(text.split())
        return f": {text[:_SHOWN_CHARACTERS]}" if text else ""


def _retry_after(value: str | None) -> float:
    """The seconds to wait, from a `Retry-After` header with seconds or a date."""
    if value is None:
        return 0.0
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
