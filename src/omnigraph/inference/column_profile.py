"""Statistics of one column, collected batch by batch: its type, its nulls, its distinct values."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.inference.distinct_values import DistinctValues
from omnigraph.inference.value_types import CELLS, TEXTS, Candidate, TextType, arrow_kind, common_kind
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.write.rows.hashing import Digests, value_digests

NULL_TEXTS = (*("\\N", "NULL", "(null)", "<null>", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "None", "none", "-", "?"),)
"""Texts that stand for a missing value in CSV files of other systems. A load reads `null` as null in any case."""

_CERTAIN_NULLS = ("\\N",)
"""Texts that always stand for a missing value."""

_SQL_NULLS = ("NULL", "(null)", "<null>")
"""Texts that SQL tools write for null, in columns of texts, too."""

_VECTOR, _NAMED_VECTOR = 64, 2
_VECTOR_WORDS = ("vec", "embedding", "emb_", "_emb")
"""Minimum length of lists that are vectors: by their length alone, and if the name of the column says so."""

_ENUM_VALUES = 12
_ENUM_TEXT = re.compile(r"[A-Za-z_-][A-Za-z0-9_-]{0,39}")
_CODE = r"^[A-Za-z]{1,8}[-_:/]?[0-9]+$"
_ROWS_PER_VALUE = 10
_HASHED = (Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.DATE)
_EXACT_FLOAT, _U64_LIMIT = 2**53, 2**64
_RANGES = {Scalar.I64: (-(2**63), 2**63), Scalar.U64: (0, 2**64)}
_STRING = ValueType(Scalar.STRING, nullable=True)


class ColumnProfile:
    """Statistics of a column.

    Args:
        name: the name of the column.
        cells: whether the values are cells of a CSV file.
        pandas: whether the column comes from pandas, where NaN is null and integers with nulls are floats.
        json: whether the values are members of JSON objects, whose large whole numbers are read as floats.
        mapped: whether the mapping has the column, and can name a format.

    Attributes:
        rows: number of values, including nulls.
        nulls: number of nulls.
        empty: number of empty texts.
        null_texts: how often each of `NULL_TEXTS` occurs, in CSV files.
        distinct: the distinct values, without nulls and null texts.
        row_hashes: the hash of each value; None if the column is not tested as a part of a key.
        low: the smallest whole number, if the values are whole numbers.
        high: the largest whole number.
        codes: whether all values are texts such as `tt0000001`: letters, then digits; None without texts.
    """

    def __init__(
        self, name: str, *, cells: bool, pandas: bool = False, json: bool = False, mapped: bool = True
    ) -> None:
        self.name = name
        self.cells = cells
        self.rows = self.nulls = self.empty = 0
        self.null_texts: dict[str, int] = {}
        self.distinct = DistinctValues()
        self.row_hashes: list[Digests] | None = []
        self.low: int | None = None
        self.high: int | None = None
        self.codes: bool | None = None
        self._pandas = pandas
        candidates = CELLS if cells else TEXTS
        self._text = TextType(candidates if mapped else tuple(each for each in candidates if each.format is None))
        self._json = json
        self._mapped = mapped
        self._lengths: tuple[int, int] | None = None
        self._greatest = 0.0
        self._declared: ValueType | None = None
        self._conflict = False
        self._unsupported: str | None = None
        self._fractions = self._has_fractions = False
        self._not_finite = 0
        self._few: set[str] | None = set()

    def take(self, values: pa.Array) -> None:
        """Add the values of a batch."""
        values = _plain(values)
        self.rows += len(values)
        if pa.types.is_floating(values.type) and self._pandas:
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        self.nulls += values.null_count
        if pa.types.is_null(values.type):
            self.row_hashes = None
            return
        found = arrow_kind(values.type)
        if found is None:
            self._unsupported = self._unsupported or str(values.type)
            self.row_hashes = None
            return
        if self._declared is not None and common_kind(self._declared, found) is None:
            self._conflict = True
        self._declared = common_kind(self._declared, found) or self._declared
        present = values.drop_null()
        if found == _STRING:
            self._take_texts(present.cast(pa.utf8()))
        elif found.scalar in (Scalar.F32, Scalar.F64) and not found.list:
            self._take_floats(present)
        elif found.scalar in _HASHED and not found.list:
            self._take_hashes(present.cast(pa.utf8()))
            if found.scalar.is_integer:
                self._take_range(present)
        else:
            self.row_hashes = None
            if found.list and len(present):
                sizes = pc.min_max(pc.list_value_length(present)).as_py()
                low, high = self._lengths or (sizes["min"], sizes["max"])
                self._lengths = (min(low, sizes["min"]), max(high, sizes["max"]))

    def _take_texts(self, texts: pa.Array) -> None:
        if self.cells and self._mapped:  # without a mapping, no text means null
            spelled = pc.is_in(texts, pa.array(NULL_TEXTS))
            if pc.any(spelled).as_py():
                for item in pc.value_counts(texts.filter(spelled)).to_pylist():
                    self.null_texts[item["values"]] = self.null_texts.get(item["values"], 0) + item["counts"]
                texts = texts.filter(pc.invert(spelled))
        full = texts.filter(pc.not_equal(texts, ""))
        self.empty += len(texts) - len(full)
        self._text.take(full)
        self._take_hashes(full)
        if len(full) and self.codes is not False:
            self.codes = pc.all(pc.match_substring_regex(full, _CODE)).as_py() is True
        if self._few is not None and len(full):
            self._few.update(full.unique().slice(0, _ENUM_VALUES + 1).to_pylist())
            if len(self._few) > _ENUM_VALUES:
                self._few = None
        whole = next((c for c in self._text.candidates if c.kind.scalar is Scalar.I64 and not c.kind.list), None)
        if whole is not None and len(full):
            self._take_range(full.cast(pa.int64()))

    def _take_floats(self, values: pa.Array) -> None:
        self.row_hashes = None
        self._not_finite += pc.sum(pc.invert(pc.is_finite(values))).as_py() or 0
        self._greatest = max(self._greatest, pc.max(pc.abs(values)).as_py() or 0.0)
        exact = pc.and_(pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), float(_EXACT_FLOAT)))
        self._fractions |= pc.all(exact).as_py() is False
        self._has_fractions |= (
            pc.all(pc.and_(pc.equal(values, pc.floor(values)), pc.greater_equal(values, 0.0))).as_py() is False
        )
        if self._pandas and not self._fractions:
            self._take_hashes(values.cast(pa.int64()).cast(pa.utf8()))

    def _take_hashes(self, texts: pa.Array) -> None:
        hashes = value_digests(texts)
        self.distinct.add(hashes)
        if self.row_hashes is not None:
            complete = self.nulls == 0 and not self.null_texts and not self.empty
            self.row_hashes = [*self.row_hashes, hashes] if complete else None

    def _take_range(self, values: pa.Array) -> None:
        if len(values):
            bounds = pc.min_max(values).as_py()
            self.low = bounds["min"] if self.low is None else min(self.low, bounds["min"])
            self.high = bounds["max"] if self.high is None else max(self.high, bounds["max"])

    @property
    def unsupported(self) -> str | None:
        """The Arrow type of the values, if no property can have them."""
        return self._unsupported

    @property
    def unloadable(self) -> str | None:
        """The reason why no type takes all values of the column."""
        if self._conflict:
            return "values of different types"
        if self._not_finite and not self._pandas:
            return f"{self._not_finite:,} values that are not finite"
        return None

    @property
    def inexact(self) -> bool:
        """Whether the values are whole numbers that only a float can have, with fewer digits."""
        floats = self._json and not self._has_fractions and self._greatest >= _U64_LIMIT
        return floats or (self.high is not None and self.high >= _U64_LIMIT)

    @property
    def candidates(self) -> list[Candidate]:
        """The types of a text column that fit all values that are not null."""
        return self._text.candidates if self._declared == _STRING else []

    def kind(self, nulls: tuple[str, ...]) -> ValueType:
        """The type of the property of the column, with its nullability.

        Args:
            nulls: the texts that mean null in the file of the column.
        """
        missing = self.nulls + sum(self.null_texts.get(text, 0) for text in nulls)
        given = sum(count for text, count in self.null_texts.items() if text not in nulls)
        found = self._within_range(self._declared or _STRING)
        if self._pandas and found.scalar is Scalar.F64 and not found.list and not self._fractions and self.nulls:
            found = ValueType(Scalar.I64)
        if not given and (candidates := self.candidates):
            found = candidates[0].kind
            missing += self.empty
        if self._is_vector(found):
            found = ValueType(Scalar.VECTOR, dim=self._lengths[0] if self._lengths else None)
        return found.with_nullable(missing > 0 or self.rows == 0)

    def _within_range(self, kind: ValueType) -> ValueType:
        """The type of whole numbers that has all of them: decimals and numbers in JSON may exceed I64."""
        if kind.scalar not in _RANGES or kind.list or self.low is None or self.high is None:
            return kind
        fitting = [s for s, (low, high) in _RANGES.items() if low <= self.low and self.high < high]
        return kind if kind.scalar in fitting else replace(kind, scalar=fitting[0] if fitting else Scalar.F64)

    def _is_vector(self, kind: ValueType) -> bool:
        """Whether lists of numbers are vectors: all have the same length, and it or the name is that of a vector."""
        if not kind.list or kind.scalar not in (Scalar.F32, Scalar.F64) or self._lengths is None:
            return False
        low, high = self._lengths
        named = any(word in self.name.lower() for word in _VECTOR_WORDS)
        return low == high and low >= (_NAMED_VECTOR if named else _VECTOR)

    def format(self, nulls: tuple[str, ...]) -> str | None:
        """The format of dates and times that the mapping has to name."""
        given = sum(count for text, count in self.null_texts.items() if text not in nulls)
        return self.candidates[0].format if self.candidates and not given else None

    @property
    def ambiguous_formats(self) -> tuple[str, ...]:
        """The formats of dates and times that fit all values, if there are several with different meanings."""
        if not self.candidates or self.candidates[0].format is None:
            return ()
        formats = tuple(candidate.format for candidate in self.candidates if candidate.format is not None)
        return formats if len({f.replace("%B", "%b") for f in formats}) > 1 else ()

    def enum_values(self) -> tuple[str, ...] | None:
        """The values of the column, if it has few distinct ones that an enum may have."""
        if self._few is None or self.empty or self.null_texts.keys() - set(_CERTAIN_NULLS):
            return None
        words = sorted(self._few)
        many = self.distinct.rows >= max(2 * _ROWS_PER_VALUE, len(words) * _ROWS_PER_VALUE)
        return tuple(words) if len(words) > 1 and many and all(map(_ENUM_TEXT.fullmatch, words)) else None

    def complete(self) -> bool:
        """Whether every row has a value."""
        return self.rows > 0 and self.nulls == 0 and not self.null_texts and not self.empty

    @property
    def is_key(self) -> bool:
        """Whether each row has another value."""
        return self.complete() and self.distinct.rows == self.rows and self.distinct.unique

    def drop_row_hashes(self) -> None:
        self.row_hashes = None


def null_texts_of(columns: list[ColumnProfile]) -> tuple[str, ...]:
    r"""The texts that mean null in a CSV file.

    A text such as `NA` counts as null if a column that is not a text column has it, and no text column does. `NULL`
    counts as null in all columns if a column that is not a text column has it. `\N` always does.
    """
    found: dict[str, None] = {}
    for text in NULL_TEXTS:
        having = [column for column in columns if text in column.null_texts]
        if not having:
            continue
        typed = [column for column in having if column.candidates and not column.ambiguous_formats]
        empty = [column for column in having if column.distinct.rows == 0 and column.empty == 0]
        alone = len(typed) + len(empty) == len(having)
        if text in _CERTAIN_NULLS or (typed and (alone or text in _SQL_NULLS)):
            found[text] = None
    return tuple(found)


def _plain(values: pa.Array) -> pa.Array:
    """The values in a type with all Arrow functions: views and small floats have only a few."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if pa.types.is_string_view(kind):
        return values.cast(pa.large_utf8())
    if pa.types.is_binary_view(kind):
        return values.cast(pa.large_binary())
    if pa.types.is_decimal(kind) and kind.scale:
        return values.cast(pa.float64())
    return values.cast(pa.float32()) if pa.types.is_float16(kind) else values


def pairs_are_unique(one: ColumnProfile, other: ColumnProfile) -> bool | None:
    """Whether no two rows have the same values in both columns; None if that was not tested."""
    if one.row_hashes is None or other.row_hashes is None:
        return None
    first = np.concatenate([*one.row_hashes, np.zeros(0, np.uint64)])
    second = np.concatenate([*other.row_hashes, np.zeros(0, np.uint64)])
    if len(first) != one.rows or len(second) != other.rows:
        return None
    return len(np.unique(combined(first, second))) == len(first)


def combined(first: Digests, second: Digests) -> Digests:
    """The hashes of pairs."""
    mixed: Digests = (first * np.uint64(0x9E37_79B9_7F4A_7C15)) ^ (second + (first >> np.uint64(7)))
    mixed *= np.uint64(0xC2B2_AE3D_27D4_EB4F)
    return mixed ^ (mixed >> np.uint64(31))
