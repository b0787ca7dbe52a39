"""HTTP: connections that are kept, one exchange at a time, with a deadline and a cancellation."""

# See docs/decisions/0320-the-client-uses-urllib3.md
# See docs/decisions/0322-writes-are-never-sent-twice.md

from __future__ import annotations

import http.client
import os
import re
import socket
import ssl
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from threading import Lock
from urllib.parse import SplitResult, urlsplit

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from omnigraph.client.error_bodies import READ_FIRST, error_of, strange_answer
from omnigraph.client.protocol import Settings
from omnigraph.client.proxies import proxy_for
from omnigraph.dataclass import dataclass
from omnigraph.errors import (
    CancelledError,
    ConfigurationError,
    NetworkError,
    OmnigraphError,
    OutcomeUnknownError,
    RequestTimeoutError,
    cut,
)
from omnigraph.read.budget import Cancellation

KEPT = 32
"""Maximum number of idle connections."""

_CONNECT_SECONDS = 30.0
HTTPS_PORT = 443
_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """A request to send.

    Attributes:
        path: the path, below the address of the server, with its query.
        writes: whether it can change the graph. If its answer is lost, its outcome is unknown.
        expected: the statuses that are no errors.
        media: the media type of the answer, if a stream of another type would look like the answer.
    """

    method: str
    path: str
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    writes: bool = False
    expected: tuple[int, ...] = (200,)
    media: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status, its headers with names in lower case, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Server:
    """The connections to one server. Thread-safe: each exchange has a connection of its own.

    Args:
        address: `http://host:port` or `https://host`, and the path of a proxy if there is one.
        token: the bearer token.

    Raises:
        ConfigurationError: this is no address of a server.
    """

    def __init__(self, address: str, token: str | None) -> None:
        parts = _parsed(address)
        if token is not None and (not token.isascii() or not token.isprintable() or " " in token or not token):
            raise ConfigurationError("the token has characters that no token has", hint="give the token alone")
        self.address = address
        self._secure = parts.scheme == "https"
        self._host, self._port = str(parts.hostname), parts.port
        self._prefix = parts.path.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._proxy = proxy_for(parts.scheme, self._host, self._port)
        if self._proxy is not None and not self._secure:  # such a proxy gets whole addresses
            self._headers |= self._proxy.headers
            self._prefix = f"{parts.scheme}://{parts.netloc}{self._prefix}"
        self._tls = ssl.create_default_context() if self._secure else None
        self._closed = False
        self._reset()

    def _reset(self) -> None:
        """Forget the connections. Those of the parent of a forked process are not closed, because it uses them."""
        self._idle: list[_Interruptible] = []
        self._lock = Lock()
        self._process = os.getpid()

    def send(self, message: Message, settings: Settings) -> Reply:
        """Send a request, and read its whole answer.

        Raises:
            OmnigraphError: the error that the server reports.
            NetworkError: the server was not reached, or the answer of a read was lost.
            OutcomeUnknownError: the answer of a write was lost.
            CancelledError: the call was cancelled.
        """
        with self._exchange(message, settings) as (reply, status, headers):
            return Reply(status, headers, b"".join(reply))

    def stream(self, message: Message, settings: Settings) -> Generator[bytes, None, None]:
        """The parts of the body of an answer. If the iteration ends early, the connection is closed."""
        with self._exchange(message, settings) as (reply, _, _):
            yield from reply

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _exchange(
        self, message: Message, settings: Settings
    ) -> Iterator[tuple[Iterator[bytes], int, Mapping[str, str]]]:
        deadline = None if settings.timeout is None else time.monotonic() + settings.timeout
        cancel = settings.cancel or Cancellation()
        connection = self._take()
        progress = _Progress()
        try:
            with cancel.calling(connection.interrupt):
                with _translated(message, cancel, progress):
                    answer = self._answer(connection, message, deadline, cancel, progress)
                    headers = {name.lower(): value for name, value in answer.headers.items()}
                    parts = _parts(connection, answer, deadline)
                    failed = None
                    if answer.status in message.expected:
                        _check_form(answer, headers, message)
                    else:
                        failed = error_of(answer.status, headers, b"".join(parts), writes=message.writes)
                if failed is not None:
                    progress.complete = True
                    raise failed
                translating = _translated_parts(parts, message, cancel, progress)
                with closing(translating):
                    yield translating, answer.status, headers
        finally:
            if progress.complete and not cancel.cancelled and not self._closed:
                self._keep(connection)
            else:
                connection.close()

    def _answer(
        self,
        connection: HTTPConnection,
        message: Message,
        deadline: float | None,
        cancel: Cancellation,
        progress: _Progress,
    ) -> BaseHTTPResponse:
        """Send a request, and wait for the head of its answer."""
        if not connection.is_connected:
            connection.close()  # which forgets the tunnel of an earlier connection
            if self._proxy is not None and self._secure:
                connection.set_tunnel(self._host, self._port or HTTPS_PORT, self._proxy.headers)
            connection.timeout = _left(deadline, _CONNECT_SECONDS)
            connection.connect()
        if cancel.cancelled:
            raise CancelledError("the call was cancelled")
        connection.timeout = _left(deadline)
        progress.sent = True
        connection.request(
            message.method,
            self._prefix + message.path,
            message.body,
            {**self._headers, **dict(message.headers)},
            preload_content=False,
            decode_content=False,
        )
        connection.timeout = _left(deadline)
        return connection.getresponse()

    def _take(self) -> _Interruptible:
        if self._process != os.getpid():
            self._reset()
        with self._lock:
            if self._closed:
                raise ConfigurationError("the client is closed", hint="connect again")
            if self._idle:
                return self._idle.pop()
        proxy = self._proxy
        host, port = (self._host, self._port) if proxy is None else (proxy.host, proxy.port)
        if not self._secure:
            return _PlainConnection(host, port)
        return _TlsConnection(host, port, ssl_context=self._tls)

    def _keep(self, connection: _Interruptible) -> None:
        with self._lock:
            if not self._closed and self._process == os.getpid() and len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()


