"""The graph against a plain Python model: random schemas, loads and mutations give the same answers and content.

`make soak` tries new random sessions for `OMNIGRAPH_SOAK` seconds. `OMNIGRAPH_SOAK_SEED` repeats a failure: a note of
the error has the value.
"""

from __future__ import annotations

import io
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.write.model import (
    EPOCH,
    NUMBERS,
    RANGES,
    BadInputError,
    BrokenError,
    Condition,
    Delete,
    Done,
    Insert,
    Model,
    Prop,
    Record,
    RefusedError,
    Schema,
    Statement,
    TakenError,
    Type,
    Update,
    WrongError,
    derived_id,
    f32,
    stored,
)

import omnigraph
from omnigraph.errors import BadRowsError, ConstraintError, KeyConflictError, OmnigraphError
from omnigraph.graph import Graph

T = TypeVar("T")

SOAK = float(os.environ.get("OMNIGRAPH_SOAK", "60"))

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Failures are not shrunk: they have few steps, and shrinking would take minutes."""

# ---- random choices


POOLS: dict[str, list[Any]] = {
    "String": ["", "a", "b", "ab", "é", 'q"', "z\\"],
    "Bool": [True, False],
    "I32": [0, 1, 2, -7, 2**31 - 1],
    "I64": [0, 1, 2, -(2**63), 2**53 + 1],
    "U32": [0, 1, 2, 2**32 - 1],
    "U64": [0, 1, 2, 2**64 - 1],
    "F32": [0.0, -0.0, 0.5, f32(0.1), -2.0, 1e10],
    "F64": [0.0, -0.0, 0.5, 0.1, -2.0, 1e-7],
    "Date": [0, -1, 19_782, 59],
    "DateTime": [0, -1, 1_773_480_600_123, 86_400_000],
    "enum": ["red", "blue"],
}
"""Few values of each kind, so that they collide."""

NOBODY = "nobody"


@dataclass
class Draws:
    """Random choices of a test."""

    below: Callable[[int], int]
    """A random integer from zero up to, but not including, the argument."""
    promised: list[tuple[str, str]] = field(default_factory=list)
    """Tables and ids of nodes that earlier parts of the same request write."""

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        return self.below(100) < percent

    def some(self, options: Sequence[T], least: int, most: int) -> list[T]:
        """Some of the options, without duplicates, in their order."""
        count = min(least + self.below(most - least + 1), len(options))
        left = list(range(len(options)))
        chosen = [left.pop(self.below(len(left))) for _ in range(count)]
        return [options[place] for place in sorted(chosen)]

    # schemas

    def schema(self) -> Schema:
        nodes = [self.node(name) for name in ("Ash", "Birch")[: 1 + self.chance(60)]]
        edges = [self.edge(name, nodes) for name in ("Grows", "Ends")[: self.pick((0, 1, 1, 2))]]
        return Schema(tuple(nodes), tuple(edges))

    def node(self, name: str) -> Type:
        props = self.props(1, 4)
        singles = [p.name for p in props.values() if p.is_single]
        key = tuple(self.some(singles, 1, 2)) if self.chance(60) else ()
        for member in key:
            props[member] = replace(props[member], nullable=False, default=None)
        uniques = self.groups(singles) if self.chance(40) else ()
        return Type(name, props, key or None, uniques)

    def edge(self, name: str, nodes: Sequence[Type]) -> Type:
        props = self.props(0, 2)
        singles = [p.name for p in props.values() if p.is_single]
        key: tuple[str, ...] | None = None
        if self.chance(40):
            members = self.some(singles, 0, 1)
            for member in members:
                props[member] = replace(props[member], nullable=False, default=None)
            key = ("src", "dst", *members)
        uniques = self.groups([*singles, "src", "dst"]) if self.chance(30) else ()
        source, target = self.pick(nodes).name, self.pick(nodes).name
        return Type(name, props, key, uniques, source, target, self.card(), self.card())

    def card(self) -> tuple[int, int | None]:
        return self.pick(((0, None), (0, None), (0, None), (0, 1), (1, 2), (1, None), (2, 3)))

    def groups(self, singles: Sequence[str]) -> tuple[tuple[str, ...], ...]:
        group = self.some(singles, 1, 2)
        return (tuple(group),) if group else ()

    def props(self, least: int, most: int) -> dict[str, Prop]:
        return {name: self.prop(name) for name in self.some("kmpqr", least, most)}

    def prop(self, name: str) -> Prop:
        scalar = self.pick(("String", "String", "enum", "Vector", "Bool", "Date", "DateTime", *NUMBERS))
        values = ("blue", "red") if scalar == "enum" else ()
        prop = Prop(name, scalar, self.chance(60), values=values, dim=2 if scalar == "Vector" else 0)
        if scalar != "Vector" and self.chance(20):
            return replace(prop, is_list=True)
        if scalar in NUMBERS and self.chance(30):
            prop = replace(prop, low=self.pick((None, 0, 1)), high=self.pick((2, 100)))
        if scalar == "String" and self.chance(30):
            prop = replace(prop, pattern=self.pick(("^[a-z]", "b")))
        if scalar != "Vector" and self.chance(30):
            prop = replace(prop, default=self.default(prop))
        return prop

    def default(self, prop: Prop) -> Any:
        number = {"I32": 1, "I64": 1, "U32": 1, "U64": 1, "F32": 1.5, "F64": 1.5}
        plain = {"String": "ab", "Bool": True, "Date": 19_782, "DateTime": 1_773_480_600_000, "enum": "red"}
        return {**number, **plain}[prop.scalar]

    # values

    def value(self, prop: Prop) -> Any:
        """A value of the property's type. It may violate a constraint."""
        pool = POOLS["F32" if prop.scalar == "Vector" else prop.scalar]
        if prop.scalar == "Vector":
            return [self.pick(pool) for _ in range(prop.dim)]
        if prop.scalar == "enum" and self.chance(5):
            pool = ["green"]
        if prop.is_list:
            return [self.pick(pool) for _ in range(self.below(3))]
        return self.pick(pool)

    def node_id(self, model: Model, node: str | None) -> str:
        table = f"node:{node}"
        known = [*model.state[table], *(id_ for at, id_ in self.promised if at == table)]
        return self.pick(known) if known and self.chance(96) else NOBODY

    def promise(self, declared: Type, values: Mapping[str, Any]) -> None:
        """Record a node with a key, so that edges can use it."""
        if declared.key is None or declared.is_edge:
            return
        try:
            row = {name: stored(declared.props[name], values.get(name)) for name in declared.key}
        except WrongError:
            return  # it will be refused
        self.promised.append((declared.table, derived_id(declared, row)))

    # loads

    def records(self, model: Model, *, as_json: bool) -> list[Record]:
        """Records of a load, nodes before edges in half of the cases."""
        self.promised.clear()
        count = 1 + self.below(6)
        drawn = [self.record(model, self.type(model), as_json) for _ in range(count)]
        return drawn if as_json else _as_tables(drawn, model.schema)

    def type(self, model: Model) -> Type:
        """Any type; edges mostly only if nodes can exist."""
        declared = self.pick(model.schema.types)
        if not declared.is_edge or self.chance(5):
            return declared
        ends = [f"node:{end}" for end in (declared.source, declared.target)]
        promised = {table for table, _ in self.promised}
        return declared if all(model.state[t] or t in promised for t in ends) else self.pick(model.schema.nodes)

    def record(self, model: Model, declared: Type, as_json: bool) -> Record:
        data = {}
        for name, prop in declared.props.items():
            if self.chance(15) and (prop.nullable or prop.default is not None or self.chance(10)):
                continue
            data[name] = None if prop.nullable and self.chance(20) else self.value(prop)
            if as_json and data[name] is not None:
                data[name] = self.spelled(prop, data[name])
                if self.chance(1) and name not in (declared.key or ()):
                    data[name] = self.pick(("x", 1.5, [1], True, {"a": 1}))
        if as_json and self.chance(1):
            data["unknown"] = 1
        known = list(model.state[declared.table])
        id_ = None
        if declared.key is None and self.chance(40):
            id_ = self.pick(known) if known and self.chance(50) else self.pick(("x1", "x2"))
        if declared.key is not None and self.chance(2):
            id_ = "not the key"
        if not declared.is_edge:
            self.promise(declared, data)
            return Record(declared.table, data, id_)
        ends = [self.node_id(model, declared.source), self.node_id(model, declared.target)]
        return Record(declared.table, data, id_, *ends)

    def spelled(self, prop: Prop, value: Any) -> Any:
        """A date as a number or as text."""
        if prop.scalar not in ("Date", "DateTime") or self.chance(50):
            return value
        text = time_text(prop.scalar)
        return [text(item) for item in value] if prop.is_list else text(value)

    # mutations

    def statements(self, model: Model) -> list[Statement]:
        self.promised.clear()
        count = 1 + self.below(3)
        if self.chance(25):
            return [self.delete(model) for _ in range(count)]
        return [self.insert(model) if self.chance(60) else self.update(model) for _ in range(count)]

    def insert(self, model: Model) -> Insert:
        declared = self.type(model)
        words = ["insert", "create"] + ["merge"] * (declared.key is not None) * 2
        word = self.pick(words)
        values: dict[str, Any] = {}
        if declared.is_edge:
            values |= {"from": self.node_id(model, declared.source), "to": self.node_id(model, declared.target)}
        for name, prop in declared.props.items():
            left_out = prop.nullable or prop.default is not None
            left_out |= word == "merge" and name not in (declared.key or ())
            if not left_out or self.chance(70):
                values[name] = self.assigned(prop)
        if not values:
            name, prop = next(iter(declared.props.items()))
            values[name] = self.assigned(prop)
        self.promise(declared, values)
        return Insert(word, declared.table, values)

    def assigned(self, prop: Prop) -> Any:
        """A value of a property; sometimes an invalid one that only a parameter can have."""
        if self.chance(20 if prop.nullable else 1):
            return None
        if prop.scalar in RANGES and not prop.is_list and self.chance(2):
            return self.pick((2**40, -1, 2.0, 2.5))
        return self.value(prop)

    def update(self, model: Model) -> Statement:
        declared = self.pick(model.schema.types)
        free = [p for name, p in declared.props.items() if name not in (declared.key or ())]
        if not free:
            return self.insert(model)
        chosen = self.some([p.name for p in free], 1, 2)
        values = {name: self.assigned(declared.props[name]) for name in chosen}
        return Update(declared.table, values, self.condition(model, declared, 1))

    def delete(self, model: Model) -> Delete:
        declared = self.pick(model.schema.types)
        return Delete(declared.table, self.condition(model, declared, 1))

    def condition(self, model: Model, declared: Type, depth: int) -> Condition:
        if depth and self.chance(40):
            op = self.pick(("and", "or", "not"))
            parts = tuple(self.condition(model, declared, depth - 1) for _ in range(1 if op == "not" else 2))
            return Condition(op, parts=parts)
        names = [*declared.props, "id", *(("from", "to") if declared.is_edge else ())]
        name = self.pick(names)
        prop = declared.props.get(name)
        if prop is None:
            table = {"id": declared.table, "from": f"node:{declared.source}", "to": f"node:{declared.target}"}[name]
            ids = [*model.state[table], NOBODY]
            return self._comparison(name, Prop(name, "String"), lambda: self.pick(ids))
        if self.chance(15) or prop.scalar == "Vector":
            return Condition(self.pick(("is null", "is not null")), name, prop)
        single = replace(prop, is_list=False)
        if prop.is_list:
            return Condition("contains", name, prop, self.value(single))
        return self._comparison(name, single, lambda: self.value(single))

    def _comparison(self, name: str, prop: Prop, value: Callable[[], Any]) -> Condition:
        if self.chance(20):
            items = [value() for _ in range(self.below(3))]
            return Condition(self.pick(("in", "not in")), name, prop, items)
        ops = ["=", "=", "!=", "<", "<=", ">", ">="]
        if prop.scalar == "String":
            ops += ["contains", "starts_with"]
        return Condition(self.pick(ops), name, prop, value())


