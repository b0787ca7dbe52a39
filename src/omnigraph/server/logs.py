"""Structured logs: one JSON object per record, written by a thread."""

# See docs/decisions/0341-log-records-are-written-together.md

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from omnigraph.errors import InputError

LOGGER = "omnigraph.server"
_WAITING = 10_000
"""Maximum number of records that wait to be written. More are dropped: a full pipe must not stop the server."""

_COLLECT_SECONDS = 0.05
"""Time for which records are collected before they are written together. Warnings and errors end it."""

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object: time, level, message, the fields of `extra={"fields": …}`, and a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        members: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None)
        if isinstance(fields, Mapping):
            members |= {name: value for name, value in fields.items() if value is not None}
        if record.exc_info and record.exc_info[0] is not None:
            members["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return orjson.dumps(members, default=str).decode()


class LogWriter(logging.Handler):
    """Writes records to a stream in a thread, several at a time, and drops records if too many wait.

    A record with their number follows when there is room again.

    A thread that wakes up for each record takes the interpreter lock away from the requests.

    Args:
        stream: the stream.
        capacity: maximum number of records that wait.
    """

    def __init__(self, stream: TextIO, capacity: int = _WAITING) -> None:
        super().__init__()
        self._stream = stream
        self._capacity = capacity
        self._waiting: deque[logging.LogRecord] = deque()
        self._dropped = 0
        self._has_records = threading.Event()
        self._urgent = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="omnigraph-log", daemon=True)
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._waiting) >= self._capacity:
            self._dropped += 1
            return
        self._waiting.append(record)
        if record.levelno >= logging.WARNING:
            self._urgent.set()
        if not self._has_records.is_set():
            self._has_records.set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write the records that wait, and end the thread."""
        self._ended = True
        self._urgent.set()
        self._has_records.set()
        self._thread.join()

    def write_waiting(self) -> None:
        """Write the records that wait."""
        lines = [self.format(self._waiting.popleft()) for _ in range(len(self._waiting))]
        dropped, self._dropped = self._dropped, 0
        if dropped:
            members = {"msg": "log records were dropped", "fields": {"records": dropped}}
            lines.append(self.format(logging.makeLogRecord({"name": LOGGER, "levelname": "WARNING", **members})))
        if lines:
            with suppress(OSError):  # a closed pipe: there is no other place to report it
                self._stream.write("\n".join(lines) + "\n")
                self._stream.flush()

    def _run(self) -> None:
        while not self._ended:
            self._has_records.wait()
            self._urgent.wait(_COLLECT_SECONDS)
            self._has_records.clear()
            self._urgent.clear()
            self.write_waiting()
        self.write_waiting()


@contextmanager
def logging_to_stderr(level: str) -> Iterator[None]:
    """During a `with` block, log to stderr as JSON, in a thread.

    Access logs of uvicorn are off: each request has one record of our own.

    Raises:
        InputError: there is no such level.
    """
    if level.lower() not in _LEVELS:
        raise InputError(f"'{level}' is not a log level", hint=f"use {', '.join(_LEVELS)}")
    least = _LEVELS[level.lower()]
    writer = LogWriter(sys.stderr)
    for name, minimum in ((LOGGER, least), ("uvicorn", least)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [writer], False
        logger.setLevel(minimum)
    errors = logging.getLogger("uvicorn.error")
    errors.handlers, errors.propagate = [], True
    errors.setLevel(max(logging.WARNING, least))
    access = logging.getLogger("uvicorn.access")
    access.handlers, access.propagate = [], False
    writer.start()
    try:
        yield
    finally:
        writer.stop()
