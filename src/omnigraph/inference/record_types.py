"""Infers the types of the records of a graph, such as an export. The records name their types, ids and endpoints."""

from __future__ import annotations

import re
from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.inference.column_profile import ColumnProfile
from omnigraph.inference.decide import property_draft
from omnigraph.inference.distinct_values import DistinctValues
from omnigraph.inference.draft import Draft, EdgeDraft, End, NodeDraft
from omnigraph.inference.json_records import RecordType, composite
from omnigraph.inference.relations import key_of
from omnigraph.inference.table_profile import TableProfile
from omnigraph.write.rows.hashing import value_digests

_MOST_KEYS = 64
_ENDS = ("=from", "=to")


class RecordProfile:
    """The statistics of the records of one type.

    Args:
        kind: the member that names the type, and the name.
        name: the name of the file in messages.
        cells: whether the values are cells of a CSV file.

    Attributes:
        kind: the member that names the type, and the name.
        table: the statistics of the members of `data`.
        ids: the ids, if the records have them.
    """

    def __init__(self, kind: RecordType, name: str, *, cells: bool = False) -> None:
        self.kind = kind
        self._cells = cells
        self.table = TableProfile(name, kind[1], (), [])
        self.ids = DistinctValues()
        self.with_ids = 0
        self.pairs = DistinctValues()
        self._keys: list[tuple[str, ...]] | None = None
        self._pair_ids = kind[0] == "edge"

    def take(self, batch: pa.RecordBatch) -> None:
        """Add records."""
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        table = self.table
        for name, values in columns.items():
            if name == "id":
                continue
            column = next((column for column in table.columns if column.name == name), None)
            if column is None:
                column = ColumnProfile(name, cells=self._cells, json=not self._cells, mapped=False)
                column.rows = column.nulls = table.rows  # the records before have no such member
                column.drop_row_hashes()
                if table.rows == 0:
                    column.row_hashes = []
                table.columns.append(column)
            column.take(values)
        table.rows += batch.num_rows
        for column in table.columns:
            if column.name not in columns:
                column.rows += batch.num_rows
                column.nulls += batch.num_rows
        if "id" in columns and pa.types.is_string(columns["id"].type):
            self._take_ids(columns["id"], columns)
        else:
            self._pair_ids = False

    def _take_ids(self, ids: pa.Array, columns: dict[str, pa.Array]) -> None:
        present = ids.is_valid()
        self.with_ids += len(ids) - ids.null_count
        self.ids.add(value_digests(ids.drop_null()))
        if ids.null_count:
            columns = {name: column.filter(present) for name, column in columns.items()}
            ids = ids.drop_null()
        if len(ids) == 0:
            return
        if self.kind[0] == "edge":
            pairs = _id_of([columns[end] for end in _ENDS])
            self._pair_ids = self._pair_ids and pc.all(pc.equal(ids, pairs)).as_py() is True
            return
        texts = {name: text for name, c in columns.items() if name != "id" and (text := _as_text(c)) is not None}
        if self._keys is None:
            self._keys = _possible_keys(ids[0].as_py(), {name: text[0].as_py() for name, text in texts.items()})
        self._keys = [
            key
            for key in self._keys
            if all(name in texts for name in key)
            and pc.all(pc.equal(ids, _id_of([texts[name] for name in key]))).as_py() is True
        ]

    @property
    def is_edge(self) -> bool:
        return self.kind[0] == "edge"

    @property
    def key(self) -> tuple[str, ...]:
        """The properties that the ids are built from."""
        complete = {column.name for column in self.table.columns if column.complete()}
        keys = [key for key in self._keys or () if set(key) <= complete]
        return keys[0] if keys and self.with_ids == self.table.rows else ()

    @property
    def keyed_ends(self) -> bool:
        """Whether the id of each edge is built from its endpoints."""
        return self._pair_ids and self.with_ids == self.table.rows and self.ids.unique

    def node_ids(self) -> DistinctValues | None:
        """The ids of the nodes: those that are given, or else the values of the key."""
        if self.with_ids:
            return self.ids
        key = key_of(self.table)
        return None if key is None else key.columns[0].distinct


