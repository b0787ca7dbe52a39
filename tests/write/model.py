"""A graph in plain dictionaries, with loads and mutations that work one row at a time.

It does not use Arrow, tables or commits. It is written from the rules of the languages, so that the engine can be
compared with it.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

RANGES = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}
FLOATS = ("F32", "F64")
NUMBERS = (*RANGES, *FLOATS)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Row = dict[str, Any]


# The schema


@dataclass(frozen=True)
class Prop:
    """A property with its own constraints.

    Attributes:
        scalar: the type of the value, or of each item of a list; `enum` and `Vector` are separate types here.
        default: the default as it is stored, or None.
    """

    name: str
    scalar: str
    nullable: bool = False
    is_list: bool = False
    values: tuple[str, ...] = ()
    dim: int = 0
    default: Any = None
    low: float | None = None
    high: float | None = None
    pattern: str | None = None

    @property
    def is_single(self) -> bool:
        return not self.is_list and self.scalar != "Vector"

    def written(self) -> str:
        kind = self.scalar
        if kind == "enum":
            kind = f"enum({', '.join(self.values)})"
        elif kind == "Vector":
            kind = f"Vector({self.dim})"
        kind = (f"[{kind}]" if self.is_list else kind) + "?" * self.nullable
        default = "" if self.default is None else f" @default({default_text(self)})"
        lines = [f"{self.name}: {kind}{default}"]
        if self.low is not None or self.high is not None:
            low, high = ("" if bound is None else str(bound) for bound in (self.low, self.high))
            lines.append(f"@range({self.name}, {low}..{high})")
        if self.pattern is not None:
            lines.append(f"@check({self.name}, {json.dumps(self.pattern)})")
        return "\n    ".join(lines)


def default_text(prop: Prop) -> str:
    if prop.scalar == "Date":
        return f'"{date.fromordinal(EPOCH.toordinal() + prop.default)}"'
    if prop.scalar == "DateTime":
        return f'"{(EPOCH + timedelta(milliseconds=prop.default)).isoformat()}"'
    if prop.scalar == "enum":
        return str(prop.default)
    return json.dumps(prop.default)


@dataclass(frozen=True)
class Type:
    """A node type, or an edge type if it has a source."""

    name: str
    props: Mapping[str, Prop]
    key: tuple[str, ...] | None = None
    uniques: tuple[tuple[str, ...], ...] = ()
    source: str | None = None
    target: str | None = None
    card: tuple[int, int | None] = (0, None)
    card_in: tuple[int, int | None] = (0, None)

    @property
    def is_edge(self) -> bool:
        return self.source is not None

    @property
    def table(self) -> str:
        return f"{'edge' if self.is_edge else 'node'}:{self.name}"

    @property
    def key_order(self) -> tuple[str, ...]:
        """The endpoints of an edge, then properties by name, as in every new schema."""
        assert self.key is not None
        return tuple(sorted(self.key, key=lambda name: (("src", "dst", name).index(name), name)))

    def written(self) -> str:
        head = f"node {self.name}"
        if self.is_edge:
            head = f"edge {self.name}: {self.source} -> {self.target}"
            for word, (low, high) in (("@card", self.card), ("@card_in", self.card_in)):
                if (low, high) != (0, None):
                    head += f" {word}({low}..{'' if high is None else high})"
        lines = [prop.written() for prop in self.props.values()]
        if self.key is not None:
            lines.append(f"@key({', '.join(self.key)})")
        lines += [f"@unique({', '.join(group)})" for group in self.uniques]
        return head + " {\n    " + "\n    ".join(lines) + "\n}"


@dataclass(frozen=True)
class Schema:
    nodes: tuple[Type, ...]
    edges: tuple[Type, ...]

    @property
    def types(self) -> tuple[Type, ...]:
        return (*self.nodes, *self.edges)

    def type(self, table: str) -> Type:
        return next(t for t in self.types if t.table == table)

    def written(self) -> str:
        return "\n".join(t.written() for t in self.types)


# Values


class WrongError(Exception):
    """A value that does not fit its property."""


def stored(prop: Prop, value: Any) -> Any:
    """Convert a given value to its stored form.

    Raises:
        WrongError: it does not fit.
    """
    if prop.scalar == "Vector":
        if not isinstance(value, list) or len(value) != prop.dim:
            raise WrongError
        return [_scalar("F32", item) for item in value]
    if prop.is_list:
        if not isinstance(value, list):
            raise WrongError
        return [_scalar(prop.scalar, item) for item in value]
    return _scalar(prop.scalar, value)


def _scalar(scalar: str, value: Any) -> Any:
    if scalar in RANGES:
        low, high = RANGES[scalar]
        if isinstance(value, float) and value.is_integer():
            raise WrongError
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise WrongError
        return value
    if scalar in FLOATS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise WrongError
        return f32(value) if scalar == "F32" else float(value)
    if scalar in ("String", "enum"):
        if not isinstance(value, str):
            raise WrongError
        return value
    if scalar == "Bool":
        if not isinstance(value, bool):
            raise WrongError
        return value
    return _time(scalar, value)


def _time(scalar: str, value: Any) -> int:
    """Days or milliseconds, from a number or a text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise WrongError
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise WrongError from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    millis = (moment - EPOCH) // timedelta(milliseconds=1)
    return millis // 86_400_000 if scalar == "Date" else millis


