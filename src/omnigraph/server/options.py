"""The limits of a server, from its settings."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.dataclass import dataclass
from omnigraph.settings import (
    PER_ACTOR_BYTES_MAX,
    PER_ACTOR_INFLIGHT_MAX,
    PER_ACTOR_READS_MAX,
    SERVER_BODY_MAX,
    SERVER_DRAIN_SECONDS,
    SERVER_HEADER_SECONDS,
    SERVER_LOAD_BODY_MAX,
    SERVER_REQUEST_ROWS,
    SERVER_REQUEST_SECONDS,
    SERVER_SEND_SECONDS,
    SERVER_STOP_SECONDS,
    SERVER_THREADS,
)

MIB = 1 << 20

LEAST_RATE = 1024
"""Bytes per second that a client has to send or accept at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one worker.

    Attributes:
        threads: threads that run reads.
        write_threads: threads that run writes. Most of them wait for the turn of their commit.
        stream_threads: threads that produce the parts of streamed answers, except exports and baselines.
        streams: number of exports and baselines at the same time, and of the threads that produce their parts.
        stream_wait: seconds that an export waits for one of them.
        request_seconds: time limit of a read.
        request_memory: memory limit of a read; None for the default of the engine.
        request_rows: maximum number of rows of a result.
        body: maximum size of a body.
        load_body: maximum size of the body of a load.
        header_bytes: maximum size of the request line and the headers.
        header_seconds: time limit for the headers. A body may take longer, as long as it arrives at `LEAST_RATE`.
        send_seconds: interval in which a client has to accept bytes of an answer, at `LEAST_RATE`.
        actor_writes: writes of an actor at the same time.
        actor_reads: reads of an actor at the same time.
        actor_bytes: size of the writes of an actor at the same time.
        drain_seconds: time between SIGTERM and the end of accepting connections.
        stop_seconds: time for requests in flight when the server stops.
    """

    threads: int = 2
    write_threads: int = 64
    stream_threads: int = 4
    streams: int = 8
    stream_wait: float = 0.25
    request_seconds: float = 60.0
    request_memory: int | None = None
    request_rows: int = 1_000_000
    body: int = MIB
    load_body: int = 32 * MIB
    header_bytes: int = 64 * 1024
    header_seconds: float = 20.0
    send_seconds: float = 120.0
    actor_writes: int = 16
    actor_reads: int = 128
    actor_bytes: int = 4096 * MIB
    drain_seconds: float = 5.0
    stop_seconds: float = 30.0

    @classmethod
    def of_settings(cls, environ: Mapping[str, str] | None = None) -> Limits:
        """The limits that the environment sets.

        Raises:
            InputError: a variable is not a number, an amount or a time.
        """
        return cls(
            threads=max(1, SERVER_THREADS.number(environ)),
            request_seconds=SERVER_REQUEST_SECONDS.age(environ).total_seconds(),
            request_rows=SERVER_REQUEST_ROWS.number(environ),
            body=SERVER_BODY_MAX.amount(environ),
            load_body=SERVER_LOAD_BODY_MAX.amount(environ),
            header_seconds=SERVER_HEADER_SECONDS.age(environ).total_seconds(),
            send_seconds=SERVER_SEND_SECONDS.age(environ).total_seconds(),
            actor_writes=PER_ACTOR_INFLIGHT_MAX.number(environ),
            actor_reads=PER_ACTOR_READS_MAX.number(environ),
            actor_bytes=PER_ACTOR_BYTES_MAX.amount(environ),
            drain_seconds=SERVER_DRAIN_SECONDS.age(environ).total_seconds(),
            stop_seconds=SERVER_STOP_SECONDS.age(environ).total_seconds(),
        )