def _as_tables(records: Sequence[Record], schema: Schema) -> list[Record]:
    """Records as tables: null for members that other records of the table have."""
    found = []
    for declared in schema.types:
        mine = [r for r in records if r.table == declared.table]
        members = {name for r in mine for name in r.data}
        found += [replace(r, data={name: r.data.get(name) for name in sorted(members)}) for r in mine]
    return found


# ---- requests to the graph


def time_text(scalar: str) -> Callable[[int], str]:
    if scalar == "Date":
        return lambda days: date.fromordinal(EPOCH.toordinal() + days).isoformat()
    return lambda millis: (EPOCH + timedelta(milliseconds=millis)).isoformat()


def ndjson(records: Sequence[Record]) -> io.BytesIO:
    lines = []
    for record in records:
        kind, _, name = record.table.partition(":")
        data = dict(record.data) if record.id is None else {"id": record.id, **record.data}
        envelope: dict[str, Any] = {"type": name} if kind == "node" else {"edge": name}
        if kind == "edge":
            envelope |= {"from": record.source, "to": record.target}
        lines.append(json.dumps({**envelope, "data": data}))
    return io.BytesIO("\n".join(lines).encode())


def tables(records: Sequence[Record], schema: Schema) -> dict[str, pa.Table]:
    found = {}
    for declared in schema.types:
        mine = [r for r in records if r.table == declared.table]
        if not mine:
            continue
        columns = {name: column(declared.props[name], [r.data[name] for r in mine]) for name in mine[0].data}
        if any(r.id is not None for r in mine):
            columns["id"] = pa.array([r.id for r in mine], pa.utf8())
        if declared.is_edge:
            columns["from"] = pa.array([r.source for r in mine], pa.utf8())
            columns["to"] = pa.array([r.target for r in mine], pa.utf8())
        if not columns:
            columns["id"] = pa.nulls(len(mine), pa.utf8())
        found[declared.name] = pa.table(columns)
    return found


