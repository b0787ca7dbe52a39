"""What one read works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omnigraph.commit.snapshots import Snapshot
from omnigraph.embed import Embedder
from omnigraph.evaluate import Request
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.read.budget import Spending
from omnigraph.read.plan.trace import Trace
from omnigraph.read.search.search import Search
from omnigraph.read.space.space import Spaces
from omnigraph.read.topology.topology import Topologies


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "search", Search(self))
