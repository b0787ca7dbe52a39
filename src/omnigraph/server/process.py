"""Processes of a server: one worker, or several with a supervisor; signals, drain and reload."""

# See docs/decisions/0292-workers-are-processes.md
# See docs/decisions/0344-idle-connections-stay-open.md

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from omnigraph.dataclass import dataclass
from omnigraph.errors import InputError, OmnigraphError, report_for
from omnigraph.server.connections import Dispatcher, Inlet, Receiver, link
from omnigraph.server.logs import logging_to_stderr
from omnigraph.server.metrics import forget_worker
from omnigraph.server.options import Limits
from omnigraph.server.service import Service
from omnigraph.settings import PROMETHEUS_MULTIPROC_DIR

_BACKLOG = 2_048
_FILES = 65_536
"""Open files and connections that a process may have, if the system allows it."""

_IDLE_SECONDS = 75
"""Time after which a connection without a request is closed. Proxies have to close it first."""

_LOOK_SECONDS = 0.1
_RESTART_SECONDS = 0.5
"""Pause before a worker that has crashed is started again."""

_HURRY = signal.SIGUSR2
"""The signal by which a supervisor tells its workers to stop at once."""

_log = logging.getLogger("omnigraph.server")


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a worker. Sent to other processes.

    Attributes:
        make: makes the application. It must be importable.
        argument: its argument.
        log_level: the least severe log records.
    """

    make: Callable[[Any], FastAPI]
    argument: Any
    limits: Limits
    log_level: str = "info"


class EarlyReload:
    """Handles SIGHUP until the event loop does. Without it, the signal would end a process that is opening its graphs.

    Attributes:
        asked: whether the signal came.
    """

    def __init__(self) -> None:
        self.asked = False
        if hasattr(signal, "SIGHUP") and _in_main_thread():
            signal.signal(signal.SIGHUP, self)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked = True


class DrainingServer(uvicorn.Server):
    """A server that first answers 503 on `/readyz`, and only later stops to accept connections.

    Args:
        config: the configuration of uvicorn.
        service: the service.
        inlet: the channel of connections, for one of several workers. Without it, the server accepts them itself.
        early: knows whether a reload was asked for before the event loop runs.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        inlet: Inlet | None = None,
        early: EarlyReload | None = None,
    ) -> None:
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inlet = inlet
        self._receiver: Receiver | None = None
        self._early = early

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        if hasattr(signal, "SIGHUP") and _in_main_thread():
            self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        if self._early is not None and self._early.asked:
            self._reload()
        if self._inlet is not None:
            self._loop.add_signal_handler(_HURRY, self._hurry)
        await super().startup(sockets)
        if self._inlet is not None:
            self._receiver = Receiver(self._inlet, self._make_protocol)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._receiver is not None:
            await self._receiver.stop()
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn would leave requests and the service to the end of the event loop
            for task in list(self.server_state.tasks):
                task.cancel()
            await self.lifespan.shutdown()

    def _make_protocol(self) -> asyncio.Protocol:
        """The protocol of a connection, as uvicorn makes it for connections that it accepts."""
        make: Any = self.config.http_protocol_class
        made: asyncio.Protocol = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        return made

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to drain. A second signal stops at once.

        A terminal and a service manager send one signal to all processes, and then the supervisor passes it on. So only
        the supervisor counts signals, and its workers do not.
        """
        if self._service.draining or self._loop is None:
            if self._inlet is None or self._loop is None:
                self._hurry()
            return
        self._service.draining = True
        self._loop.call_soon_threadsafe(self._drain)

    def _hurry(self) -> None:
        """Stop at once: wait for requests in flight only. The next time, do not wait for them."""
        self.force_exit = self.should_exit
        self.should_exit = True

    def _drain(self) -> None:
        _log.info("draining", extra={"fields": {"seconds": self._service.limits.drain_seconds}})
        assert self._loop is not None
        self._loop.call_later(self._service.limits.drain_seconds, self._stop)

    def _stop(self) -> None:
        self.should_exit = True

    def _reload(self) -> None:
        assert self._loop is not None
        self._loop.run_in_executor(None, self._service.reload)


def raise_file_limit() -> None:
    """Let this process and its workers open many files. With the usual soft limit, 1,000 connections would be all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # some systems have another limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def bind(address: str) -> socket.socket:
    """A listening socket.

    Args:
        address: `host:port`; port 0 for any free port.

    Raises:
        InputError: the address is malformed, or cannot be used.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise InputError(f"'{address}' is not an address", hint="write host:port, such as 127.0.0.1:8080")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, int(port)))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise InputError(f"cannot listen on {address}: {error.strerror or error}") from None
    listening.setblocking(False)
    return listening


def address_of(listening: socket.socket) -> str:
    """The address of a socket, as `host:port`."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def make_server(app: FastAPI, inlet: Inlet | None = None, early: EarlyReload | None = None) -> DrainingServer:
    """The server of an application.

    Args:
        app: the application.
        inlet: the channel of connections, for one of several workers.
        early: knows whether a reload was asked for before the event loop runs.

    Raises:
        InputError: a package is not installed.
    """
    if find_spec("httptools") is None:
        raise InputError("httptools is not installed", hint="pip install 'omnigraph[server]'")
    from omnigraph.server.protocol import limited_protocol

    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        http=limited_protocol(service.limits) if inlet is None else limited_protocol(service.limits, inlet.count_ended),
        ws="none",
        loop="uvloop" if find_spec("uvloop") is not None else "asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(service.limits.stop_seconds)),
    )
    return DrainingServer(config, service, inlet, early)