ARROW = {
    "String": pa.utf8(),
    "enum": pa.utf8(),
    "Bool": pa.bool_(),
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "U64": pa.uint64(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "Date": pa.int32(),
    "DateTime": pa.int64(),
    "Vector": pa.float32(),
}


def column(prop: Prop, values: Sequence[Any]) -> pa.Array:
    kind = ARROW[prop.scalar]
    return pa.array(values, pa.list_(kind) if prop.is_list or prop.scalar == "Vector" else kind)


class QueryText:
    """Statements as the text of a query, with some values as parameters."""

    def __init__(self, draws: Draws, schema: Schema) -> None:
        self.draws = draws
        self.schema = schema
        self.declared: list[str] = []
        self.params: dict[str, Any] = {}

    def query(self, statements: Sequence[Statement]) -> str:
        body = "\n    ".join(map(self.statement, statements))
        return f"query q({', '.join(self.declared)}) {{\n    {body}\n}}"

    def statement(self, statement: Statement) -> str:
        declared = self.schema.type(statement.table)
        if isinstance(statement, Delete):
            return f"delete {declared.name} where {self.condition(statement.where)}"
        values = ", ".join(
            f"{name}: {self.value(declared.props.get(name, Prop(name, 'String')), value)}"
            for name, value in statement.values.items()
        )
        if isinstance(statement, Insert):
            return f"{statement.word} {declared.name} {{ {values} }}"
        return f"update {declared.name} set {{ {values} }} where {self.condition(statement.where)}"

    def value(self, prop: Prop, value: Any) -> str:
        if prop.scalar in RANGES and isinstance(value, float):
            return self.param(replace(prop, scalar="F64"), value)
        if prop.scalar in RANGES and isinstance(value, int) and not in_range(prop, value):
            return self.param(replace(prop, scalar="I64"), value)
        if value is None and not prop.nullable:
            return self.param(prop, value)
        if "green" in (value if isinstance(value, list) else [value]) and prop.scalar == "enum":
            return self.param(replace(prop, scalar="String"), value)  # the checker refuses it as a literal
        return self.param(prop, value) if self.draws.chance(40) else literal(prop, value)

    def param(self, prop: Prop, value: Any) -> str:
        name = f"p{len(self.declared)}"
        kind = "String" if prop.scalar == "enum" else f"Vector({prop.dim})" if prop.scalar == "Vector" else prop.scalar
        kind = f"[{kind}]" if prop.is_list else kind
        self.declared.append(f"${name}: {kind}{'?' if value is None else ''}")
        if prop.scalar in ("Date", "DateTime") and value is not None:
            text = time_text(prop.scalar)
            value = [text(item) for item in value] if prop.is_list else text(value)
        self.params[name] = value
        return f"${name}"

    def condition(self, condition: Condition) -> str:
        parts = [self.condition(part) for part in condition.parts]
        match condition.op:
            case "and" | "or":
                return f"({parts[0]} {condition.op} {parts[1]})"
            case "not":
                return f"not ({parts[0]})"
            case "is null" | "is not null":
                return f"{condition.left} {condition.op}"
        assert condition.prop is not None
        prop = replace(condition.prop, is_list=isinstance(condition.value, list))
        value = self.param(prop, condition.value) if self.draws.chance(40) else literal(prop, condition.value)
        return f"{condition.left} {condition.op} {value}"


def in_range(prop: Prop, number: int) -> bool:
    low, high = RANGES[prop.scalar]
    return low <= number <= high


def literal(prop: Prop, value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, list):
        return f"[{', '.join(literal(replace(prop, is_list=False), item) for item in value)}]"
    if prop.scalar in ("Date", "DateTime"):
        return f'{prop.scalar.lower()}("{time_text(prop.scalar)(value)}")'
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False)


