"""The audit of denied requests: a file of this machine, to which every denial is appended."""

# See docs/decisions/0305-denials-are-lines-of-a-local-file.md

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import orjson

from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Denial
from omnigraph.errors import InputError, cut
from omnigraph.settings import DENIALS, FSYNC, XDG_STATE_HOME

LOG_BYTES = 8 << 20
"""Maximum size of the file. Then it becomes the older file, which is kept until the next time."""

_MOST_TYPES = 20
"""Maximum number of types in a record."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoggedDenial:
    """A denial in the audit.

    Attributes:
        time: the time, in ISO 8601 and UTC.
        policy: the name of the bundle.
        denial: the denied request.
    """

    time: str
    policy: str
    denial: Denial

    def to_json(self) -> dict[str, object]:
        """The record as a JSON object."""
        one = self.denial
        return {
            "time": self.time,
            "graph": one.graph,
            "policy": self.policy,
            "actor": one.actor,
            "action": one.action,
            "branch": one.branch,
            "target_branch": one.target_branch,
            "types": list(one.types),
            "rule": one.rule,
            "message": one.message,
        }


class DenialLog:
    """The audit of denied requests. Threads and processes of a machine may share a file.

    Args:
        path: the file; by default from the settings.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self._given = None if path is None else Path(path)

    @property
    def path(self) -> Path:
        """The file with the newest records.

        Raises:
            InputError: there is no directory for it.
        """
        return self._given or _default_path()

    @property
    def older(self) -> Path:
        """The file with the records before those of `path`. It may not exist."""
        return self.path.with_name(f"{self.path.name}.1")

    def append(self, denial: Denial, policy: str) -> None:
        """Append a record, and flush it to disk. A failure is logged: the request is denied in any case."""
        record = LoggedDenial(datetime.now(UTC).isoformat(timespec="milliseconds"), policy, _cut(denial))
        line = orjson.dumps(record.to_json()) + b"\n"
        try:
            self._append(line)
        except (OSError, InputError) as error:
            _log.error("the audit cannot be written: %s; denied: %s", error, line.decode().rstrip())

    def _append(self, line: bytes) -> None:
        path = self.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path) as descriptor:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line  # the last writer was interrupted
            os.write(descriptor, line)
            if FSYNC.text() != "0":
                os.fsync(descriptor)
            if size + len(line) > LOG_BYTES:
                os.replace(path, self.older)

    def records(self) -> Iterator[LoggedDenial]:
        """All records, oldest first. Skips a line that an interrupted writer left incomplete.

        Raises:
            InputError: a file cannot be read.
        """
        for path in (self.older, self.path):
            try:
                with path.open("rb") as file:
                    yield from filter(None, map(_parsed, file))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise InputError(f"the audit {path} cannot be read: {error.strerror}") from None


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The file, open for appending and locked. Another process may have replaced it before the lock was taken."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_at(descriptor, path):
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _parsed(line: bytes) -> LoggedDenial | None:
    try:
        found = orjson.loads(line)
        time, policy = found.pop("time"), found.pop("policy")
        return LoggedDenial(time, policy, Denial(**(found | {"types": tuple(found["types"])})))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _cut(denial: Denial) -> Denial:
    """The denial with texts of limited length. Some of them come from the request."""
    actor, branch, target = (
        None if text is None else cut(text) for text in (denial.actor, denial.branch, denial.target_branch)
    )
    types = tuple(map(cut, denial.types[:_MOST_TYPES]))
    rule = None if denial.rule is None else cut(denial.rule)
    return Denial(cut(denial.graph), actor, denial.action, branch, target, types, rule, cut(denial.message))


def _default_path() -> Path:
    given = DENIALS.get()
    if given:
        return Path(given)
    try:
        state = XDG_STATE_HOME.get()
        return (Path(state) if state else Path.home() / ".local" / "state") / "omnigraph" / "denials.jsonl"
    except RuntimeError:
        raise InputError("there is no home directory for the audit of denials", hint=f"set {DENIALS.name}") from None
