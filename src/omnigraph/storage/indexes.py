"""Indexes of a table: their specification, coverage and build."""

# See docs/decisions/0193-indexes-are-known-by-their-column.md

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from lance import LanceDataset
from lance.dataset import Index

from omnigraph.dataclass import dataclass
from omnigraph.lang.query import ir
from omnigraph.lang.schema.catalog import IndexKind
from omnigraph.storage.text_analysis import settings

_LANCE_KINDS = {
    IndexKind.BTREE: "BTREE",
    IndexKind.BITMAP: "BITMAP",
    IndexKind.NGRAM: "NGRAM",
    IndexKind.FTS: "INVERTED",
    IndexKind.VECTOR: "IVF_FLAT",
}

_PARAMETERS: dict[IndexKind, dict[str, Any]] = {
    IndexKind.FTS: {"with_position": True},  # phrase queries need positions
}

_PARTITION_ROWS = 4096
"""Vectors per partition, approximately, if the number of partitions is not given."""


_WHOLE = frozenset({IndexKind.BITMAP})
"""Index kinds that must have a single segment.

A segment of these kinds still finds a replaced row by its old value, and Lance does not check the value of the row.
With a second segment for the new value, the row would match both values.
"""


_NAME = re.compile(rf".+_(?P<spec>({'|'.join(kind.value for kind in _LANCE_KINDS)})(_[0-9a-f]{{12}})?)(-\d+)?")
"""Name of an index in Lance: column, kind and digest of `IndexSpec.name`, and a field number if the name was taken."""

_SMALL = 2
_LARGER = 4
"""If the largest segment has at most this many times as many rows as all others together, all are merged."""


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index that a table should have.

    Attributes:
        kind: any kind except `AUTO`.
        parameters: parameters for Lance, such as `metric`, sorted by name. A vector index may have a `method`; the
            default is `IVF_FLAT`.
    """

    column: str
    kind: IndexKind
    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """A unique name per column, kind and parameters, so that a table can have several indexes on a column."""
        if not self.parameters:
            return f"{self.column}_{self.kind.value}"
        return f"{self.column}_{self.kind.value}_{blake2b(repr(self.parameters).encode(), digest_size=6).hexdigest()}"


def text_index(column: str, analyzer: ir.Analyzer, *, positions: bool) -> IndexSpec:
    """The full-text index of a column."""
    parameters = {**settings(analyzer), "with_position": positions}
    return IndexSpec(column, IndexKind.FTS, tuple(sorted(parameters.items())))


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of a table an index covers.

    Attributes:
        built: whether the index exists.
        covered: number of covered rows.
        uncovered: number of rows that are not covered.
    """

    built: bool
    covered: int
    uncovered: int


def coverage(dataset: LanceDataset, spec: IndexSpec) -> Coverage:
    built = any(spec_name(index) == spec.name for index in dataset.describe_indices())
    left = set(uncovered_fragments(dataset, spec))
    rows = {fragment.fragment_id: fragment.count_rows() for fragment in dataset.get_fragments()}
    outside = sum(count for fragment, count in rows.items() if fragment in left)
    return Coverage(built, sum(rows.values()) - outside, outside)


def uncovered_values(dataset: LanceDataset, spec: IndexSpec) -> int:
    """Number of values, without nulls, in the fragments that an index does not cover."""
    left = set(uncovered_fragments(dataset, spec))
    parts = [fragment for fragment in dataset.get_fragments() if fragment.fragment_id in left]
    return sum(int(part.count_rows(f"`{spec.column}` IS NOT NULL")) for part in parts)


def undeclared_segments(dataset: LanceDataset, specs: Sequence[IndexSpec]) -> Iterator[Index]:
    """The segments of all indexes that no specification in `specs` declares."""
    names = {spec.name for spec in specs}
    yield from (segment for name, segment in _named_segments(dataset) if name not in names)


def superseded(dataset: LanceDataset, built: Sequence[Index]) -> Iterator[Index]:
    """The segments that the segments in `built` replace, and the segments that no longer cover any fragment."""
    new = {(index.name, fragment) for index in built for fragment in index.fragment_ids}
    for segment in _segments(dataset):
        if not segment.fragment_ids or any((segment.name, fragment) in new for fragment in segment.fragment_ids):
            yield segment


def segments_fit(dataset: LanceDataset, built: Sequence[Index], gone: Sequence[Index]) -> bool:
    """Whether the segments in `built`, from an earlier version, can replace the segments in `gone` in this version.

    Rows that were added or changed after the earlier version do not matter: they are in new fragments, which the
    segments do not cover.
    """
    present = {fragment.fragment_id for fragment in dataset.get_fragments()}
    known = {segment.uuid for segment in _segments(dataset)}
    covered = {fragment for index in built for fragment in index.fragment_ids}
    return covered <= present and all(segment.uuid in known for segment in gone)


def segment_ids(dataset: LanceDataset) -> set[str]:
    """Ids of the segments of all indexes."""
    return {segment.uuid for segment in _segments(dataset)}


def damaged_segments(dataset: LanceDataset, ids: Collection[str]) -> Iterator[Index]:
    """The index segments with the given ids, which are those of damaged segments."""
    yield from (segment for segment in _segments(dataset) if str(segment.uuid) in ids)


def distinct_segments(segments: Iterable[Index]) -> list[Index]:
    """Remove duplicate segments."""
    return list({segment.uuid: segment for segment in segments}.values())


