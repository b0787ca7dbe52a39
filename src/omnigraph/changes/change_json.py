"""Converts changes to JSON, a batch at a time. Values have the same form as in an export, so `load` can read them."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.changes.aligned_types import ENDS, TypeState
from omnigraph.changes.row_images import OPS, ChangedRows, ChangeOp
from omnigraph.commit.manifest import TableId
from omnigraph.lang.schema import TypeKind
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.export.json_text import TEXT, joined, json_text, literal, quoted

END_NAMES = {column: end for end, column in ENDS.items()}
"""The stored columns of the ends of an edge (`src`, `dst`), with their names in results (`from`, `to`)."""

_NAMES = pa.array([op.value for op in OPS], TEXT)
_STRINGS = ValueType(Scalar.STRING, list=True)


def opaque_type_id(domain: str, identity: TableId) -> str:
    """The id of a type in a feed. A rename does not change it. A type that is dropped and added again gets a new id."""
    numbers = (number.to_bytes(8, "little") for number in (identity.type_id, identity.incarnation))
    digest = hashlib.sha256(b"\x1f".join([domain.encode(), *numbers])).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def changed_names(rows: ChangedRows) -> pa.Array:
    """The names of the changed properties of each update; null for other changes. The ends are `from` and `to`."""
    names = rows.changed_names()
    values = names.values
    for stored, given in END_NAMES.items():
        values = pc.if_else(pc.equal(values, stored), given, values)
    return pa.ListArray.from_arrays(names.offsets, values, mask=names.is_null())


def feed_changes(rows: ChangedRows, type_id: str) -> pa.Array:
    """Changes in the form of a feed, one JSON object each. Blobs must have their content."""
    kind, name = rows.pair.newest.kind.value, rows.pair.newest.name
    return joined(
        f'{{"kind":"{kind}","type":{{"id":{literal(type_id)},"name":{literal(name)}}},"id":',
        quoted(rows.ids),
        ',"op":"',
        _NAMES.take(pa.array(rows.ops)),
        '"',
        *_images(rows),
        "}",
    )


def net_changes(rows: ChangedRows) -> pa.Array:
    """Changes in the form of a diff between two states, one JSON object each. Blobs must have their content."""
    newest = rows.pair.newest
    parts: list[pa.Array | str] = [
        f'{{"kind":"{newest.kind.value}","type_name":{literal(newest.name)},"id":',
        quoted(rows.ids),
        ',"op":"',
        _NAMES.take(pa.array(rows.ops)),
        f'","published_dataset_version":{newest.pin.published_version}',
    ]
    if newest.kind is TypeKind.EDGE:
        deleted = pa.array(rows.ops == OPS.index(ChangeOp.DELETE))
        sides = [rows.after if rows.pair.after else rows.before, rows.before if rows.pair.before else rows.after]
        ends = [pc.if_else(deleted, _column(sides[1], end), _column(sides[0], end)) for end in ENDS.values()]
        parts += [',"endpoints":{"src":', quoted(ends[0]), ',"dst":', quoted(ends[1]), "}"]
    update = pa.array(rows.ops == OPS.index(ChangeOp.UPDATE))
    parts.append(_where(update, joined(',"changed":', json_text(changed_names(rows), _STRINGS))))
    return joined(*parts, *_images(rows), "}")


def _images(rows: ChangedRows) -> Iterator[pa.Array]:
    """The JSON members `before` and `after` of each change, with a leading comma; empty if there is no such row."""
    for name, state, table, absent in (
        ("before", rows.pair.before, rows.before, ChangeOp.INSERT),
        ("after", rows.pair.after, rows.after, ChangeOp.DELETE),
    ):
        if state is not None:
            present = pa.array(rows.ops != OPS.index(absent))
            yield _where(present, joined(f',"{name}":', _image(table, state)))


def _image(rows: pa.Table, state: TypeState) -> pa.Array:
    parts: list[pa.Array | str] = ['{"properties":{"id":', quoted(_column(rows, "id"))]
    for name, type_ in state.types.items():
        parts += [f",{literal(name)}:", json_text(_column(rows, name), type_)]
    parts.append("}")
    if state.kind is TypeKind.EDGE:
        parts += [',"endpoints":{"from":', quoted(_column(rows, "src")), ',"to":', quoted(_column(rows, "dst")), "}"]
    return joined(*parts, "}")


def _where(mask: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(mask, texts, pa.scalar("", TEXT))


def _column(rows: pa.Table, name: str) -> pa.Array:
    return rows[name].combine_chunks()
