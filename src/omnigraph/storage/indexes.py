"""Indexes of a table: what to build, and which parts of the table have none yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lance import LanceDataset
from lance.dataset import Index

from omnigraph.lang.schema.catalog import IndexKind

_LANCE_KINDS = {
    IndexKind.BTREE: "BTREE",
    IndexKind.BITMAP: "BITMAP",
    IndexKind.NGRAM: "NGRAM",
    IndexKind.FTS: "INVERTED",
    IndexKind.VECTOR: "IVF_FLAT",
}

_PARAMETERS: dict[IndexKind, dict[str, Any]] = {
    IndexKind.FTS: {"with_position": True},  # phrases need positions
    IndexKind.VECTOR: {"num_partitions": 1},
}


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index that a table should have.

    Attributes:
        kind: any but `AUTO`.
        parameters: what Lance takes beside the kind, such as `metric`; sorted by name.
    """

    column: str
    kind: IndexKind
    parameters: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """One name per column and kind, so that several kinds can live side by side."""
        return f"{self.column}_{self.kind.value}"


def uncovered(dataset: LanceDataset, spec: IndexSpec) -> list[int]:
    """The fragments that an index does not cover, in order."""
    covered = {
        fragment
        for index in dataset.describe_indices()
        if index.name == spec.name
        for segment in index.segments
        for fragment in segment.fragment_ids
    }
    return [f.fragment_id for f in dataset.get_fragments() if f.fragment_id not in covered]


def build(dataset: LanceDataset, spec: IndexSpec) -> Index | None:
    """The files of a segment for the fragments that have none; None when all have. Nobody sees them yet."""
    fragments = uncovered(dataset, spec)
    if not fragments:
        return None
    built = dataset.create_index_uncommitted(
        spec.column,
        _LANCE_KINDS[spec.kind],
        name=spec.name,
        fragment_ids=fragments,
        replace=True,
        **(_PARAMETERS.get(spec.kind, {}) | dict(spec.parameters)),
    )
    # A full-text index that is not merged is committed broken; for all other kinds this changes nothing.
    return dataset.merge_existing_index_segments([built])
