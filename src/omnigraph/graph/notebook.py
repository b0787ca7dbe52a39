"""Graphs, branches, schemas and commits as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from omnigraph.commit.branches import Branch
from omnigraph.commit.manifest import Commit
from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.tags import Tag
from omnigraph.graph.commit_rows import HEADER, commit_rows
from omnigraph.html_text import html_table, html_text
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import edge_key, node_key

SHOWN_COMMITS = 20
"""Maximum number of commits that a notebook shows."""


def state_html(title: str, view: Snapshot, accepted: AcceptedSchema) -> str:
    """A state of a graph: its types with their numbers of entities and their properties."""
    catalog = accepted.catalog
    rows = [
        ("node", node.name, f"{view.pin(node_key(node.name)).row_count:,}", _properties(node.properties))
        for node in catalog.nodes.values()
    ]
    rows += [
        (
            "edge",
            f"{edge.name}: {edge.from_type} → {edge.to_type}",
            f"{view.pin(edge_key(edge.name)).row_count:,}",
            _properties(edge.properties),
        )
        for edge in catalog.edges.values()
    ]
    head = f"commit {view.commit.id}"
    return f"<p><b>{html_text(title)}</b></p>" + html_table(
        ("", "type", "entities", "properties"), rows, numbers=[2], below=head
    )


def _properties(names: Iterable[str]) -> str:
    return ", ".join(names)


def branches_html(branches: Sequence[Branch]) -> str:
    rows = ((one.name, one.parent or "", one.head) for one in branches)
    return html_table(("branch", "parent", "head"), rows)


def tags_html(tags: Sequence[Tag]) -> str:
    return html_table(("tag", "commit"), ((one.name, one.commit_id) for one in tags))


def commits_html(commits: Iterable[Commit], removed: Collection[str] = (), *, more: bool = False) -> str:
    """The first commits, newest first.

    Args:
        commits: the commits.
        removed: the ids of those whose state is not kept.
        more: whether there are more commits than these.
    """
    first = list(islice(commits, SHOWN_COMMITS + 1))
    more = more or len(first) > SHOWN_COMMITS
    rows = commit_rows(first[:SHOWN_COMMITS], removed)
    kept = [i for i in range(len(HEADER)) if HEADER[i] != "state" or removed]
    below = f"the newest {len(rows)} commits" if more else ""
    return html_table([HEADER[i] for i in kept], ([row[i] for i in kept] for row in rows), below=below)
