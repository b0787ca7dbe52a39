"""Ids in the lenient reader: replaces aliases by canonical ids, in nodes and in the endpoints of edges.

The canonical id of a node is derived from its key. An alias is another text for the same key, such as `2019-05-02`
where the canonical id is a number of days. The value of one of several key properties is an alias, too.
"""

# See docs/decisions/0072-the-lenient-reader-counts.md

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Problem, cut
from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.types import ValueType
from omnigraph.write.input.parse_text import from_text
from omnigraph.write.rows.convert import convert, ignore_report
from omnigraph.write.rows.identity import derived_ids
from omnigraph.write.rows.problems import SHOWN, Leniency, Problems
from omnigraph.write.rows.raw_rows import RawRows

_Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]


def with_canonical_ids(rows: Iterator[RawRows], accepted: AcceptedSchema, problems: Problems) -> Iterator[RawRows]:
    """Replace aliases in rows by canonical ids. Returns nodes immediately, and edges after all nodes were read.

    Args:
        rows: nodes and edges in any order.
        accepted: the accepted schema.
        problems: collects ambiguous ids, and counts rewritten ids.
    """
    aliases = Aliases(accepted, problems)
    with tempfile.TemporaryFile() as file:
        edges = _HeldRows(file)
        for raw in rows:
            if raw.kind is TypeKind.NODE:
                yield aliases.node(raw)
            else:
                edges.add(raw)
        known = aliases.known()
        for raw in edges.all():
            yield aliases.edge(raw, known) if known else raw


AliasPairs = Mapping[str, tuple[pa.Array, pa.Array]]
"""By node type, the aliases and their canonical ids."""


class Aliases:
    """Collects other spellings (aliases) of node ids, by node type, to replace them with the canonical ids.

    Args:
        accepted: the accepted schema.
        problems: collects ambiguous ids, and counts rewritten ids.
    """

    def __init__(self, accepted: AcceptedSchema, problems: Problems) -> None:
        self.accepted = accepted
        self.problems = problems
        self._pairs: dict[str, list[pa.Table]] = {}
        self._ids: dict[str, list[pa.Array]] = {}
        self._places: list[Callable[[int], str]] = []

    def node(self, raw: RawRows) -> RawRows:
        """The rows of nodes, with null in place of aliases. The row builder then derives the canonical ids."""
        order = self.accepted.key_order(TypeKind.NODE, raw.name)
        if order is None or any(name not in raw.columns for name in order):
            return raw
        types = [self.accepted.catalog.nodes[raw.name].properties[name].type for name in order]
        members = [
            (convert(raw.columns[name], kind, ignore_report), kind) for name, kind in zip(order, types, strict=True)
        ]
        canonical = derived_ids(members)
        self._ids.setdefault(raw.name, []).append(canonical)
        given = raw.columns.get("id")
        if given is None or not pa.types.is_string(given.type):
            return raw
        other = pc.not_equal(given, canonical).fill_null(False)
        rows = np.flatnonzero(other.to_numpy(zero_copy_only=False))
        if len(rows) == 0:
            return raw
        same = _denotes(given.take(pa.array(rows)), [(c.take(pa.array(rows)), k) for c, k in members])
        rows = rows[same]
        if len(rows) == 0:
            return raw
        chosen = pa.array(rows)
        part = pa.array(np.full(len(rows), len(self._places)))
        self._places.append(raw.origin.place)
        pairs = pa.table(
            {
                "old": given.take(chosen),
                "new": canonical.take(chosen),
                "at": pa.array(raw.origin.records[rows]),
                "part": part,
            }
        )
        self._pairs.setdefault(raw.name, []).append(pairs)
        place = raw.origin.place(int(raw.origin.records[rows[0]]))
        self._count(Leniency.REWRITTEN_ID, f"{raw.name}.id", place, len(rows), repr(pairs["old"][0].as_py()))
        keeps_id = np.ones(len(given), bool)
        keeps_id[rows] = False
        ids = pc.if_else(pa.array(keeps_id), given, pa.scalar(None, given.type))
        return replace(raw, columns={**raw.columns, "id": ids})

    def pairs(self) -> dict[str, pa.Table]:
        """By node type, the aliases, their canonical ids, and the first location of each pair."""
        out = {}
        for name, parts in self._pairs.items():
            groups = pa.concat_tables(parts).group_by(["old", "new"], use_threads=False)
            first = groups.aggregate([("at", "min"), ("part", "min")])
            out[name] = first.rename_columns({"at_min": "at", "part_min": "part"}).combine_chunks()
        return out

    def ids(self, name: str) -> pa.ChunkedArray:
        """The canonical ids of the nodes of a type that has a key."""
        return pa.chunked_array(self._ids.get(name, []), pa.utf8())

    @property
    def keyed(self) -> list[str]:
        """The node types that have a key, and for which rows were read."""
        return list(self._ids)

    def known(self) -> dict[str, tuple[pa.Array, pa.Array]]:
        """By node type, the aliases and their canonical ids. Reports aliases that stand for more than one entity."""
        out = {}
        for name, pairs in self.pairs().items():
            old, new = pairs["old"].combine_chunks(), pairs["new"].combine_chunks()
            wrong = ambiguous(pairs, pc.is_in(old, value_set=self.ids(name)))
            for problem in self.ambiguity_problems(name, wrong.sort_by("at").slice(0, SHOWN)):
                self.problems.add(problem)
            out[name] = (old, new)
        return out

    def ambiguity_problems(self, name: str, wrong: pa.Table) -> list[Problem]:
        """The problems to report for aliases that stand for more than one entity."""
        found = []
        for row in wrong.to_pylist():
            place = self._places[row["part"]](row["at"])
            message = f"the id {cut(repr(row['old']))} stands for more than one entity"
            found.append(Problem(row["at"], place, f"{name}.id", message))
        return found

    def edge(self, raw: RawRows, known: AliasPairs) -> RawRows:
        """The rows of edges with the canonical ids of their nodes."""
        edge = self.accepted.catalog.edges[raw.name]
        columns = dict(raw.columns)
        for end, node in (("from", edge.from_type), ("to", edge.to_type)):
            values = columns.get(end)
            if node not in known or values is None or not pa.types.is_string(values.type):
                continue
            old, new = known[node]
            found = pc.index_in(values, value_set=old)
            if found.null_count == len(found):
                continue
            at = int(np.flatnonzero(found.is_valid().to_numpy(zero_copy_only=False))[0])
            place, count = raw.origin.place(int(raw.origin.records[at])), len(found) - found.null_count
            self._count(Leniency.REWRITTEN_END, f"{raw.name}.{end}", place, count, repr(values[at].as_py()))
            columns[end] = pc.coalesce(new.take(found), values)
        return replace(raw, columns=columns)

    def _count(self, kind: Leniency, subject: str, place: str, count: int, found: str) -> None:
        assert self.problems.coerced is not None
        self.problems.coerced.add(kind, subject, place, count, found=found)


