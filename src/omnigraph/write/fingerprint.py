"""What tells one request from another: a digest of what the caller sent, and of nothing that the engine adds.

It is kept with a commit that has an idempotency key. Whoever sends the same request again is given the first answer;
another request under the same key is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.lang.query import ir
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.write.problems import Problems
from omnigraph.write.rows import RawRows, RowBuilder

_SIZE = 16


def of_query(text: str, name: str, params: Mapping[str, ir.ConstValue]) -> str:
    """The digest of a query with the values of its parameters."""
    members = orjson.dumps([text, name, dict(params)], option=orjson.OPT_SORT_KEYS)
    return blake2b(members, digest_size=_SIZE).hexdigest()


class RowsDigest:
    """Takes in the rows of a load, however they are cut into pieces, and gives one digest of them all.

    Only what the input says counts: ids that are made up, defaults and computed vectors are other ones every time.

    Args:
        accepted: the schema in force.
        problems: is told about values that do not fit. The digest is then not to be used.
    """

    def __init__(self, accepted: AcceptedSchema, problems: Problems) -> None:
        self._accepted = accepted
        self._problems = problems
        self._types: dict[str, _TypeDigest] = {}

    def take(self, raw: RawRows) -> None:
        """Take in rows."""
        key = f"{raw.kind.value}:{raw.name}"
        found = self._types.get(key)
        if found is None:
            found = _TypeDigest(RowBuilder(self._accepted, raw.kind, raw.name, 0, self._problems))
            self._types[key] = found
        found.take(raw)

    def value(self, *said: object) -> str:
        """The digest of the rows, and of what else was said."""
        types = [[key, digest.count, digest.parts()] for key, digest in sorted(self._types.items())]
        return blake2b(orjson.dumps([said, types]), digest_size=_SIZE).hexdigest()


class _TypeDigest:
    """The digest of the rows of one type, by column: a column that says nothing is as good as none."""

    def __init__(self, builder: RowBuilder) -> None:
        self.count = 0
        self._builder = builder
        self._columns: dict[str, _ColumnDigest] = {}
        self._nulls: dict[str, _Stream] = {}

    def take(self, raw: RawRows) -> None:
        for name, column in self._builder.said(raw.columns, raw.origin).items():
            self._columns.setdefault(name, _ColumnDigest()).take(column, self.count)
            prop = self._builder.type.properties.get(name)
            if prop is not None and prop.type.nullable and (prop.default is not None or prop.embed is not None):
                self._take_nulls(name, column.is_null(), raw.absent.get(name))
        self.count += len(raw.origin.records)

    def _take_nulls(self, name: str, null: pa.Array, absent: pa.Array | None) -> None:
        """Where null was written. That is not the same as nothing where something else would step in."""
        if absent is not None:
            null = pc.and_not(null, absent)
        places = np.flatnonzero(null.to_numpy(zero_copy_only=False))
        if len(places):
            self._nulls.setdefault(name, _Stream()).feed(places + self.count)

    def parts(self) -> list[list[str]]:
        found = [[name, *column.parts()] for name, column in sorted(self._columns.items())]
        nulls = [[name, "null", stream.value()] for name, stream in sorted(self._nulls.items())]
        return [part for part in found if len(part) > 1] + nulls


class _ColumnDigest:
    """The values of a column that are not null, and their places."""

    def __init__(self) -> None:
        self._places = _Stream()
        self._values = _Stream()
        self._lengths = _Stream()
        self._members: dict[int, _ColumnDigest] = {}
        self._count = 0
        self._items = 0
        """How many items the lists had, if these are lists."""

    def take(self, column: pa.Array, first: int) -> None:
        """Take in values, of which the first stands at a place."""
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        if not valid.any():
            return
        self._places.feed(np.flatnonzero(valid) + first)
        values = column if column.null_count == 0 else column.drop_null()
        kind = values.type
        if pa.types.is_struct(kind):
            for i, member in enumerate(values.flatten()):
                self._member(i).take(member, self._count)
        elif pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
            self._lengths.feed(pc.list_value_length(values).cast(pa.int64()).to_numpy())
            items = values.flatten()
            self._member(0).take(items, self._items)
            self._items += len(items)
        elif pa.types.is_boolean(kind):
            self._values.feed(values.cast(pa.uint8()).to_numpy())
        elif pa.types.is_primitive(kind):
            width = kind.bit_width // 8
            content = np.frombuffer(values.buffers()[1], np.uint8)
            self._values.feed(content[values.offset * width : (values.offset + len(values)) * width])
        else:
            self._take_texts(values.cast(pa.large_binary()))
        self._count += len(values)

    def _take_texts(self, texts: pa.Array) -> None:
        _, offsets_buffer, content = texts.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        self._lengths.feed(np.diff(offsets))
        if content is not None:
            self._values.feed(np.frombuffer(content, np.uint8)[offsets[0] : offsets[-1]])

    def _member(self, i: int) -> _ColumnDigest:
        return self._members.setdefault(i, _ColumnDigest())

    def parts(self) -> list[str]:
        if self._count == 0:
            return []
        own = [stream.value() for stream in (self._places, self._values, self._lengths)]
        return own + [part for i, member in sorted(self._members.items()) for part in (str(i), *member.parts())]


class _Stream:
    """A digest of bytes that come in pieces."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=_SIZE)

    def feed(self, values: np.ndarray[tuple[int], np.dtype[np.generic]]) -> None:
        self._hash.update(np.ascontiguousarray(values).view(np.uint8).data)

    def value(self) -> str:
        return self._hash.hexdigest()
