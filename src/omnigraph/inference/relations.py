"""Finds the keys of tables and the references between them, by the names and the values of columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from omnigraph.dataclass import dataclass
from omnigraph.inference.column_profile import ColumnProfile, combined, pairs_are_unique
from omnigraph.inference.names import singular, table_words, tokens
from omnigraph.inference.table_profile import TableProfile
from omnigraph.lang.types import Scalar

_KEY_TYPES = (Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.DATE)
_ID_WORDS = ("id", "ids", "key", "uuid", "guid", "uid", "no", "nr", "number", "code", "ref", "pk")
_KEY_NAMES = ("code", "key", "uuid", "guid", "uid", "sku", "isbn", "iso", "slug", "symbol", "name", "title", "email")
_ONE_KIND = ("sku", "isbn")
"""Names of keys that identify things of one kind, so a column of the same name in another table refers to them."""

_HIERARCHY = ("parent", "manager", "reports", "boss", "supervisor", "previous", "next", "predecessor", "successor")
"""Words in the names of columns that refer to rows of the same table."""

_MAX_PAIR_COLUMNS, _EDGE_COLUMNS = 6, 3

PAIRS = (
    ("src", "dst"),
    ("source", "target"),
    ("source", "destination"),
    ("src", "dest"),
    ("source", "dest"),
    ("from", "to"),
    ("start", "end"),
    ("head", "tail"),
    ("origin", "destination"),
    ("citing", "cited"),
    ("follower", "followee"),
    ("subject", "object"),
    ("parent", "child"),
    ("a", "b"),
    ("1", "2"),
)
"""Words in the names of the two columns of an edge."""

_ENDS = frozenset(word for pair in PAIRS for word in pair)
_TIMES = ("date", "time", "datetime", "timestamp", "ts", "at", "year", "month", "day", "hour", "week", "epoch")
_AMOUNTS = ("lat", "latitude", "lon", "lng", "long", "longitude", "price", "amount", "value", "balance", "rate")
_NOT_ENDS = frozenset((*_TIMES, *_AMOUNTS))
"""Words in the names of columns that have a start and an end, but no nodes."""


@dataclass(slots=True)
class Key:
    """The key of a table.

    Attributes:
        columns: the columns of the key.
        reason: why it is the key.
        named: whether the name of the column says that it is a key.
        own: whether the name of the column says that it is the key of this table.
    """

    columns: tuple[ColumnProfile, ...]
    reason: str
    named: bool
    own: bool = False


@dataclass(slots=True)
class Reference:
    """Columns that contain keys of a table.

    Attributes:
        target: the table.
        reason: how it was found.
    """

    columns: tuple[ColumnProfile, ...]
    target: TableProfile
    reason: str


def key_of(table: TableProfile) -> Key | None:
    """The column whose values identify the rows of a table; None if there is no such column."""
    unique = [column for column in table.columns if column.is_key and _may_be_key(table, column)]
    if not unique:
        return None
    words = {"_".join(own) for own in _own_names(table)[:2]}
    ranked = sorted(unique, key=lambda column: _key_rank(column.name, words))
    best = ranked[0]
    rank = _key_rank(best.name, words)
    if rank < _UNNAMED and not (rank == _BY_NAME and table.columns[0] in unique and _has_codes(table.columns[0])):
        return Key((best,), f"{_unique(table)}, and the name is that of a key", True, rank <= 1)
    first = table.columns[0]
    if first is not best and first in unique:
        best = first
    if first is best:
        return Key((best,), f"the {table.rows:,} values of the first column are unique", False)
    return None


def _unique(table: TableProfile) -> str:
    return "the 1 value is unique" if table.rows == 1 else f"the {table.rows:,} values are unique"


def pair_key_of(table: TableProfile) -> Key | None:
    """Two columns that together identify the rows of a table."""
    likely = [c for c in table.columns if c.complete() and _may_be_key(table, c) and is_id_name(c.name)]
    others = [c for c in table.columns if c.complete() and _may_be_key(table, c) and c not in likely]
    for one, other in combinations((likely + others)[:_MAX_PAIR_COLUMNS], 2):
        if one not in likely or one.is_key or other.is_key:
            continue
        if pairs_are_unique(one, other):
            return Key((one, other), f"the {table.rows:,} pairs of values are unique, but neither column is", True)
    return None


_BY_NAME, _UNNAMED = 3, 4


def _has_codes(column: ColumnProfile) -> bool:
    """Whether the values are texts such as `tt0000001`."""
    return column.codes is True and not column.candidates


def _key_rank(name: str, own: set[str]) -> int:
    words = tokens(name)
    joined = "_".join(words)
    if joined in ("id", "_id"):
        return 0
    if any(joined in (f"{each}_id", f"{each}_key", f"{each}_code", f"{each}_no", f"{each}_number") for each in own):
        return 1
    if words and words[-1] in ("id", "uuid", "guid", "uid", "pk"):
        return 2
    if words and words[-1] in _KEY_NAMES:
        return 3
    return _UNNAMED


def _may_be_key(table: TableProfile, column: ColumnProfile) -> bool:
    kind = column.kind(table.nulls)
    return kind.scalar in _KEY_TYPES and not kind.list and column.unloadable is None and not column.unsupported


def is_id_name(name: str) -> bool:
    """Whether a column name ends like that of an identifier."""
    words = tokens(name)
    return bool(words) and (
        words[-1] in _ID_WORDS or (len(words) > 1 and words[-2] in _ID_WORDS and words[-1].isdigit())
    )


def _own_names(table: TableProfile) -> list[list[str]]:
    """The words by which columns refer to a table: `order_lines`, `order_line`, and the last word alone."""
    words = table_words(table.stem)
    alone = [*words[:-1], singular(words[-1])]
    return [alone, words] + ([[alone[-1]]] if len(words) > 1 else [])


def references_of(table: TableProfile, keys: Sequence[tuple[TableProfile, Key]]) -> list[Reference]:
    """The columns of a table whose values are keys of a table, by name and by value."""
    found: list[Reference] = []
    own = [key.columns[0] for owner, key in keys if owner is table]
    ends = [column for pair in ends_by_name(table) for column in pair]
    for column in table.columns:
        targets = []
        for target, key in keys:
            if len(key.columns) > 1 or key.columns[0] is column:
                continue
            found_reason = _reason(table, column, target, key, column in ends)
            if found_reason is None:
                continue
            if found_reason[0] <= 1 or column not in own or _continues(column, key, keys, table, target):
                targets.append((found_reason, target))
        if not targets:
            continue
        (rank, reason), target = min(targets, key=lambda pair: pair[0][0])
        equally = {id(other) for (other_rank, _), other in targets if other_rank == rank}
        if rank < _BY_VALUE or len(equally) == 1:
            found.append(Reference((column,), target, reason))
    return found


def _continues(
    column: ColumnProfile,
    key: Key,
    keys: Sequence[tuple[TableProfile, Key]],
    table: TableProfile,
    target: TableProfile,
) -> bool:
    """Whether two tables have the same key, and one has more columns of some rows of the other, or of all."""
    member = key.columns[0]
    if any(each.own for owner, each in keys if owner is table) or tokens(column.name) != tokens(member.name):
        return False
    if not is_id_name(column.name) and not _has_codes(column):
        return False
    owners = [owner for owner, _ in keys]
    fewer = column.distinct.rows < member.distinct.rows
    return fewer or (column.distinct.rows == member.distinct.rows and owners.index(target) < owners.index(table))


def pair_references_of(table: TableProfile, keys: Sequence[tuple[TableProfile, Key]]) -> list[Reference]:
    """Two columns of a table whose values are keys of two columns of another table, with the same names."""
    found = []
    for target, key in keys:
        if target is table or len(key.columns) != 2:
            continue
        by_name = {column.name.lower(): column for column in table.columns}
        own = [by_name.get(member.name.lower()) for member in key.columns]
        if own[0] is None or own[1] is None:
            continue
        mine, theirs = _pairs((own[0], own[1])), _pairs(key.columns)
        if mine is None or theirs is None or len(mine) == 0 or not np.isin(mine, theirs).all():
            continue
        reason = f"all pairs of values are in {target.name}"
        found.append(Reference((own[0], own[1]), target, reason))
    return found


def _pairs(columns: Sequence[ColumnProfile]) -> np.ndarray[tuple[int], np.dtype[np.uint64]] | None:
    first, second = (column.row_hashes for column in columns)
    if first is None or second is None:
        return None
    empty = np.zeros(0, np.uint64)
    return np.unique(combined(np.concatenate([*first, empty]), np.concatenate([*second, empty])))


_BY_VALUE = 4


def _reason(
    table: TableProfile, column: ColumnProfile, target: TableProfile, key: Key, is_end: bool
) -> tuple[int, str] | None:
    """How well a column refers to a key, and why; None if it does not."""
    member = key.columns[0]
    kind, wanted = column.kind(table.nulls), member.kind(target.nulls)
    if column.distinct.rows == 0 or kind.list or _group(kind.scalar) != _group(wanted.scalar):
        return None
    rank = _name_rank(table, column, target, key, is_end)
    if rank is None or column.distinct.missing_in(member.distinct) != 0:
        return None
    if column.empty or any(column.null_texts.get(text) for text in column.null_texts if text not in table.nulls):
        return None
    by = "and the name says so" if rank < _BY_VALUE else "of no other table"
    return rank, f"all its values are keys of {target.name}, {by}"


def owners_of(
    table: TableProfile, column: ColumnProfile, keys: Sequence[tuple[TableProfile, Key]]
) -> list[TableProfile]:
    """The tables that together have all values of a column as their keys; none if values are in no table."""
    values = column.distinct.hashes()
    if values is None or len(values) == 0 or not is_id_name("_".join(w for w in tokens(column.name) if w not in _ENDS)):
        return []
    found = []
    group = _group(column.kind(table.nulls).scalar)
    for owner, key in keys:
        known = key.columns[0].distinct.hashes()
        if known is None or owner is table or _group(key.columns[0].kind(owner.nulls).scalar) != group:
            continue
        rest = values[~np.isin(values, known)]
        if len(rest) < len(values):
            found.append(owner)
            values = rest
    return found if len(values) == 0 else []


def dangling(table: TableProfile, keys: Sequence[tuple[TableProfile, Key]]) -> dict[str, str]:
    """The columns that refer to a table by their name, but have values that are no keys of it, with the reason."""
    found = {}
    for column in table.columns:
        for target, key in keys:
            member = key.columns[0]
            if len(key.columns) > 1 or member is column or column.distinct.rows == 0:
                continue
            rank = _name_rank(table, column, target, key, False)
            missing = column.distinct.missing_in(member.distinct)
            if rank is not None and rank < _BY_VALUE and missing and table is not target:
                total = len(hashes) if (hashes := column.distinct.hashes()) is not None else 0
                found[column.name] = (
                    f"{missing:,} of its {total:,} distinct values are in no row of {target.name}, so it is no edge"
                )
    return found


def _group(scalar: Scalar) -> str:
    return "number" if scalar.is_integer else scalar.value


def _name_rank(table: TableProfile, column: ColumnProfile, target: TableProfile, key: Key, is_end: bool) -> int | None:
    """How well the name of a column matches the key of a table: 0 is best; None if it does not match."""
    words, member = tokens(column.name), tokens(key.columns[0].name)
    bare = [word for word in words if not word.isdigit()]
    general = len(member) == 1 and member[0] in (*_ID_WORDS, *_KEY_NAMES) and member[0] not in _ONE_KIND
    if not target.named or not table.named:
        return _BY_VALUE if _group(column.kind(table.nulls).scalar) == Scalar.STRING.value else None
    for own in _own_names(target):
        for suffix in (member, ["id"], []):
            full = [*own, *suffix]
            if bare == full and target is not table:
                return 0
            if len(bare) > len(full) and bare[-len(full) :] == full:
                return 1
    if not general and words == member and target is not table:
        return 2
    if not general and len(words) > len(member) and words[-len(member) :] == member:
        return 3
    if target is table and any(word in _HIERARCHY for word in words):
        return 3
    # Small numbers occur in many keys by chance, so a number needs a name that says more.
    is_text = _group(column.kind(table.nulls).scalar) == Scalar.STRING.value
    return _BY_VALUE if is_end or (is_text and is_id_name(column.name)) else None


def ends_by_name(table: TableProfile) -> list[tuple[ColumnProfile, ColumnProfile]]:
    """The pairs of columns whose names say that they are the endpoints of an edge."""
    usable = [column for column in table.columns if _may_be_key(table, column) and not _is_time(table, column)]
    words = {column.name: tokens(column.name) for column in usable}
    found = []
    for one, other in PAIRS:
        for first in usable:
            if one not in words[first.name] or not (len(one) > 1 or is_id_name(first.name)):
                continue
            wanted = [other if word == one else word for word in words[first.name]]
            match = next((column for column in usable if words[column.name] == wanted), None)
            if match is not None and not _is_range(table, first, match):
                found.append((first, match))
    return found or _unnamed_ends(table)


def _unnamed_ends(table: TableProfile) -> list[tuple[ColumnProfile, ColumnProfile]]:
    """The columns of a list of edges without a header: two or three, and the first two have values in common."""
    if table.named or not 2 <= len(table.columns) <= _EDGE_COLUMNS:
        return []
    first, last = table.columns[:2]
    kinds = {_group(column.kind(table.nulls).scalar) for column in (first, last) if _may_be_key(table, column)}
    mine, theirs = first.distinct.hashes(), last.distinct.hashes()
    if first.is_key or len(kinds) != 1 or mine is None or theirs is None or not np.isin(mine, theirs).any():
        return []
    return [(first, last)]


def _is_time(table: TableProfile, column: ColumnProfile) -> bool:
    """Whether a column has times or amounts: `start_date` and `end_date` are the ends of no edge."""
    dates = column.kind(table.nulls).scalar is Scalar.DATE
    return (dates or not _NOT_ENDS.isdisjoint(tokens(column.name))) and not is_id_name(column.name)


def _is_range(table: TableProfile, first: ColumnProfile, last: ColumnProfile) -> bool:
    """Whether two columns are the ends of a range of numbers: they are named `start` and `end`, and others precede."""
    numbers = all(column.kind(table.nulls).scalar.is_integer for column in (first, last))
    return numbers and tokens(first.name) == ["start"] and table.columns[0] is not first
