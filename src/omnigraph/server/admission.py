"""Admission: limits of the requests of one actor at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.dataclass import dataclass
from omnigraph.errors import TooManyRequestsError
from omnigraph.server.options import Limits

RETRY_AFTER = 60
"""Seconds after which a refused request may be sent again."""

ANONYMOUS = "anonymous"
"""The actor of requests without a credential, for these limits only."""


@dataclass(slots=True)
class _InFlight:
    reads: int = 0
    writes: int = 0
    bytes: int = 0


class Admission:
    """Counts the requests in flight of each actor. Used from the event loop only."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._actors: dict[str, _InFlight] = {}

    @contextmanager
    def read(self, actor: str | None) -> Iterator[None]:
        """Admit a read for the duration of a `with` block.

        Raises:
            TooManyRequestsError: the actor has too many reads in flight.
        """
        with self._of(actor) as found:
            if found.reads >= self._limits.actor_reads:
                raise TooManyRequestsError(f"{found.reads} reads of this actor are in flight", RETRY_AFTER)
            found.reads += 1
            try:
                yield
            finally:
                found.reads -= 1

    @contextmanager
    def write(self, actor: str | None, size: int) -> Iterator[None]:
        """Admit a write of some bytes for the duration of a `with` block.

        Raises:
            TooManyRequestsError: the actor has too many writes in flight, or they are too large together.
        """
        with self._of(actor) as found:
            if found.writes >= self._limits.actor_writes:
                raise TooManyRequestsError(f"{found.writes} writes of this actor are in flight", RETRY_AFTER)
            if found.bytes + size > self._limits.actor_bytes:
                raise TooManyRequestsError(f"writes of {found.bytes:,} bytes of this actor are in flight", RETRY_AFTER)
            found.writes += 1
            found.bytes += size
            try:
                yield
            finally:
                found.writes -= 1
                found.bytes -= size

    @contextmanager
    def body(self, actor: str | None, size: int) -> Iterator[None]:
        """Reserve memory for a body that is being received, for the duration of a `with` block.

        Raises:
            TooManyRequestsError: the bodies and writes of the actor are too large together.
        """
        with self._of(actor) as found:
            if found.bytes + size > self._limits.actor_bytes:
                raise TooManyRequestsError(f"writes of {found.bytes:,} bytes of this actor are in flight", RETRY_AFTER)
            found.bytes += size
            try:
                yield
            finally:
                found.bytes -= size

    @property
    def actors(self) -> int:
        """Number of actors with requests in flight."""
        return len(self._actors)

    @contextmanager
    def _of(self, actor: str | None) -> Iterator[_InFlight]:
        """The counts of an actor. They are removed when they are zero."""
        name = ANONYMOUS if actor is None else f"actor:{actor}"
        found = self._actors.setdefault(name, _InFlight())
        try:
            yield found
        finally:
            if not (found.reads or found.writes or found.bytes):
                self._actors.pop(name, None)