def run_worker(launch: Launch, inlet: Inlet, started: Connection) -> None:
    """Serve in this process until a signal ends it.

    Args:
        launch: how to start the worker.
        inlet: the channel of connections.
        started: the end of a pipe that gets one byte when the worker has started. It is closed otherwise, too.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the supervisor gets it, too
    threading.Thread(target=_end_with_parent, daemon=True).start()
    early = EarlyReload()
    with logging_to_stderr(launch.log_level):
        try:
            server = make_server(launch.make(launch.argument), inlet, early)
        except OmnigraphError as error:
            sys.stderr.write(f"{error.render()}\n")
            raise SystemExit(report_for(error).exit_code) from None
        with started, suppress(OSError):  # without a supervisor, `_end_with_parent` ends this process
            started.send_bytes(b"1")
        server.run(sockets=[])


def _end_with_parent() -> None:
    """Stop this worker when its supervisor has been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def serve(launch: Launch, listening: socket.socket, workers: int, ready: Callable[[], None]) -> int:
    """Serve with one or several worker processes, until a signal ends them.

    Args:
        launch: how to start a worker.
        listening: the listening socket.
        workers: the number of workers.
        ready: called when the first worker can be started: the configuration is valid.

    Returns:
        The exit code.
    """
    raise_file_limit()
    with logging_to_stderr(launch.log_level):
        if workers > 1:
            return _Supervisor(launch, listening, workers).run(ready)
        early = EarlyReload()
        server = make_server(launch.make(launch.argument), early=early)
        ready()
        server.run(sockets=[listening])
        return 0 if server.started else 1


class _Supervisor:
    """Starts workers, restarts those that crash, and passes connections and signals on."""

    def __init__(self, launch: Launch, listening: socket.socket, workers: int) -> None:
        self._launch = launch
        self._dispatcher = Dispatcher(listening)
        self._count = workers
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[BaseProcess] = []
        self._stopping = False
        self._reloads = 0

    def run(self, ready: Callable[[], None]) -> int:
        directory = None
        if PROMETHEUS_MULTIPROC_DIR.get() is None:
            directory = tempfile.mkdtemp(prefix="omnigraph-metrics-")
            os.environ[PROMETHEUS_MULTIPROC_DIR.name] = directory
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._reload)
        try:
            if not self._start():
                return 0 if self._stopping else 1
            for _ in range(self._count - 1):
                self._start()
            self._dispatcher.start()
            ready()
            self._watch()
            return 0
        finally:
            for worker in self._workers:
                worker.join()
            self._dispatcher.stop()
            if directory is not None:
                shutil.rmtree(directory, ignore_errors=True)

    def _start(self) -> bool:
        """Start a worker, and wait until its graphs are open. Returns false if it ends before, or the server stops."""
        # A pipe and no event: a worker that is killed while it sets an event would leave the lock of the event taken.
        outcome, started = self._context.Pipe(duplex=False)
        outlet, inlet = link(self._context)
        worker = self._context.Process(target=run_worker, args=(self._launch, inlet, started))
        reloads = self._reloads
        with inlet.channel, started:
            worker.start()
        with outcome:
            if not self._has_started(worker, outcome):
                outlet.channel.close()
                return False
        self._workers.append(worker)
        if self._reloads != reloads and worker.pid is not None:
            os.kill(worker.pid, signal.SIGHUP)  # it may have read the old files
        self._dispatcher.add(outlet)
        return True

    def _has_started(self, worker: BaseProcess, outcome: Connection) -> bool:
        """Wait until a worker has started. Returns false if it ends before. If the server stops, so does the worker."""
        ended = False
        while not ended:
            ended = not worker.is_alive()
            if outcome.poll(0 if ended else _LOOK_SECONDS):
                with suppress(EOFError):
                    outcome.recv_bytes()
                    return True
                worker.join(_LOOK_SECONDS)
            if self._stopping:
                worker.terminate()
        return False

    def _watch(self) -> None:
        while not self._stopping:
            for worker in list(self._workers):
                worker.join(_LOOK_SECONDS)
                if not worker.is_alive() and not self._stopping:
                    _log.error("a worker has ended", extra={"fields": {"exit_code": worker.exitcode}})
                    if worker.pid is not None:
                        forget_worker(worker.pid)
                    self._workers.remove(worker)
            if len(self._workers) < self._count and not self._stopping:
                time.sleep(_RESTART_SECONDS)
                if not self._start() and not self._stopping:
                    _log.error("a worker did not start")
        self._dispatcher.finish()
        self._send(signal.SIGTERM)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._stopping:
            self._send(_HURRY)  # a second signal stops at once
        self._stopping = True

    def _reload(self, number: int, frame: FrameType | None) -> None:
        self._reloads += 1
        self._send(number)

    def _send(self, number: int) -> None:
        for worker in self._workers:
            if worker.pid is not None and worker.is_alive():
                os.kill(worker.pid, number)
