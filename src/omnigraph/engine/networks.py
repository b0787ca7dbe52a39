"""The rows of a snapshot for other graph libraries and for pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa

from omnigraph.commit.snapshots import Snapshot
from omnigraph.commit.work_records import WorkKind, reading
from omnigraph.dataclass import dataclass
from omnigraph.engine.access import Action
from omnigraph.engine.chosen_types import chosen_keys
from omnigraph.engine.session import At, Session
from omnigraph.lang.schema import Catalog, TypeKind
from omnigraph.lang.schema.type_key import TypeKey, node_key
from omnigraph.read.export.export import TypeExport, exported
from omnigraph.read.result.network import Entities, NodeKey

_SAMPLED_EDGES = 2_000
"""Edges of each type that a picture of a graph is chosen from."""


@dataclass(frozen=True, slots=True)
class NetworkRows:
    """The entities of a state, without blobs.

    Attributes:
        catalog: the schema of the state.
        parts: the types: first nodes, then edges. The node types of all edge types are among them.
    """

    catalog: Catalog
    parts: tuple[TypeExport, ...]
    _session: Session
    _view: Snapshot

    def __iter__(self) -> Iterator[tuple[TypeKey, pa.RecordBatch]]:
        """Pairs of a type and rows, each type sorted by id. Every type has at least one pair.

        A work record protects the snapshot from cleanup until the last one.
        """
        with reading(self._session.store.leases, WorkKind.EXPORT, self._view.manifest):
            for part in self.parts:
                key = TypeKey.parse(part.key)
                yield key, pa.record_batch([pa.array([], field.type) for field in part.schema], schema=part.schema)
                yield from ((key, batch) for batch in part.batches())

    def sample(self, limit: int) -> Entities:
        """At most `limit` nodes, connected if possible, and edges between them.

        The edges are chosen from the first ones of each type.
        """
        with reading(self._session.store.leases, WorkKind.EXPORT, self._view.manifest):
            edges = list(self._first_edges())
            keys = _connected([(source, target) for source, target, _, _ in edges], limit)
            known = set(keys)
            for part in self.parts:
                if part.kind is TypeKind.NODE and len(keys) < limit:
                    ids = (one for batch in part.batches() for one in batch["id"].to_pylist())
                    more = (key for one in ids if (key := (part.name, one)) not in known)
                    keys += islice(more, limit - len(keys))
            found = Entities({}, {})
            for type_name, entity_id in keys:
                found.add_node((type_name, entity_id), dict(self._view.entity(node_key(type_name), entity_id) or {}))
            for source, target, type_name, edge_id in edges:
                if source in found.nodes and target in found.nodes:
                    found.add_edge(source, target, (type_name, edge_id), {})
        total = sum(part.count for part in self.parts if part.kind is TypeKind.NODE)
        return Entities(found.nodes, found.edges, is_complete=len(found.nodes) == total)

    def _first_edges(self) -> Iterator[tuple[NodeKey, NodeKey, str, str]]:
        for part in self.parts:
            if part.kind is TypeKind.EDGE:
                edge = self.catalog.edges[part.name]
                left = _SAMPLED_EDGES
                for batch in part.batches():
                    first = batch.slice(0, left)
                    ends = zip(*(first[name].to_pylist() for name in ("from", "to", "id")), strict=True)
                    for source, target, edge_id in ends:
                        yield (edge.from_type, source), (edge.to_type, target), part.name, edge_id
                    left -= first.num_rows
                    if not left:
                        break


def _connected(pairs: Sequence[tuple[NodeKey, NodeKey]], limit: int) -> list[NodeKey]:
    """At most `limit` nodes, found by walking the edges from the node with the most of them."""
    neighbours: dict[NodeKey, dict[NodeKey, None]] = {}
    for source, target in pairs:
        neighbours.setdefault(source, {})[target] = None
        neighbours.setdefault(target, {})[source] = None
    degrees = Counter({key: len(found) for key, found in neighbours.items()})
    chosen: dict[NodeKey, None] = {}
    for start, _ in degrees.most_common():
        waiting = [start]
        for key in waiting:
            if key not in chosen:
                if len(chosen) == limit:
                    return list(chosen)
                chosen[key] = None
                waiting += neighbours[key]
    return list(chosen)


def network_rows(session: Session, types: str | Sequence[str] | None, branch: str | None, at: At | None) -> NetworkRows:
    """The entities of a state.

    Args:
        session: the session.
        types: names of types; by default all. The node types of named edge types are included.
        branch: the newest state of this branch; by default that of the session.
        at: another state.

    Raises:
        InputError: there is no such type.
        NotFoundError: there is no such state.
    """
    at = at.commit.id if isinstance(at, Snapshot) and session.exporting is not session else at
    session = session.exporting
    view = session.readable(branch, at, Action.EXPORT)
    accepted = session.schemas.at(view)
    catalog = accepted.catalog
    names = [types] if isinstance(types, str) else types
    if names is not None:
        ends = [end for name in names if (edge := catalog.edges.get(name)) for end in (edge.from_type, edge.to_type)]
        names = list(dict.fromkeys([*names, *ends]))
    keys = chosen_keys(session, Action.EXPORT, names, view.manifest)
    parts = [part for part in exported(view, accepted, names, blobs=False) if keys is None or part.key in keys]
    nodes = [part for part in parts if part.kind is TypeKind.NODE]
    known = {part.name for part in nodes}
    edges = [
        part
        for part in parts
        if part.kind is TypeKind.EDGE
        and {catalog.edges[part.name].from_type, catalog.edges[part.name].to_type} <= known
    ]
    return NetworkRows(catalog, (*nodes, *edges), session, view)