def segments_to_merge(dataset: LanceDataset, specs: Sequence[IndexSpec]) -> list[Index]:
    """The segments to merge into one, together with the fragments that the index does not cover.

    An index should have at most one large and one small segment. When the small one grows too large, both are merged.
    Fragments can be compacted together only if the same segments cover them.
    """
    rows = {fragment.fragment_id: fragment.count_rows() for fragment in dataset.get_fragments()}
    names = {spec.name: spec for spec in specs if spec.kind is not IndexKind.VECTOR}
    found: dict[str, list[Index]] = {}
    for name, segment in _named_segments(dataset):
        if name in names and segment.fragment_ids:
            found.setdefault(name, []).append(segment)
    chosen: list[Index] = []
    for name, segments in found.items():
        sizes = {s.uuid: sum(rows.get(fragment, 0) for fragment in s.fragment_ids) for s in segments}
        largest, *small = sorted(segments, key=lambda s: (-sizes[s.uuid], s.uuid))
        left = sum(rows[fragment] for fragment in uncovered_fragments(dataset, names[name]))
        if not left and len(small) < _SMALL:
            continue
        rest = left + sum(sizes[s.uuid] for s in small)
        whole = names[name].kind in _WHOLE or rest * _LARGER >= sizes[largest.uuid]
        chosen += [largest, *small] if whole else small
    return chosen


def spec_name(index: Any) -> str:
    """The name of the specification that an index was built for.

    Lance identifies the column of an index by its field number. The index keeps its name when the column is renamed, so
    the column in the name is replaced by the current name of the column.
    """
    named = _NAME.fullmatch(index.name)
    return str(index.name) if named is None else f"{index.field_names[0]}_{named['spec']}"


def _lance_name(dataset: LanceDataset, spec: IndexSpec) -> str:
    """The name of an index in Lance. An index of a renamed column may have the name of the specification."""
    present = list(dataset.describe_indices())
    own = next((index.name for index in present if spec_name(index) == spec.name), None)
    if own is not None:
        return str(own)
    if all(index.name != spec.name for index in present):
        return spec.name
    number = next(field.id() for field in dataset.lance_schema.fields() if field.name() == spec.column)
    return f"{spec.name}-{number}"


def _segments(dataset: LanceDataset) -> Iterator[Index]:
    yield from (segment for _, segment in _named_segments(dataset))


def _named_segments(dataset: LanceDataset) -> Iterator[tuple[str, Index]]:
    """The segments of all indexes, each with the name of its specification."""
    for index in dataset.describe_indices():
        name = spec_name(index)
        for segment in index.segments:
            yield (
                name,
                Index(
                    segment.uuid,
                    index.name,
                    index.fields,
                    segment.dataset_version_at_last_update,
                    segment.fragment_ids,
                    segment.index_version,
                ),
            )


def uncovered_fragments(dataset: LanceDataset, spec: IndexSpec) -> list[int]:
    """The fragments that an index does not cover, in order."""
    covered = {
        fragment
        for index in dataset.describe_indices()
        if spec_name(index) == spec.name
        for segment in index.segments
        for fragment in segment.fragment_ids
    }
    return [f.fragment_id for f in dataset.get_fragments() if f.fragment_id not in covered]


def fragments_to_build(dataset: LanceDataset, spec: IndexSpec) -> list[int]:
    """The fragments to build an index for, in order: all if it must have one segment, else those it does not cover."""
    left = uncovered_fragments(dataset, spec)
    return [f.fragment_id for f in dataset.get_fragments()] if left and spec.kind in _WHOLE else left


def build(dataset: LanceDataset, spec: IndexSpec) -> Index | None:
    """Build a segment for the fragments without one; None if there are none. No reader sees it yet."""
    fragments = fragments_to_build(dataset, spec)
    return build_segment(dataset, spec, fragments) if fragments else None


def build_segment(dataset: LanceDataset, spec: IndexSpec, fragments: Sequence[int]) -> Index:
    """Build a segment for some fragments."""
    parameters = _PARAMETERS.get(spec.kind, {}) | dict(spec.parameters)
    if spec.kind is IndexKind.VECTOR and "num_partitions" not in parameters:
        rows = sum(f.count_rows() for f in dataset.get_fragments() if f.fragment_id in fragments)
        parameters["num_partitions"] = max(rows // _PARTITION_ROWS, 1)
    built = dataset.create_index_uncommitted(
        spec.column,
        parameters.pop("method", _LANCE_KINDS[spec.kind]),
        name=_lance_name(dataset, spec),
        fragment_ids=list(fragments),
        replace=True,
        **parameters,
    )
    # Without this step, a committed full-text index is invalid. For most other kinds, the step would only copy files.
    return dataset.merge_existing_index_segments([built]) if spec.kind is IndexKind.FTS else built


def vector_metrics(dataset: LanceDataset) -> dict[str, str]:
    """The columns with a vector index, and the metric of each."""
    return {
        index.field_names[0]: str(index.details["metric_type"]).lower()
        for index in dataset.describe_indices()
        if index.index_type.startswith("IVF_")
    }


_LOOKED_UP = frozenset({"BTree", "Bitmap"})


def indexed_columns(dataset: LanceDataset) -> frozenset[str]:
    """The columns with a BTREE or BITMAP index that covers all fragments."""
    fragments = {fragment.fragment_id for fragment in dataset.get_fragments()}
    found: set[str] = set()
    for index in dataset.describe_indices():
        covered = {fragment for segment in index.segments for fragment in segment.fragment_ids}
        if index.index_type in _LOOKED_UP and len(index.field_names) == 1 and fragments <= covered:
            found.add(index.field_names[0])
    return frozenset(found)
