"""Fragments: the parts of a table that processes can read independently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceDataset

from omnigraph.dataclass import dataclass
from omnigraph.storage.blobs import ROW_ID, stored_blobs, with_content
from omnigraph.storage.scans import scanner


@dataclass(frozen=True, slots=True)
class Fragment:
    """One fragment of a table version.

    Attributes:
        number: its number in the table.
        rows: its number of rows.
        size: bytes of its files; 0 if unknown.
        deleted: its number of deleted rows, which its files still contain.
        files: names of its data files, with their sizes.
    """

    number: int
    rows: int
    size: int
    deleted: int = 0
    files: tuple[tuple[str, int], ...] = ()


def fragments(dataset: LanceDataset) -> list[Fragment]:
    """The fragments of a version, in order."""
    found = []
    for fragment in dataset.get_fragments():
        made = fragment.metadata
        files = tuple((file.path, file.file_size_bytes or 0) for file in made.files)
        size = sum(size for _, size in files)
        found.append(Fragment(fragment.fragment_id, made.num_rows, size, made.num_deletions, files))
    return found


def read_fragments(
    dataset: LanceDataset,
    numbers: Sequence[int],
    columns: Sequence[str],
    filter: pc.Expression | str | None,
    batch_rows: int,
) -> Iterator[pa.RecordBatch]:
    """Stream the rows of some fragments in storage order, with the content of blobs."""
    chosen = [fragment for number in numbers if (fragment := dataset.get_fragment(number)) is not None]
    blobs = [name for name in stored_blobs(dataset.schema) if name in columns]
    scan = scanner(
        dataset,
        columns=[*columns, ROW_ID] if blobs else columns,
        filter=filter,
        fragments=chosen,
        in_order=True,
        batch_rows=batch_rows,
    )
    for batch in scan.to_reader():
        if not blobs:
            yield batch
            continue
        for part in with_content(dataset, pa.Table.from_batches([batch])):
            yield from part.select(list(columns)).combine_chunks().to_batches()


def column_bytes(dataset: LanceDataset) -> dict[str, int]:
    """Bytes on disk of each column of a version, with its nested fields."""
    measured: Any = dataset.stats.data_stats().fields  # declared as one value, but it is a list
    sizes: dict[int, int] = {field.id: field.bytes_on_disk for field in measured}

    def total(field: Any) -> int:
        return sizes.get(int(field.id()), 0) + sum(total(child) for child in field.children())

    return {field.name(): total(field) for field in dataset.lance_schema.fields()}