# ---- comparing


Answer = Done | RefusedError


def asked(request: Callable[[], Done]) -> Answer:
    try:
        return request()
    except RefusedError as error:
        return error


def check_refusal(error: OmnigraphError, wanted: Answer, *, numbered: bool) -> None:
    """Check that the engine refuses for the same reason: the same kind of error, with the same subjects."""
    match wanted:
        case BadInputError():
            assert isinstance(error, BadRowsError), error
            found = without_ids({(p.record if numbered else 0, p.subject) for p in error.problems})
            problems = without_ids({(number if numbered else 0, subject) for number, subject in wanted.problems})
            # A merge without a required property is found at run time, alone or with its neighbours.
            assert found == problems or (wanted.first_only and min(found) == min(problems)), error
        case BrokenError():
            assert isinstance(error, ConstraintError), error
            groups: dict[tuple[str, str], set[str]] = {}
            for violation in error.violations:
                groups.setdefault((violation.kind, violation.subject), set()).add(violation.entity_id)
            expected: dict[tuple[str, str], set[str]] = {}
            for kind, subject, ids in wanted.groups:
                expected.setdefault((kind, subject), set()).update(ids)
            said, meant = list(without_new(groups).items()), list(without_new(expected).items())
            assert said == meant, f"{said}\nis not\n{meant}"
        case TakenError():
            assert isinstance(error, KeyConflictError), error
            assert (error.table_key, error.entity_id) in wanted.taken, (error, wanted)
        case _:
            raise AssertionError(f"refused: {error}") from error


