"""The context of one read: the objects that all of its operators use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, TypeVar

from omnigraph.commit.snapshots import Snapshot
from omnigraph.dataclass import dataclass
from omnigraph.evaluate import Request
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.read.budget.budget import Spending
from omnigraph.read.columns.entity_table import EntityTables

if TYPE_CHECKING:
    from omnigraph.embed import Embedder
    from omnigraph.read.context.trace import Trace
    from omnigraph.read.search.search import Search
    from omnigraph.read.topology.edge_lookup import EdgeAccess
    from omnigraph.read.topology.topologies import Topologies

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Context:
    """The state and the settings of one read.

    Attributes:
        snapshot: the snapshot that is read.
        accepted: the schema of the snapshot.
        request: the parameters of the query and the time of the request.
        tables: node and edge tables of the snapshot.
        make_topologies: returns `topologies`.
        budget: the limits of the read, and its usage so far.
        embedder: returns the embedder for texts in vector searches.
        trace: records the executed operators; None if the caller needs no trace.
    """

    snapshot: Snapshot
    accepted: AcceptedSchema
    request: Request
    tables: EntityTables
    make_topologies: Callable[[], Topologies]
    budget: Spending
    embedder: Callable[[], Embedder] | None = None
    trace: Trace | None = None
    _search: list[Search] = field(init=False, default_factory=list, repr=False, compare=False)

    @property
    def topologies(self) -> Topologies:
        """Adjacency of the snapshot's edges."""
        return self.make_topologies()

    @property
    def search(self) -> Search:
        """Text and vector search."""
        if not self._search:
            from omnigraph.read.search.search import Search

            self._search.append(Search(self.request, self.budget, self.accepted.catalog, self.embedder))
        return self._search[0]

    def note_access(self, access: EdgeAccess) -> None:
        """Record in the trace how the running operator finds edges: in a topology or with index lookups."""
        if self.trace is not None:
            self.trace.note_access(access)
