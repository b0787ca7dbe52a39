"""What one read works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from omnigraph.commit.snapshots import Snapshot
from omnigraph.embed import Embedder
from omnigraph.evaluate import Request
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.read.budget import Spending
from omnigraph.read.plan.trace import Trace
from omnigraph.read.search.search import Search
from omnigraph.read.space.space import Spaces
from omnigraph.read.topology.topology import Topologies

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """What one read works with.

    Attributes:
        snapshot: what it sees.
        accepted: the schema of that.
        request: parameters and time.
        budget: what it has used so far, and what it may use.
        embedder: gives what turns texts into vectors, for a read that looks for one.
        trace: takes note of what is done; None when nobody asked.
        search: finds words and ranks.
    """

    snapshot: Snapshot
    accepted: AcceptedSchema
    request: Request
    spaces: Spaces
    topologies: Topologies
    budget: Spending
    embedder: Callable[[], Embedder] | None = None
    trace: Trace | None = None
    search: Search = field(init=False)

    def traced(self, action: str, work: Callable[[], T], rows: Callable[[T], int]) -> T:
        """Do something that is a step of its own for whoever asks.

        Args:
            action: the operator; what was expected of it is known.
            work: what to do.
            rows: how many rows there are in what comes of it.
        """
        if self.trace is None:
            return work()
        with self.trace.named(action) as entry:
            found = work()
        entry.rows, entry.size = rows(found), getattr(found, "nbytes", None)
        return found

    def __post_init__(self) -> None:
        object.__setattr__(self, "search", Search(self))
