"""The policies of a server: files of bundles, for graphs and for the server itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.errors import PolicyError

if TYPE_CHECKING:
    from omnigraph.policy import Policy


def read_policy(path: Path, graph_id: str) -> Policy:
    """The policy of a graph.

    Raises:
        PolicyError: the file is not valid, or has the rules of a server.
    """
    from omnigraph.policy import Policy

    policy = Policy.read(path, graph=graph_id)
    if policy.bundle.is_for_server:
        raise PolicyError(f"{path} has rules about the list of graphs", hint="name it as 'server_policy'")
    return policy


def read_server_policy(path: Path) -> Policy:
    """The policy of the server itself, which allows the list of graphs.

    Raises:
        PolicyError: the file is not valid, or has the rules of a graph.
    """
    from omnigraph.policy import Policy

    policy = Policy.read(path, graph="root")
    if not policy.bundle.is_for_server:
        raise PolicyError(f"{path} has rules about a graph", hint="name it as the policy of the graph")
    return policy
