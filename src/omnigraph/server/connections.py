"""Connections of several workers: the supervisor accepts them and passes each to the worker with the fewest."""

# See docs/decisions/0340-connections-are-spread-evenly.md

from __future__ import annotations

import asyncio
import ctypes
import selectors
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.context import SpawnContext
from typing import Any

from omnigraph.dataclass import dataclass

_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_PAUSE_SECONDS = 0.02
"""Pause when no connection can be accepted or passed on."""


@dataclass(frozen=True, slots=True)
class Inlet:
    """The end of a worker: sockets come in here. Sent to the process of the worker.

    Attributes:
        channel: receives sockets.
        ended: the number of connections that have ended. Only the worker writes it.
    """

    channel: socket.socket
    ended: Any

    def count_ended(self) -> None:
        """Count a connection that has ended."""
        self.ended.value += 1


@dataclass(slots=True)
class Outlet:
    """The end of the supervisor.

    Attributes:
        channel: sends sockets.
        ended: the number of connections that have ended.
        passed: the number of connections that were passed to the worker.
        last: the number of the last of them, over all workers.
    """

    channel: socket.socket
    ended: Any
    passed: int = 0
    last: int = 0

    @property
    def open(self) -> int:
        """The number of open connections of the worker."""
        return self.passed - int(self.ended.value)


def link(context: SpawnContext) -> tuple[Outlet, Inlet]:
    """The two ends of a new channel to a worker."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    theirs.setblocking(False)
    ended = context.RawValue(ctypes.c_longlong, 0)
    return Outlet(ours, ended), Inlet(theirs, ended)


class Dispatcher:
    """Accepts connections in a thread, and passes each to the worker with the fewest open ones.

    Among workers with equally many, it takes turns. If a worker has ended, the others get all connections; if all have
    ended, new connections wait until one is added.

    Args:
        listening: the listening socket. It does not block.
    """

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._outlets: list[Outlet] = []
        self._passed = 0
        self._lock = threading.Lock()
        self._stopping = False
        self._finishing = False
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="omnigraph-accept", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, outlet: Outlet) -> None:
        """Add a worker."""
        with self._lock:
            self._outlets.append(outlet)

    def finish(self) -> None:
        """Stop to accept as soon as all workers have. Then new connections are refused at once."""
        self._finishing = True

    def stop(self) -> None:
        """Stop to accept, and close the channels."""
        self._stopping = True
        if self._thread.is_alive():
            self._wake.send(b"x")
            self._thread.join()
        self._wake.close()
        self._woken.close()
        for outlet in self._outlets:
            outlet.channel.close()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listening, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            while not self._stopping:
                selector.select()
                self._accept()

    def _accept(self) -> None:
        """Accept and pass on all connections that wait."""
        while not self._stopping:
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError, InterruptedError):
                return
            except OSError:
                # There are too many open files, or too little memory. The connection waits.
                time.sleep(_PAUSE_SECONDS)
                return
            with accepted:
                while not self._pass_on(accepted) and not self._stopping:
                    if self._finishing and not self._outlets:
                        self._stopping = True
                        self._listening.close()
                        return
                    time.sleep(_PAUSE_SECONDS)

    def _pass_on(self, accepted: socket.socket) -> bool:
        """Pass a connection to a worker. Returns false if none can take it now."""
        with self._lock:
            for outlet in sorted(self._outlets, key=lambda one: (one.open, one.last)):
                try:
                    socket.send_fds(outlet.channel, [b"c"], [accepted.fileno()])
                except BlockingIOError:
                    continue  # the worker is busy, and many connections wait for it
                except OSError as error:
                    if isinstance(error, ConnectionError):  # the worker has ended
                        self._outlets.remove(outlet)
                        outlet.channel.close()
                    continue
                self._passed += 1
                outlet.passed += 1
                outlet.last = self._passed
                return True
        return False


class Receiver:
    """Takes the connections of a worker from its channel.

    Args:
        inlet: the channel.
        make_protocol: makes the protocol of a connection, which counts its end.
    """

    def __init__(self, inlet: Inlet, make_protocol: Callable[[], asyncio.Protocol]) -> None:
        self._inlet = inlet
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        inlet.channel.setblocking(False)
        self._loop.add_reader(inlet.channel, self._receive)

    async def stop(self) -> None:
        """Take the connections that were passed so far, and no more."""
        self._receive()
        self._loop.remove_reader(self._inlet.channel)
        self._inlet.channel.close()
        await asyncio.gather(*self._opening)

    def _receive(self) -> None:
        while True:
            try:
                received, files, _, _ = socket.recv_fds(self._inlet.channel, 1, 1, _CLOSE_ON_EXEC)
            except (BlockingIOError, InterruptedError):
                return
            if not received:
                self._loop.remove_reader(self._inlet.channel)  # the supervisor has ended
                return
            if not files:
                self._inlet.count_ended()  # too many files are open, so the kernel has closed the connection
                continue
            task = self._loop.create_task(self._open(socket.socket(fileno=files[0])))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._make_protocol, accepted)
        except OSError:
            accepted.close()
            self._inlet.count_ended()
