"""Request digests: identify a request by the input of the caller. Values that the engine adds are not included.

A commit with an idempotency key stores the digest. A repeated request with the same digest gets the first receipt.
A different request with the same key is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import numpy as np
import orjson
import pyarrow.compute as pc

from omnigraph.lang.query import ir
from omnigraph.lang.schema import AcceptedSchema
from omnigraph.lang.schema.type_key import type_key
from omnigraph.write.rows.builder import RowBuilder
from omnigraph.write.rows.hashing import Digests, powers, value_digests
from omnigraph.write.rows.problems import Problems
from omnigraph.write.rows.raw_rows import RawRows

_SIZE = 16
_MASK = (1 << 64) - 1
_POINTS = (0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9)
"""The points at which the polynomials are evaluated: two odd numbers."""


def of_query(text: str, name: str, params: Mapping[str, ir.ConstValue]) -> str:
    """The digest of a query with the values of its parameters."""
    members = orjson.dumps([text, name, dict(params)], option=orjson.OPT_SORT_KEYS)
    return blake2b(members, digest_size=_SIZE).hexdigest()


class RowsDigest:
    """Computes one digest of all rows of a load. It does not depend on how the rows are split into chunks.

    It includes only values of the input, because generated ids, defaults and computed vectors may differ if the request
    is repeated. Several processes can digest parts of the rows, if the parts are added in the order of the rows.

    Args:
        accepted: the accepted schema.
        problems: collects values that do not fit. If there are problems, the digest is not valid.
    """

    def __init__(self, accepted: AcceptedSchema, problems: Problems) -> None:
        self._accepted = accepted
        self._problems = problems
        self._builders: dict[str, RowBuilder] = {}
        self.types: dict[str, TypeDigest] = {}
        """The digests by type key."""

    def take(self, raw: RawRows) -> None:
        """Add rows."""
        key = type_key(raw.kind, raw.name)
        builder = self._builders.get(key)
        if builder is None:
            builder = self._builders[key] = RowBuilder(self._accepted, raw.kind, raw.name, 0, self._problems)
        self.types.setdefault(key, TypeDigest()).take(raw, builder)

    def add(self, types: Mapping[str, TypeDigest]) -> None:
        """Add the digests of the next rows, computed by another process."""
        for key, digest in types.items():
            self.types.setdefault(key, TypeDigest()).add(digest)

    def value(self, *options: object) -> str:
        """The digest of the rows and of the other arguments of the request."""
        types = [[key, digest.count, digest.parts()] for key, digest in sorted(self.types.items())]
        return blake2b(orjson.dumps([options, types]), digest_size=_SIZE).hexdigest()


class TypeDigest:
    """The digest of the rows of one type, by column. A column of nulls gives the same digest as a missing column."""

    def __init__(self) -> None:
        self.count = 0
        self._columns: dict[tuple[str, str], _ColumnDigest] = {}

    def take(self, raw: RawRows, builder: RowBuilder) -> None:
        for name, column in builder.input_values(raw.columns, raw.origin).items():
            self._take(name, "", value_digests(column))
            prop = builder.type.properties.get(name)
            if prop is not None and prop.type.nullable and (prop.default is not None or prop.embed is not None):
                # An absent value is not the same as null: a default or a computed vector replaces only an absent value.
                null, absent = column.is_null(), raw.absent.get(name)
                written = null if absent is None else pc.and_not(null, absent)
                self._take(name, "null", written.to_numpy(zero_copy_only=False).astype(np.uint64))
        self.count += len(raw.origin.records)

    def _take(self, name: str, what: str, numbers: Digests) -> None:
        self._columns.setdefault((name, what), _ColumnDigest()).take(numbers, self.count)

    def add(self, other: TypeDigest) -> None:
        """Add the digest of the next rows."""
        for name, column in other._columns.items():
            self._columns.setdefault(name, _ColumnDigest()).add(column, self.count, other.count)
        self.count += other.count

    def parts(self) -> list[list[str]]:
        found = [[*name, column.value(self.count)] for name, column in sorted(self._columns.items()) if column.non_null]
        return [part for part in found if part]


class _ColumnDigest:
    """The digest of a column: a polynomial with the values as coefficients, evaluated at two points.

    Adding rows multiplies the current sum by a power of the point. So the split into chunks does not matter, and two
    digests can be concatenated.

    Attributes:
        non_null: number of values that are not null.
    """

    def __init__(self) -> None:
        self.non_null = 0
        self._rows = 0
        self._sums = [0, 0]

    def take(self, numbers: Digests, before: int) -> None:
        """Add values that start after `before` rows."""
        self._advance(before + len(numbers))
        self.non_null += int(np.count_nonzero(numbers))
        for i, point in enumerate(_POINTS):
            weighed = numbers * powers(np.uint64(point), len(numbers))[::-1]
            self._sums[i] = (self._sums[i] + int(weighed.sum(dtype=np.uint64))) & _MASK

    def add(self, other: _ColumnDigest, before: int, count: int) -> None:
        """Add the digest of `count` further values that start after `before` rows."""
        self._advance(before + count)
        self.non_null += other.non_null
        for i, point in enumerate(_POINTS):
            moved = other._sums[i] * pow(point, count - other._rows, _MASK + 1)
            self._sums[i] = (self._sums[i] + moved) & _MASK

    def _advance(self, rows: int) -> None:
        """Extend the column with nulls to a number of rows."""
        for i, point in enumerate(_POINTS):
            self._sums[i] = self._sums[i] * pow(point, rows - self._rows, _MASK + 1) & _MASK
        self._rows = rows

    def value(self, count: int) -> str:
        self._advance(count)
        return f"{self.non_null}:{self._sums[0]:016x}{self._sums[1]:016x}"