def f32(value: float) -> float:
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise WrongError from None
    return found


def canonical(prop: Prop | None, value: Any) -> str:
    """A key member as text; the endpoints of an edge are texts."""
    if prop is None or prop.scalar in ("String", "enum"):
        return str(value)
    if prop.scalar == "Bool":
        return "true" if value else "false"
    if prop.scalar == "F32":
        return "0" if value == 0 else np.format_float_positional(np.float32(value), unique=True, trim="-")
    if prop.scalar == "F64":
        return "0" if value == 0 else f"{Decimal(repr(value)).normalize():f}"
    return str(value)


def derived_id(declared: Type, row: Row) -> str:
    texts = [canonical(declared.props.get(name), row[name]) for name in declared.key_order]
    return texts[0] if len(texts) == 1 else json.dumps(texts, ensure_ascii=False, separators=(",", ":"))


# Conditions


@dataclass(frozen=True)
class Condition:
    """`op` is a comparison, `in`, `not in`, `is null`, `is not null`, `contains`, or `and`, `or`, `not` over parts.

    Attributes:
        left: the property, with its name in mutations: `from`, `to`, `id`, or a declared one.
    """

    op: str
    left: str = ""
    prop: Prop | None = None
    value: Any = None
    parts: tuple[Condition, ...] = ()

    def holds(self, row: Row) -> bool | None:
        truths = [part.holds(row) for part in self.parts]
        match self.op:
            case "and":
                return False if False in truths else None if None in truths else True
            case "or":
                return True if True in truths else None if None in truths else False
            case "not":
                return None if truths[0] is None else not truths[0]
        found = row[{"from": "src", "to": "dst"}.get(self.left, self.left)]
        match self.op:
            case "is null":
                return found is None
            case "is not null":
                return found is not None
            case "contains":
                return found is not None and self.value is not None and self.value in found
            case "starts_with":
                return found is not None and self.value is not None and found.startswith(self.value)
        if found is None or self.value is None:
            return None
        if self.op == "in":
            return found in self.value
        if self.op == "not in":
            return found not in self.value
        order = _order(found, self.value)
        return {"=": order == 0, "!=": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[
            self.op
        ]


def _order(left: Any, right: Any) -> int:
    """Texts compare by their UTF-8 bytes."""
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    return int(left > right) - int(left < right)


# Requests


@dataclass(frozen=True)
class Record:
    """One record of a load. `data` has the given members; all others are omitted."""

    table: str
    data: Mapping[str, Any]
    id: str | None = None
    source: Any = None
    target: Any = None


@dataclass(frozen=True)
class Insert:
    """`insert`, `create` or `merge`; the values of edges include `from` and `to`."""

    word: str
    table: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Update:
    table: str
    values: Mapping[str, Any]
    where: Condition


@dataclass(frozen=True)
class Delete:
    table: str
    where: Condition


Statement = Insert | Update | Delete


# Answers


class RefusedError(Exception):
    """A request that changes nothing."""


@dataclass
class BadInputError(RefusedError):
    """Values that do not fit: the number of the record or statement, and the property.

    Attributes:
        first_only: whether there may be more problems after this one.
    """

    problems: set[tuple[int, str]]
    first_only: bool = False


@dataclass
class BrokenError(RefusedError):
    """Violated constraints.

    Attributes:
        groups: kind and subject of each constraint, in the order of checking, with the violating entities.
    """

    groups: list[tuple[str, str, set[str]]]


@dataclass
class TakenError(RefusedError):
    """Entities that must be new but exist: tables and ids."""

    taken: set[tuple[str, str]]


@dataclass(frozen=True)
class Done:
    """The outcome of a request.

    Attributes:
        counts: loaded entities by table; for a mutation, affected entities under `nodes` and `edges`.
        wrote: whether there is a commit.
    """

    counts: Mapping[str, int]
    wrote: bool


@dataclass
class Change:
    """The change of one type."""

    rows: dict[str, Row] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    replaced: bool = False

    def after(self, before: Mapping[str, Row]) -> dict[str, Row]:
        kept = {} if self.replaced else {id_: row for id_, row in before.items() if id_ not in self.deleted}
        return {**kept, **self.rows}


# The graph


class Model:
    """A graph. Entities by table and id; generated ids begin with `new-` until the test reads the real ones."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.state: dict[str, dict[str, Row]] = {t.table: {} for t in schema.types}
        self._made = 0

    def _fresh(self) -> str:
        self._made += 1
        return f"new-{self._made:06}"

    # Loads

    def load(self, records: Sequence[Record], mode: str) -> Done:
        """Apply records as one load.

        Raises:
            RefusedError: nothing is loaded.
        """
        rows = self._built(records)
        changes: dict[str, Change] = {}
        twice: dict[str, set[str]] = {}
        for table, id_, row in rows:
            change = changes.setdefault(table, Change(replaced=mode == "overwrite"))
            if id_ in change.rows:
                twice.setdefault(table, set()).add(id_)
            change.rows.pop(id_, None)
            change.rows[id_] = row
        keyed = {table: ids for table, ids in twice.items() if self.schema.type(table).key is not None}
        if keyed:
            self._refuse_twins(rows, changes, keyed)
        self._validate(changes)
        taken = {(table, id_) for table, ids in twice.items() for id_ in ids if mode != "merge"}
        if mode == "append":
            taken |= {(table, id_) for table, c in changes.items() for id_ in c.rows if id_ in self.state[table]}
        if taken:
            raise TakenError(taken)
        self._apply(changes)
        return Done({table: len(change.rows) for table, change in changes.items()}, bool(changes))

    def _built(self, records: Sequence[Record]) -> list[tuple[str, str, Row]]:
        problems: set[tuple[int, str]] = set()
        rows = []
        for number, record in enumerate(records, 1):
            declared = self.schema.type(record.table)
            row: Row = {}
            wrong = {name for name in record.data if name not in declared.props}
            if declared.is_edge:
                for end, given in (("src", record.source), ("dst", record.target)):
                    row[end] = given
                    if not isinstance(given, str):
                        wrong.add({"src": "from", "dst": "to"}[end])
            for name, prop in declared.props.items():
                try:
                    row[name] = self._loaded(prop, record.data)
                except WrongError:
                    wrong.add(name)
            derived = None
            if declared.key is not None and not wrong & {{"src": "from", "dst": "to"}.get(k, k) for k in declared.key}:
                derived = derived_id(declared, row)
                if record.id is not None and record.id != derived:
                    wrong.add("id")
            if not wrong:
                ids = (id_ for id_ in (derived, record.id, self._fresh()) if id_ is not None)
                rows.append((record.table, next(ids), row))
            problems |= {(number, f"{declared.name}.{name}") for name in wrong}
        if problems:
            raise BadInputError(problems)
        return rows

    def _loaded(self, prop: Prop, data: Mapping[str, Any]) -> Any:
        """A member of a record. The default replaces an omitted value, and null in a required property."""
        given = data.get(prop.name)
        if given is not None:
            return stored(prop, given)
        if prop.default is not None and (prop.name not in data or not prop.nullable):
            return prop.default
        if not prop.nullable:
            raise WrongError
        return None

    def _refuse_twins(
        self, rows: list[tuple[str, str, Row]], changes: dict[str, Change], keyed: dict[str, set[str]]
    ) -> None:
        """Refuse two records with the same key. Wrong values are reported before it, and nothing after it."""
        found = []
        for declared in self._ordered(changes):
            mine = list(changes[declared.table].rows.items())
            if declared.table in keyed:
                mine = [(id_, row) for table, id_, row in rows if table == declared.table]
            found += list(self._wrong_values(declared, mine))
        for declared in self._ordered(keyed):
            found.append(("unique", subject(declared, tuple(sorted(declared.key or ()))), keyed[declared.table]))
        raise BrokenError([group for group in found if group[2]])

    # Mutations

    def mutate(self, statements: Sequence[Statement]) -> Done:
        """Apply statements as one mutation.

        Raises:
            RefusedError: nothing is written.
        """
        prepared = self._prepared(statements)
        changes: dict[str, Change] = {}
        counts = {"nodes": 0, "edges": 0}
        taken: set[tuple[str, str]] = set()
        for number, (statement, values) in enumerate(zip(statements, prepared, strict=True), 1):
            declared = self.schema.type(statement.table)
            word = "edges" if declared.is_edge else "nodes"
            match statement:
                case Insert():
                    counts[word] += 1
                    taken |= self._insert(number, statement, declared, values, changes)
                case Update():
                    for id_, row in self._matches(statement.table, statement.where, changes):
                        counts[word] += 1
                        changes.setdefault(statement.table, Change()).rows[id_] = {**row, **values}
                case Delete():
                    for id_, _ in self._matches(statement.table, statement.where, changes):
                        counts[word] += 1
                        changes.setdefault(statement.table, Change()).deleted.add(id_)
                        if not declared.is_edge:
                            counts["edges"] += self._cascade(declared.name, id_, changes)
        self._validate(changes)
        if taken:
            raise TakenError(taken)
        self._apply(changes)
        return Done(counts, bool(changes))

    def _prepared(self, statements: Sequence[Statement]) -> list[Row]:
        """The values of each statement in stored form, including the defaults of inserts."""
        problems: set[tuple[int, str]] = set()
        prepared = []
        for number, statement in enumerate(statements, 1):
            declared = self.schema.type(statement.table)
            row: Row = {}
            for name, given in () if isinstance(statement, Delete) else statement.values.items():
                prop = declared.props.get(name)
                place = {"from": "src", "to": "dst"}[name] if prop is None else name
                try:
                    row[place] = given if prop is None else self._assigned(prop, given)
                except WrongError:
                    problems.add((number, f"{declared.name}.{name}"))
            prepared.append(row)
        if problems:
            raise BadInputError(problems)
        return prepared

    def _assigned(self, prop: Prop, given: Any) -> Any:
        if given is None:
            if not prop.nullable:
                raise WrongError
            return None
        if prop.scalar in RANGES and isinstance(given, float) and given.is_integer():
            given = int(given)
        return stored(prop, given)

    def _insert(
        self, number: int, statement: Insert, declared: Type, values: Row, changes: dict[str, Change]
    ) -> set[tuple[str, str]]:
        table = statement.table
        id_ = self._fresh() if declared.key is None else derived_id(declared, values)
        now = self._now(table, changes)
        change = changes.setdefault(table, Change())
        if statement.word == "merge" and id_ in now:
            change.rows[id_] = {**now[id_], **values}
            return set()
        row = {name: values.get(name, prop.default) for name, prop in declared.props.items()}
        row |= {end: values[end] for end in ("src", "dst") if declared.is_edge}
        missing = {name for name, prop in declared.props.items() if row[name] is None and not prop.nullable}
        if missing:
            raise BadInputError({(number, f"{declared.name}.{name}") for name in missing}, first_only=True)
        change.rows.pop(id_, None)
        change.rows[id_] = row
        return {(table, id_)} if statement.word == "create" and id_ in now else set()

    def _now(self, table: str, changes: Mapping[str, Change]) -> dict[str, Row]:
        """The entities of a type after the statements so far."""
        return changes.get(table, Change()).after(self.state[table])

    def _matches(self, table: str, where: Condition, changes: Mapping[str, Change]) -> list[tuple[str, Row]]:
        now = self._now(table, changes)
        return [(id_, row) for id_, row in now.items() if where.holds({"id": id_, **row}) is True]

    def _cascade(self, node: str, id_: str, changes: dict[str, Change]) -> int:
        gone = 0
        for edge in self.schema.edges:
            ends = [end for end, kind in (("src", edge.source), ("dst", edge.target)) if kind == node]
            for edge_id, row in self._now(edge.table, changes).items():
                if any(row[end] == id_ for end in ends):
                    changes.setdefault(edge.table, Change()).deleted.add(edge_id)
                    gone += 1
        return gone

    # Constraints

    def _validate(self, changes: dict[str, Change]) -> None:
        found: list[tuple[str, str, set[str]]] = []
        for declared in self._ordered(changes):
            found += self._wrong_values(declared, list(changes[declared.table].rows.items()))
        for declared in sorted(self.schema.types, key=lambda t: (t.is_edge, t.name)):
            found += self._groups_of(declared, changes)
        found = [group for group in found if group[2]]
        if found:
            raise BrokenError(found)

    def _ordered(self, changes: Iterable[str]) -> list[Type]:
        """Changed types in the order of checking: nodes, then edges, each by name."""
        return sorted((self.schema.type(table) for table in changes), key=lambda t: (t.is_edge, t.name))

    def _wrong_values(self, declared: Type, rows: Sequence[tuple[str, Row]]) -> Iterator[tuple[str, str, set[str]]]:
        """Check enums in the order of properties, then patterns, then ranges."""
        for name, prop in sorted(declared.props.items()):
            if prop.scalar == "enum":
                yield "value", f"{declared.name}.{name}", {id_ for id_, row in rows if not _in_enum(prop, row[name])}
        for name, prop in sorted(declared.props.items()):
            if prop.pattern is not None:
                wrong = {i for i, row in rows if row[name] is not None and not re.search(prop.pattern, row[name])}
                yield "value", f"{declared.name}.{name}", wrong
        for name, prop in sorted(declared.props.items()):
            if prop.low is not None or prop.high is not None:
                wrong = {id_ for id_, row in rows if row[name] is not None and not _in_range(prop, float(row[name]))}
                yield "value", f"{declared.name}.{name}", wrong

    def _groups_of(self, declared: Type, changes: Mapping[str, Change]) -> Iterator[tuple[str, str, set[str]]]:
        """Violations over all entities of a type: uniqueness, endpoints, cardinality."""
        change = changes.get(declared.table)
        after = self._now(declared.table, changes)
        if change is not None:
            for group in sorted(tuple(sorted(group)) for group in declared.uniques):
                yield "unique", subject(declared, group), _shared(group, change.rows, after)
        if not declared.is_edge:
            return
        for end, node in (("src", declared.source), ("dst", declared.target)):
            there = self._now(f"node:{node}", changes)
            wrong = {id_ for id_, row in (change.rows if change else {}).items() if row[end] not in there}
            yield "endpoint", f"{declared.name}.{end}", wrong
        yield from self._stranded(declared, after, changes)
        if change is not None:
            yield from self._cardinalities(declared, change, after, changes)

    def _stranded(
        self, edge: Type, after: Mapping[str, Row], changes: Mapping[str, Change]
    ) -> Iterator[tuple[str, str, set[str]]]:
        """Edges that stay although an overwrite removes their nodes."""
        own = changes.get(edge.table, Change())
        for end, node in (("src", edge.source), ("dst", edge.target)):
            taken = changes.get(f"node:{node}", Change())
            if taken.replaced:
                gone = set(self.state[f"node:{node}"]) - set(taken.rows)
                kept = {id_: row for id_, row in after.items() if id_ not in own.rows}
                yield "endpoint", f"{edge.name}.{end}", {id_ for id_, row in kept.items() if row[end] in gone}

    def _cardinalities(
        self, edge: Type, change: Change, after: Mapping[str, Row], changes: Mapping[str, Change]
    ) -> Iterator[tuple[str, str, set[str]]]:
        """Counted for the old and new nodes of added, changed and removed edges, except nodes that are removed."""
        before = self.state[edge.table]
        changed = {i for i in before if change.replaced or i in change.deleted or i in change.rows}
        for end, word, (low, high), node in (
            ("src", "@card", edge.card, edge.source),
            ("dst", "@card_in", edge.card_in, edge.target),
        ):
            if (low, high) == (0, None):
                continue
            table = f"node:{node}"
            gone = set(self.state[table]) - set(self._now(table, changes))
            touched = {row[end] for row in change.rows.values()} | {before[i][end] for i in changed}
            counts = Counter(row[end] for row in after.values())
            wrong = {n for n in touched - gone if counts[n] < low or (high is not None and counts[n] > high)}
            yield "cardinality", f"{edge.name} {word}", wrong

    def _apply(self, changes: Mapping[str, Change]) -> None:
        for table, change in changes.items():
            self.state[table] = deepcopy(change.after(self.state[table]))


def subject(declared: Type, group: tuple[str, ...]) -> str:
    return f"{declared.name}.{group[0]}" if len(group) == 1 else f"{declared.name}.({', '.join(group)})"


def _in_enum(prop: Prop, value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return value is None or all(item in prop.values for item in items)


def _in_range(prop: Prop, number: float) -> bool:
    if math.isnan(number):
        return False
    return (prop.low is None or number >= prop.low) and (prop.high is None or number <= prop.high)


def _shared(group: tuple[str, ...], changed: Mapping[str, Row], after: Mapping[str, Row]) -> set[str]:
    """For each tuple of several entities, of which one changed: the entity with the greatest id."""
    holders: dict[tuple[Any, ...], list[str]] = {}
    for id_, row in after.items():
        held = tuple(row[name] for name in group)
        if None not in held:
            holders.setdefault(held, []).append(id_)
    return {max(ids) for ids in holders.values() if len(ids) > 1 and any(id_ in changed for id_ in ids)}
