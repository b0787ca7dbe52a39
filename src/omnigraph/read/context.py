"""What one read works with."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.commit.snapshots import Snapshot
from omnigraph.evaluate import Request
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.read.budget import Spending
from omnigraph.read.space import Spaces
from omnigraph.read.topology import Topologies


@dataclass(frozen=True, slots=True)
class Context:
    """What one read works with.

    Attributes:
        snapshot: what it sees.
        accepted: the schema of that.
        request: parameters and time.
        budget: what it has used so far, and what it may use.
    """

    snapshot: Snapshot
    accepted: AcceptedSchema
    request: Request
    spaces: Spaces
    topologies: Topologies
    budget: Spending
