"""One HTTP request to an embedding provider, with its retries, within a budget of time."""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import NoReturn
from urllib.parse import urlsplit

import orjson

from omnigraph.errors import EmbeddingError, EmbeddingUnavailableError

_LARGEST_ANSWER = 64 * 2**20
_LARGEST_EXPONENT = 10
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a request may take, all in seconds.

    Attributes:
        deadline: the budget of one request with all its attempts; None for no limit.
        timeout: the budget of one attempt.
        attempts: how often it is sent at most.
        backoff: the pause after the first attempt; each further one is twice as long.
    """

    deadline: float | None = 60.0
    timeout: float = 30.0
    attempts: int = 4
    backoff: float = 0.2


class _PassingError(Exception):
    """An attempt that failed in a way that passes."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the key to another host."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A provider's address. Its key is sent, and never shown.

    Attributes:
        base_url: where the provider's API begins.
        headers: sent with every request.
        secret: what must not appear in an error.
    """

    base_url: str
    headers: Mapping[str, str] = field(repr=False)
    secret: str | None = field(repr=False)
    limits: Limits
    _opener: urllib.request.OpenerDirector = field(
        default_factory=lambda: urllib.request.build_opener(_NoRedirects), repr=False
    )

    def __reduce__(self) -> tuple[type[Endpoint], tuple[object, ...]]:
        """What opens connections stays in its process: tasks elsewhere make their own."""
        return Endpoint, (self.base_url, dict(self.headers), self.secret, self.limits)

    @property
    def host(self) -> str:
        """What an error may say about the address: no credentials, no query."""
        parts = urlsplit(self.base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    def post(self, path: str, payload: object) -> object:
        """The decoded answer.

        Raises:
            EmbeddingUnavailableError: the provider was busy, failing or out of reach until the budget was used up.
            EmbeddingError: it refused the request, or answered what is not JSON.
        """
        body = orjson.dumps(payload)
        limits, started = self.limits, time.monotonic()
        for attempt in range(1, limits.attempts + 1):
            left = None if limits.deadline is None else limits.deadline - (time.monotonic() - started)
            timeout = limits.timeout if left is None else min(limits.timeout, left)
            try:
                answer = self._attempt(path, body, timeout)
                break
            except _PassingError as failure:
                pause = max(limits.backoff * 2 ** min(attempt - 1, _LARGEST_EXPONENT), failure.wait)
                spent = time.monotonic() - started
                if limits.deadline is not None and spent + pause >= limits.deadline:
                    raise self._unavailable(f"{failure}; no time is left to try again", attempt) from failure
                if attempt == limits.attempts:
                    raise self._unavailable(str(failure), attempt) from failure
                time.sleep(pause)
        try:
            return orjson.loads(answer)
        except orjson.JSONDecodeError:
            raise EmbeddingError(f"the embedding provider at {self.host} answered what is not JSON") from None

    def _unavailable(self, reason: str, attempts: int) -> EmbeddingUnavailableError:
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        return EmbeddingUnavailableError(
            f"the embedding provider at {self.host} could not be used: {reason} ({tries})",
            hint="nothing was written; try again later, or give it more time with OMNIGRAPH_EMBED_DEADLINE_MS",
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
            raise _PassingError(
                "it did not answer in time" if isinstance(reason, TimeoutError) else str(reason)
            ) from None
        except TimeoutError:
            raise _PassingError("it did not answer in time") from None
        except (OSError, http.client.HTTPException) as error:
            raise _PassingError(f"the connection broke ({type(error).__name__})") from None

    def _read(self, response: http.client.HTTPResponse, until: float) -> bytes:
        """The body, as long as it comes in time and has a sensible size."""
        parts: list[bytes] = []
        size = 0
        while part := response.read1(2**16):
            size += len(part)
            if size > _LARGEST_ANSWER:
                raise EmbeddingError(
                    f"the embedding provider at {self.host} answered more than {_LARGEST_ANSWER} bytes"
                )
            if time.monotonic() > until:
                raise TimeoutError
            parts.append(part)
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(parts)

    def _refused(self, error: urllib.error.HTTPError) -> NoReturn:
        if error.code == 429 or error.code >= 500:
            raise _PassingError(f"it answered {error.code}", _retry_after(error.headers.get("Retry-After")))
        if error.code in (401, 403):  # such an answer may quote the key
            raise EmbeddingError(
                f"the embedding provider at {self.host} answered {error.code}: it does not accept the key",
                hint="check the key in the provider's environment variable",
            )
        try:
            said = self._words(error.read(_SHOWN * 100))
        except (OSError, http.client.HTTPException):
            said = ""  # the refusal stands, whatever its reason was
        raise EmbeddingError(f"the embedding provider at {self.host} answered {error.code}{said}")

    def _words(self, answer: bytes) -> str:
        """What a refusal says, briefly and without the key."""
        text = answer.decode("utf-8", "replace")
        try:
            match orjson.loads(answer):
                case {"error": {"message": str(message)}} | {"error": str(message)} | {"message": str(message)}:
                    text = message
        except orjson.JSONDecodeError:
            pass  # then it is shown as it is
        if self.secret:
            text = text.replace(self.secret, "…")
        text = " ".join(text.split())
        return f": {text[:_SHOWN]}" if text else ""


def _retry_after(value: str | None) -> float:
    """How long a provider asks to wait: seconds, or until a date."""
    if value is None:
        return 0.0
    if value.strip().isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0