def ambiguous(pairs: pa.Table, taken: pa.Array) -> pa.Table:
    """The pairs whose alias stands for several entities. `taken` marks aliases that are the id of another entity."""
    old = pairs["old"].combine_chunks()
    counts = pc.value_counts(old)
    repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
    return pairs.filter(pc.or_(taken, pc.is_in(old, value_set=repeated)))


def _denotes(ids: pa.Array, members: list[tuple[pa.Array, ValueType]]) -> _Mask:
    """Mask of the ids that are aliases: the value of a key property, or a JSON array with the values of all of them."""
    same = np.zeros(len(ids), bool)
    for column, kind in members:
        same |= _equal(ids, column, kind)
    if len(members) > 1:
        arrays = np.flatnonzero(~same & pc.starts_with(ids, "[").to_numpy(zero_copy_only=False))
        same[arrays] = _denotes_all(ids.take(pa.array(arrays)), [(c.take(pa.array(arrays)), k) for c, k in members])
    return same


def _denotes_all(arrays: pa.Array, members: list[tuple[pa.Array, ValueType]]) -> _Mask:
    """Mask of the JSON arrays that contain the values of all key properties."""
    lists = [_members(text, len(members)) for text in arrays.to_pylist()]
    whole = np.array([texts is not None for texts in lists], bool)
    for i, (column, kind) in enumerate(members):
        whole &= _equal(pa.array([t[i] if t else None for t in lists], pa.utf8()), column, kind)
    return whole


def _equal(texts: pa.Array, column: pa.Array, kind: ValueType) -> _Mask:
    read = convert(from_text(texts, kind, ignore_report), kind, ignore_report)
    equal: _Mask = pc.equal(read, column).fill_null(False).to_numpy(zero_copy_only=False)
    return equal


def _members(text: str, count: int) -> list[str] | None:
    """The items of a JSON array as texts; None if it is not an array of `count` texts, numbers or truth values."""
    try:
        value = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list) or len(value) != count:
        return None
    texts = [str(v).lower() if isinstance(v, bool) else v for v in value]
    return texts if all(isinstance(v, str) for v in texts) else None


class _HeldRows:
    """The rows of edges. They are kept in a temporary file until all nodes were read."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._waiting: list[tuple[RawRows, int]] = []

    def add(self, raw: RawRows) -> None:
        arrays = {f"c{name}": column for name, column in raw.columns.items()}
        arrays |= {f"a{name}": column for name, column in raw.absent.items()}
        batch = pa.RecordBatch.from_pydict({**arrays, "#": pa.array(raw.origin.records)})
        self._waiting.append((replace(raw, columns={}, absent={}), self._file.tell()))
        with pa.ipc.new_stream(self._file, batch.schema) as writer:
            writer.write_batch(batch)

    def all(self) -> Iterator[RawRows]:
        for raw, at in self._waiting:
            self._file.seek(at)
            batch = pa.ipc.open_stream(self._file).read_next_batch()
            columns = {n[1:]: c for n, c in zip(batch.schema.names, batch.columns, strict=True) if n[0] == "c"}
            absent = {n[1:]: c for n, c in zip(batch.schema.names, batch.columns, strict=True) if n[0] == "a"}
            yield replace(raw, columns=columns, absent=absent)
