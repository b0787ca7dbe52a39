"""Verbs: a member that is written once, and that both the blocking and the asynchronous client have."""

# See docs/decisions/0321-one-set-of-members-for-all-clients.md

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import update_wrapper
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, TypeVar, cast, overload

from omnigraph.client.protocol import Backend, Settings
from omnigraph.dataclass import dataclass
from omnigraph.errors import ConfigurationError
from omnigraph.read.budget import Cancellation

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """A request whose answer is a `T`."""

    request: object


class Members:
    """The state of the members of a client: where their requests go, and the settings of the calls."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._settings = settings

    def __reduce__(self) -> NoReturn:
        raise TypeError("a client has connections and cannot be copied or pickled: connect in each process")


class Blocking(Members):
    """The members wait for the answer, and return it."""


class Awaiting(Members):
    """The members return awaitable objects. The work runs in the threads of the client."""


class Verb(Generic[P, T]):
    """A method with one answer. Of a blocking client it returns the answer, of an asynchronous one a coroutine.

    Args:
        ask: makes the request from the arguments.
    """

    def __init__(self, ask: Callable[Concatenate[Any, P], Ask[T]]) -> None:
        self._ask = ask
        update_wrapper(cast(Any, self), ask)

    @overload
    def __get__(self, client: Blocking, owner: object = None) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: Awaiting, owner: object = None) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, client: None, owner: object = None) -> Verb[P, T]: ...

    def __get__(self, client: Any, owner: object = None) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            return cast(T, client._backend.answer(self._ask(client, *args, **kwargs).request, client._settings))

        async def call_async(*args: P.args, **kwargs: P.kwargs) -> T:
            request = self._ask(client, *args, **kwargs).request
            settings = _own_cancellation(request, client._settings)
            return cast(T, await _in_thread(client._backend, settings, client._backend.answer, request, settings))

        return update_wrapper(call_async if isinstance(client, Awaiting) else call, self._ask)


class LazyVerb(Generic[P, T]):
    """A method whose answer is an iterator. The request is sent with the first step, and cancelled by an early end."""

    def __init__(self, ask: Callable[Concatenate[Any, P], Ask[T]]) -> None:
        self._ask = ask
        update_wrapper(cast(Any, self), ask)

    @overload
    def __get__(self, client: Blocking, owner: object = None) -> Callable[P, Generator[T, None, None]]: ...

    @overload
    def __get__(self, client: Awaiting, owner: object = None) -> Callable[P, AsyncGenerator[T, None]]: ...

    @overload
    def __get__(self, client: None, owner: object = None) -> LazyVerb[P, T]: ...

    def __get__(self, client: Any, owner: object = None) -> Any:
        if client is None:
            return self

        def call(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
            return cast("Generator[T, None, None]", self._stream(client, client._settings, *args, **kwargs))

        def call_async(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T, None]:
            request = self._ask(client, *args, **kwargs).request
            settings = _own_cancellation(request, client._settings)
            return _steps(client._backend, settings, client._backend.stream(request, settings))

        return update_wrapper(call_async if isinstance(client, Awaiting) else call, self._ask)

    def _stream(self, client: Any, settings: Settings, *args: Any, **kwargs: Any) -> Generator[Any, None, None]:
        return cast(
            "Generator[Any, None, None]", client._backend.stream(self._ask(client, *args, **kwargs).request, settings)
        )


def _own_cancellation(request: object, settings: Settings) -> Settings:
    """The settings of a call of an asynchronous client. Its cancellation stops it if its task is cancelled."""
    if settings.cancel is None and getattr(request, "cancel", None) is None:
        return settings.with_cancel(Cancellation())
    return settings.with_cancel(getattr(request, "cancel", None) or settings.cancel)


async def _in_thread(backend: Backend, settings: Settings, work: Callable[..., T], *args: object) -> T:
    """Run work in a thread. If the task is cancelled, the work is cancelled, and the task waits for its end."""
    running = backend.threads.submit(work, *args)
    waiting = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if not running.cancel():  # it has started
            assert settings.cancel is not None
            settings.cancel.cancel()
            waiting.add_done_callback(_take_error)
            await asyncio.wait([waiting])
        raise


def _take_error(ended: asyncio.Future[Any]) -> None:
    """Take the error of work that nobody waits for, so that asyncio does not report it."""
    if not ended.cancelled():
        ended.exception()


_END = object()


async def _steps(backend: Backend, settings: Settings, parts: Generator[Any, None, None]) -> AsyncGenerator[Any, None]:
    """The steps of an iterator, each in a thread."""
    try:
        while (part := await _in_thread(backend, settings, next, parts, _END)) is not _END:
            yield part
    finally:
        try:
            closing = backend.threads.submit(parts.close)
        except ConfigurationError:  # the client was closed before its iterator
            parts.close()
        else:
            await asyncio.wrap_future(closing)