def _as_text(column: pa.Array) -> pa.Array | None:
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return None
    return column.cast(pa.utf8())


def _possible_keys(id_text: str, values: dict[str, str | None]) -> list[tuple[str, ...]]:
    """The properties whose values give the id of the first record. Members are in the order of their names."""
    parts = composite(id_text)
    single: list[tuple[str, ...]] = [(name,) for name, text in values.items() if text == id_text]
    if parts is None or len(parts) < 2:
        return single
    fitting = [[name for name, text in values.items() if text == part] for part in parts]
    keys: list[tuple[str, ...]] = [key for key in product(*fitting) if list(key) == sorted(set(key))]
    return keys[:_MOST_KEYS] or single


def _id_of(texts: list[pa.Array]) -> pa.Array:
    """The ids that are built from the values of a key."""
    if len(texts) == 1:
        return texts[0]
    escaped = [pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), '"', '\\"') for text in texts]
    return pc.binary_join_element_wise('["', pc.binary_join_element_wise(*escaped, '","'), '"]', "")


def exported_type(stem: str) -> RecordType | None:
    """The type of the rows of a file of an export, such as `node.Ship`; None if it is another file."""
    word, _, name = stem.partition(".")
    named = word in ("node", "edge") and re.fullmatch(r"[A-Z][A-Za-z0-9_]*", name)
    return ("edge" if word == "edge" else "type", name) if named else None


def decide_records(profiles: list[RecordProfile], draft: Draft) -> None:
    """Add the types of records to a draft.

    Raises:
        InputError: the endpoints of edges are the ids of no type.
    """
    nodes: dict[str, NodeDraft] = {}
    for profile in profiles:
        if profile.kind[0] == "type":
            nodes[profile.kind[1]] = node = _node(profile)
            draft.nodes.append(node)
    ids = {p.kind[1]: found for p in profiles if p.kind[0] == "type" and (found := p.node_ids()) is not None}
    for profile in profiles:
        if profile.kind[0] == "edge":
            draft.edges.append(_edge(profile, nodes, ids))


def _node(profile: RecordProfile) -> NodeDraft:
    table = profile.table
    node = NodeDraft(profile.kind[1], table, [])
    found = None if profile.with_ids else key_of(table)
    node.key = profile.key or (tuple(column.name for column in found.columns) if found is not None else ())
    for column in table.columns:
        node.properties.append(property_draft(table, column, key=column.name in node.key))
    if profile.key:
        node.reasons.append(f"key {' and '.join(node.key)}: the ids are built from it")
    elif found is not None:
        node.reasons.append(f"key {found.columns[0].name}: {found.reason}")
    else:
        node.reasons.append("no key: " + ("the records have ids" if profile.with_ids else "ids are generated"))
    return node


def _edge(profile: RecordProfile, nodes: dict[str, NodeDraft], ids: dict[str, DistinctValues]) -> EdgeDraft:
    table, name = profile.table, profile.kind[1]
    ends = []
    for end in _ENDS:
        values = table.column(end).distinct
        fitting = [node for node, known in ids.items() if values.missing_in(known) == 0]
        if not fitting:
            raise InputError(
                f"{table.name}: the '{end[1:]}' of the edge {name} are the ids of no type of nodes",
                hint="name the files with the nodes, too",
            )
        ends.append(End(nodes[fitting[0]], ()))
    edge = EdgeDraft(name, table, ends[0], ends[1], unique=profile.keyed_ends)
    edge.reasons.append(f"endpoints: all are ids of {ends[0].node.name} and {ends[1].node.name}")
    if edge.unique:
        edge.reasons.append("key: the ids are built from the endpoints")
    edge.properties = [property_draft(table, column, key=False) for column in table.columns if column.name not in _ENDS]
    return edge