def _parsed(address: str) -> SplitResult:
    """The parts of the address of a server.

    Raises:
        ConfigurationError: this is no address of a server. The message shows no password.
    """
    shown = re.sub(r"[?#].*", "", re.sub(r"//[^/]*@", "//…@", address), flags=re.DOTALL)
    wrong = ConfigurationError(
        f"'{cut(shown)}' is not the address of a server", hint="give http://HOST:PORT or https://HOST"
    )
    try:
        parts = urlsplit(address)
        if "@" in parts.netloc:
            raise ConfigurationError("the address of a server has no user and password", hint="give token=")
        is_named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise wrong from None
    is_plain = address.isprintable() and " " not in address and parts.path.isascii()
    if not is_named or not is_plain or parts.query or parts.fragment:
        raise wrong
    return parts


def _check_form(answer: BaseHTTPResponse, headers: Mapping[str, str], message: Message) -> None:
    """Check that an answer is of the expected type, and that the end of its body can be known.

    Raises:
        OmnigraphError: a body without a length ends where the connection ends, so nobody can tell whether it is whole;
            or something else than a server of graphs has answered.
    """
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_end = "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
    if (message.media is not None and media not in ("", message.media)) or not (has_end or message.method == "HEAD"):
        raise strange_answer(writes=message.writes)


class _Interruptible(HTTPConnection):
    """A connection that another thread can interrupt, also while it is being made.

    Attributes:
        connecting: the socket that is being connected.
        is_interrupted: whether no other address of the host is tried.
    """

    connecting: socket.socket | None = None
    is_interrupted = False

    def _new_conn(self) -> socket.socket:
        try:
            addresses = socket.getaddrinfo(self._dns_host, self.port, 0, socket.SOCK_STREAM)
        except UnicodeError:  # it has an empty label, or one of more than 63 characters
            raise OSError(f"'{cut(self.host)}' is not the name of a host") from None
        failed = OSError(f"there is no address of {self.host}")
        for family, kind, protocol, _, place in addresses:
            found = self.connecting = socket.socket(family, kind, protocol)
            try:
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                found.settimeout(self.timeout)
                found.connect(place)
                return found
            except OSError as error:
                found.close()
                failed = error
            finally:
                self.connecting = None
            if self.is_interrupted:
                break
        raise failed

    def interrupt(self) -> None:
        """End the waiting of the thread that uses the connection."""
        self.is_interrupted = True
        found = self.sock or self.connecting
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)


class _PlainConnection(_Interruptible):
    """A connection without TLS."""


class _TlsConnection(_Interruptible, HTTPSConnection):
    """A connection with TLS."""


class _Progress:
    """How far an exchange has come."""

    sent = False
    complete = False


def _left(deadline: float | None, most: float | None = None) -> float | None:
    """The seconds that are left, at most `most`."""
    if deadline is None:
        return most
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left if most is None else min(left, most)


def _parts(connection: HTTPConnection, answer: BaseHTTPResponse, deadline: float | None) -> Iterator[bytes]:
    """The parts of a body. The time for each read is what is left until the deadline."""
    chunks = answer.stream(_CHUNK)
    while True:
        if deadline is not None and connection.sock is not None:
            connection.sock.settimeout(_left(deadline))
        part = next(chunks, None)
        if part is None:
            return
        yield part


def _translated_parts(
    parts: Iterator[bytes], message: Message, cancel: Cancellation, progress: _Progress
) -> Generator[bytes, None, None]:
    while True:
        with _translated(message, cancel, progress):
            part = next(parts, None)
        if part is None:
            progress.complete = True
            return
        yield part


def _reason(error: Exception) -> str:
    """The text of an error without the Python objects and error numbers that urllib3 puts into it."""
    if "IncompleteRead" in str(error):
        return "the answer ended early"
    return re.sub(r"^\w+\(.*?\): |\[Errno -?\d+\] ", "", str(error))


@contextmanager
def _translated(message: Message, cancel: Cancellation, progress: _Progress) -> Iterator[None]:
    """Turn errors of the connection into errors of the family."""
    try:
        yield
    except OmnigraphError:
        raise
    except (OSError, HTTPError, http.client.HTTPException) as error:
        # The classes of urllib3 derive from neither of its causes, and a timeout can be any of the three.
        late = isinstance(error, TimeoutError) or "timed out" in str(error)
        reason = "the call was cancelled" if cancel.cancelled else "no answer in time" if late else _reason(error)
        if message.writes and progress.sent:
            raise OutcomeUnknownError(f"the answer to a write was lost: {reason}", hint=READ_FIRST) from error
        if cancel.cancelled:
            raise CancelledError(reason) from error
        if late:
            raise RequestTimeoutError("the server did not answer in time", hint="give a longer timeout") from error
        what = "the connection broke" if progress.sent else "the server cannot be reached"
        hint = "check that the server runs, then try again"
        if "WRONG_VERSION_NUMBER" in reason:  # what OpenSSL reports for an answer without TLS
            reason, hint = "it does not speak TLS", "write http:// in the address, or check the port"
        raise NetworkError(f"{what}: {reason}", hint=hint) from error
