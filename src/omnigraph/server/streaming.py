"""Streamed answers: an iterator runs in a thread, one part at a time, only as fast as the client reads."""

# See docs/decisions/0371-large-json-is-sent-in-parts.md

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, aclosing, suppress

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from omnigraph.errors import OmnigraphError
from omnigraph.read.budget import Cancellation
from omnigraph.server.work import UNLIMITED, limited

CHUNK_BYTES = 64 * 1024
"""Approximate size of the parts that are sent."""


def chunked(pieces: Iterator[bytes], size: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Join small pieces and split large ones into parts of about `size` bytes.

    >>> list(chunked(iter([b"a", b"bc", b"defgh"]), 3))
    [b'abc', b'def', b'gh']
    """
    held: list[bytes] = []
    length = 0
    try:
        for piece in pieces:
            held.append(piece)
            length += len(piece)
            if length >= size:
                joined = memoryview(b"".join(held))
                whole = length - length % size
                for start in range(0, whole, size):
                    yield bytes(joined[start : start + size])
                held, length = ([bytes(joined[whole:])], length - whole) if length > whole else ([], 0)
        if held:
            yield b"".join(held)
    finally:
        close = getattr(pieces, "close", None)
        if close is not None:
            close()


class Stream(Response):
    """A response whose parts come from an iterator that runs in a thread.

    At most two parts are in memory: one is being sent, and the next is being produced. If the client leaves, the part
    that is being produced is cancelled, and the iterator is closed. A client that does not read for too long is
    disconnected by the protocol.

    Args:
        parts: the parts. They are produced in the pool.
        pool: the threads.
        media_type: the media type.
        cancel: cancelled when the client leaves.
        held: what the stream holds, such as admission. It is closed at the end.
        headers: more headers. Without `Content-Length` the parts are sent as chunks.
        status: the HTTP status.
    """

    def __init__(
        self,
        parts: Iterator[bytes],
        pool: ThreadPoolExecutor,
        media_type: str,
        *,
        cancel: Cancellation,
        held: AsyncExitStack,
        headers: Mapping[str, str] | None = None,
        status: int = 200,
    ) -> None:
        self._parts = parts
        self._pool = pool
        self._cancel = cancel
        self._held = held
        super().__init__(None, status, headers, media_type)
        if not any(name.lower() == "content-length" for name in headers or ()):
            del self.headers["content-length"]  # of an empty body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._held:
            sending = asyncio.create_task(self._send(send))
            watching = asyncio.create_task(_disconnected(receive))
            try:
                await asyncio.wait({sending, watching}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
            finally:
                watching.cancel()
                if not sending.done():  # the client has left, or the server stops
                    self._cancel.cancel()
                    sending.cancel()
                    with suppress(asyncio.CancelledError):
                        await sending

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._produced()) as parts:
            async for part in parts:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _produced(self) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        coming = loop.run_in_executor(self._pool, self._next)
        try:
            while (part := await asyncio.shield(coming)) is not None:
                coming = loop.run_in_executor(self._pool, self._next)
                yield part
        finally:
            await self._close(coming)

    def _next(self) -> bytes | None:
        """Produce the next part, in a thread. It stops soon after the cancellation. None at the end."""
        return limited(lambda: next(self._parts, None), UNLIMITED, self._cancel)

    async def _close(self, coming: asyncio.Future[bytes | None]) -> None:
        """Wait for the part that is being produced, and close the iterator, also if the task is cancelled meanwhile."""

        async def close() -> None:
            with suppress(OmnigraphError):
                await coming
            closing = getattr(self._parts, "close", None)
            if closing is not None:
                await asyncio.get_running_loop().run_in_executor(self._pool, closing)

        await asyncio.shield(asyncio.create_task(close()))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
