"""The seam of the client: the settings of a call, and the place that answers requests."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace
from typing import Any, Protocol

from omnigraph.client.call_threads import CallThreads
from omnigraph.dataclass import dataclass
from omnigraph.errors import ConfigurationError, shown
from omnigraph.read.budget import Cancellation


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of calls.

    Attributes:
        timeout: seconds after which a call fails; None for no limit.
        cancel: stops the calls from another thread.

    Raises:
        ConfigurationError: the timeout is not a number of seconds.
    """

    timeout: float | None = None
    cancel: Cancellation | None = None

    def __post_init__(self) -> None:
        limit: object = self.timeout
        if limit is None or (isinstance(limit, int | float) and not isinstance(limit, bool) and 0 < limit < math.inf):
            return
        raise ConfigurationError(
            f"the timeout is {shown(limit)}", hint="give seconds, more than 0, or None for no limit"
        )

    def with_cancel(self, cancel: Cancellation | None) -> Settings:
        return replace(self, cancel=cancel)


class Backend(Protocol):
    """Answers the requests of a client: a graph that is open in this process, or a server.

    Attributes:
        threads: run the calls of asynchronous clients.
    """

    @property
    def threads(self) -> CallThreads: ...

    def answer(self, request: Any, settings: Settings) -> Any:
        """Answer a request. Each class of requests has one class of answers."""
        ...

    def stream(self, request: Any, settings: Settings) -> Generator[Any, None, None]:
        """The parts of an answer. Nothing happens before the first part is asked for."""
        ...

    def of_graph(self, graph_id: str) -> Backend:
        """The same place, for another graph."""
        ...

    def close(self) -> None:
        """Close the connections, and the threads."""
        ...