def without_ids(problems: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """The id is not compared with the key if another value is wrong."""
    others = {(number, subject) for number, subject in problems if not subject.endswith(".id")}
    return others or problems


def without_new(groups: Mapping[tuple[str, str], set[str]]) -> dict[tuple[str, str], tuple[set[str], int]]:
    """Generated ids are counted, because they cannot be compared."""
    return {key: ({id_ for id_ in ids if not is_new(id_)}, sum(map(is_new, ids))) for key, ids in groups.items()}


def is_new(id_: str) -> bool:
    return id_.startswith("new-") or (len(id_) == 26 and id_.isupper() and id_.isalnum())


def content(graph: Graph, declared: Type) -> dict[str, dict[str, Any]]:
    """The stored entities of a type, dates as numbers."""
    table = graph.snapshot().scan(declared.table)
    columns = {}
    for name in table.column_names:
        values = table[name].combine_chunks()
        columns[name] = plain(values)
    ids = columns.pop("id")
    assert len(set(ids)) == len(ids)
    return {id_: {name: values[i] for name, values in columns.items()} for i, id_ in enumerate(ids)}


def plain(values: pa.Array) -> list[Any]:
    if pa.types.is_date32(values.type):
        return list(values.view(pa.int32()).to_pylist())
    if pa.types.is_date64(values.type):
        return list(values.view(pa.int64()).to_pylist())
    if pa.types.is_list(values.type) and pa.types.is_temporal(values.type.value_type):
        items, bounds = plain(values.values), values.offsets.to_pylist()
        pairs = zip(bounds, bounds[1:], values.is_valid().to_pylist(), strict=False)
        return [items[a:b] if valid else None for a, b, valid in pairs]
    return list(values.to_pylist())


def check_content(graph: Graph, model: Model) -> None:
    """Check that the stored content equals the model. The model learns the generated ids."""
    for declared in model.schema.types:
        found, wanted = content(graph, declared), model.state[declared.table]
        made = [id_ for id_ in wanted if id_.startswith("new-")]
        strange = sorted(set(found) - set(wanted))
        assert len(made) == len(strange), (declared.name, made, strange)
        # Entities with equal values are interchangeable.
        names = dict(
            zip(
                sorted(made, key=lambda id_: (shown(wanted[id_]), id_)),
                sorted(strange, key=lambda id_: (shown(found[id_]), id_)),
                strict=True,
            )
        )
        model.state[declared.table] = {names.get(id_, id_): row for id_, row in wanted.items()}
        assert {id_: shown(row) for id_, row in found.items()} == {
            id_: shown(row) for id_, row in model.state[declared.table].items()
        }


def shown(row: Mapping[str, Any]) -> str:
    """A row as text, in which positive and negative zero differ."""
    return json.dumps(row, sort_keys=True)


@dataclass
class Session:
    """One graph and its model."""

    draws: Draws
    graph: Graph
    model: Model
    steps: list[str] = field(default_factory=list)

    def step(self) -> None:
        if self.draws.chance(50):
            self.load()
        else:
            self.mutate()
        check_content(self.graph, self.model)

    def load(self) -> None:
        mode = self.draws.pick(("append", "merge", "overwrite"))
        as_json = self.draws.chance(50)
        records = self.draws.records(self.model, as_json=as_json)
        source = ndjson(records) if as_json else tables(records, self.model.schema)
        self.steps.append(f"load {mode} {source.getvalue().decode() if isinstance(source, io.BytesIO) else source}")
        wanted = asked(lambda: self.model.load(records, mode))
        try:
            receipt = self.graph.load(source, mode=mode)
        except OmnigraphError as error:
            check_refusal(error, wanted, numbered=as_json)
            return
        assert isinstance(wanted, Done), wanted
        assert (receipt.commit is not None) == wanted.wrote
        loaded = {f"node:{name}": count for name, count in receipt.nodes}
        loaded |= {f"edge:{name}": count for name, count in receipt.edges}
        assert loaded == wanted.counts

    def mutate(self) -> None:
        statements = self.draws.statements(self.model)
        text = QueryText(self.draws, self.model.schema)
        query = text.query(statements)
        self.steps.append(f"{query} {text.params}")
        wanted = asked(lambda: self.model.mutate(statements))
        try:
            receipt = self.graph.mutate(query, text.params)
        except OmnigraphError as error:
            check_refusal(error, wanted, numbered=True)
            return
        assert isinstance(wanted, Done), wanted
        assert (receipt.commit is not None) == wanted.wrote
        assert {"nodes": receipt.affected_nodes, "edges": receipt.affected_edges} == wanted.counts


def run(draws: Draws, steps: int) -> None:
    schema = draws.schema()
    with TemporaryDirectory() as place, omnigraph.init(Path(place) / "g", schema.written()) as graph:
        session = Session(draws, graph, Model(schema))
        try:
            for _ in range(steps):
                session.step()
        except BaseException as error:
            error.add_note(schema.written() + "\n\n" + "\n".join(session.steps))
            raise


@pytest.fixture(autouse=True)
def _without_waiting_for_disks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "0")


