"""Reads rows from Python mappings: envelopes, or the rows of one type."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from itertools import islice

from omnigraph.lang.schema import AcceptedSchema, TypeKind
from omnigraph.lang.schema.catalog import EdgeType, NodeType
from omnigraph.write.input.envelopes import EnvelopeReader
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import RawRows
from omnigraph.write.rows.values import type_label

_BLOCK = 16_384


def read_envelopes(
    envelopes: Iterable[object], accepted: AcceptedSchema, problems: Problems, first: int = 1
) -> Generator[RawRows, None, int]:
    """The rows of mappings like the lines of an NDJSON file: `{"type": …, "data": {…}}`.

    Args:
        envelopes: the mappings. Values may have the Python types of properties, such as dates and bytes.
        accepted: the accepted schema.
        problems: collects records that cannot be read. If `problems.coerced` is set, the reader is lenient.
        first: the position of the first mapping in the whole input.

    Returns:
        The position after the last mapping.
    """
    reader = EnvelopeReader(accepted, problems, lambda position: f"record {position - first + 1}")
    position = first
    remaining = iter(envelopes)
    while block := list(islice(remaining, _BLOCK)):
        for envelope in block:
            reader.take(envelope, position)
            position += 1
        yield from reader.rows()
    return position


def read_rows(
    rows: Iterable[object], kind: TypeKind, name: str, accepted: AcceptedSchema, problems: Problems, first: int = 1
) -> Generator[RawRows, None, int]:
    """Convert dictionaries to rows of one type. An edge has its endpoints in `from` and `to`.

    Args:
        rows: the mappings.
        kind: node or edge.
        name: the type.
        accepted: the accepted schema.
        problems: collects records that cannot be read. If `problems.coerced` is set, the reader is lenient.
        first: the position of the first mapping in the whole input.

    Returns:
        The position after the last mapping.
    """
    reader = EnvelopeReader(accepted, problems, lambda position: f"{name}, row {position - first + 1}")
    declared: NodeType | EdgeType
    declared = accepted.catalog.nodes[name] if kind is TypeKind.NODE else accepted.catalog.edges[name]
    position = first
    remaining = iter(rows)
    while block := list(islice(remaining, _BLOCK)):
        for row in block:
            if isinstance(row, Mapping):
                reader.take_row(kind, declared, row, position)
            else:
                reader.refuse(position, f"expected a mapping of properties, found {type_label(row)}", name)
            position += 1
        yield from reader.rows()
    return position