# ---- regressions


@contextmanager
def holding(schema: str) -> Iterator[Graph]:
    with TemporaryDirectory() as place, omnigraph.init(Path(place) / "g", schema) as graph:
        yield graph


def first_violation(request: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(ConstraintError) as caught:
        request()
    violation = caught.value.violations[0]
    return violation.kind, violation.subject


def test_positive_and_negative_zero_are_duplicates() -> None:
    with holding("node Ash { k: String @key  p: F32? @unique }") as graph:
        graph.mutate('query q() { insert Ash { k: "a", p: 0.0 } }')
        negative = {"Ash": pa.table({"k": ["b"], "p": pa.array([-0.0], pa.float32())})}
        assert first_violation(lambda: graph.load(negative, mode="append")) == ("unique", "Ash.p")
        pair = {"Ash": pa.table({"k": ["a", "b"], "p": [-0.0, 0.0]})}
        assert first_violation(lambda: graph.load(pair, mode="overwrite")) == ("unique", "Ash.p")


def test_nodes_removed_by_an_overwrite_need_no_edges() -> None:
    with holding("node Ash { k: String @key }  edge Grows: Ash -> Ash @card(1..1)") as graph:
        edges = {"from": ["a"], "to": ["a"]}
        graph.load({"Ash": pa.table({"k": ["a", "b"]}), "Grows": pa.table(edges)}, mode="append")
        moved = {"Ash": pa.table({"k": ["b"]}), "Grows": pa.table({"from": ["b"], "to": ["b"]})}
        graph.load(moved, mode="overwrite")
        assert list(content(graph, Type("Ash", {}))) == ["b"]


def test_edges_without_nodes_are_reported_in_the_order_of_edge_types() -> None:
    schema = "node Ash { k: String @key }  edge Ends: Ash -> Ash  edge Grows: Ash -> Ash @card(0..1)"
    with holding(schema) as graph:
        ends = pa.table({"from": ["a"], "to": ["a"]})
        graph.load({"Ash": pa.table({"k": ["a", "b"]}), "Ends": ends}, mode="append")
        twice = pa.table({"from": ["b", "b"], "to": ["b", "b"]})
        request = {"Ash": pa.table({"k": ["b"]}), "Grows": twice}
        assert first_violation(lambda: graph.load(request, mode="overwrite")) == ("endpoint", "Ends.src")


def test_wrong_values_are_reported_before_duplicate_keys_and_ids() -> None:
    with holding("node Ash { k: String @key }  node Birch { p: enum(red, blue)? }") as graph:
        same_key = {"Ash": pa.table({"k": ["a", "a"]})}
        wrong = {"Birch": pa.table({"p": ["green"]})}
        assert first_violation(lambda: graph.load(same_key, mode="merge")) == ("unique", "Ash.k")
        assert first_violation(lambda: graph.load({**same_key, **wrong}, mode="merge")) == ("value", "Birch.p")
        same_id = {"Birch": pa.table({"id": ["x", "x"], "p": ["red", "green"]})}
        assert first_violation(lambda: graph.load(same_id, mode="append")) == ("value", "Birch.p")
        with pytest.raises(KeyConflictError, match="'x'"):
            graph.load({"Birch": pa.table({"id": ["x", "x"], "p": ["red", "blue"]})}, mode="append")


def test_list_items_behind_a_null_are_ignored() -> None:
    items = pa.array(["red", "green", "blue"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), items, mask=pa.array([True, False]))
    with holding("node Ash { k: String @key  p: [enum(red, blue)]?  n: [I32]? }") as graph:
        graph.load({"Ash": pa.table({"k": ["a", "b"], "p": lists})}, mode="append")
        assert graph.mutate('query q() { delete Ash where p contains "green" }').affected_nodes == 0
        assert graph.mutate('query q() { delete Ash where p contains "blue" }').affected_nodes == 1
        with pytest.raises(BadRowsError, match="an item of the list"):
            graph.load({"Ash": pa.table({"k": ["c", "d"], "n": lists})}, mode="append")


@pytest.mark.slow
@settings(max_examples=40, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(chance=st.randoms(use_true_random=False))
def test_the_graph_has_the_answers_and_content_of_the_model(chance: random.Random) -> None:
    run(Draws(chance.randrange), 5)


@pytest.mark.soak
def test_the_graph_agrees_with_the_model_in_long_runs() -> None:
    until, number = time.monotonic() + SOAK, int(os.environ.get("OMNIGRAPH_SOAK_SEED", time.time_ns()))
    while time.monotonic() < until:
        chance = random.Random(number)
        try:
            run(Draws(chance.randrange), 10)
        except BaseException as error:
            error.add_note(f"OMNIGRAPH_SOAK_SEED={number} repeats it")
            raise
        number += 1
