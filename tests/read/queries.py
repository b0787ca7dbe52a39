"""Random reads over the whole language, as text. They follow a schema, so that nearly all of them compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, TypeVar

from tests.read.graphs import IDS, some_value, written
from tests.read.oracle import blocks

from omnigraph.errors import CompileError
from omnigraph.lang.query import compile_query, ir
from omnigraph.lang.schema import Catalog
from omnigraph.lang.types import Scalar, ValueType
from omnigraph.read.query.read_query import ReadQuery

T = TypeVar("T")

TEXT, BOOL, WHOLE, REAL = (ValueType(s) for s in (Scalar.STRING, Scalar.BOOL, Scalar.I64, Scalar.F64))
DATE, TIME = ValueType(Scalar.DATE), ValueType(Scalar.DATETIME)
NUMBERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64)
INTEGERS = NUMBERS[:4]
ORDERS = ("=", "!=", "!=", "<", "<=", "<=", ">", ">=", ">=")
PATTERNS = ("a", "^a", "b$", "a.", "[a-z]+", "(?i)É", "a|b", r"\\.", "^$", "😀", "")


@dataclass(frozen=True)
class Query:
    """A read.

    Attributes:
        text: its source.
        compiled: the compiled query.
        given: parameters as a caller passes them.
        params: parameters and defaults as values of their types.
    """

    text: str
    compiled: ir.Query
    given: Mapping[str, Any]
    params: Mapping[str, Any]

    @property
    def read(self) -> ir.Read:
        assert isinstance(self.compiled.body, ir.Read)
        return self.compiled.body

    @cached_property
    def prepared(self) -> ReadQuery:
        """The query with its derived facts. All states share it, as the calls of a prepared query do."""
        return ReadQuery(self.read)


def some_query(rng: Random, catalog: Catalog, kind: type[Maker] | None = None) -> Query:
    """Return a read that compiles. The maker decides its kind; the default covers the whole language."""
    while True:
        maker = (kind or Maker)(rng, catalog)
        text = maker.query()
        try:
            compiled = compile_query(text, catalog)
        except CompileError:
            continue  # duplicate columns, nodes of types that are never connected, and similar
        params = {p.name: maker.params[p.name].value if p.name in maker.params else p.default for p in compiled.params}
        given = {name: written(p.value, p.kind) for name, p in maker.params.items() if not p.omitted}
        for p in compiled.params:
            if maker.params[p.name].omitted:
                params[p.name] = p.default
        return Query(text, compiled, given, params)


def literal(value: Any, kind: ValueType) -> str:
    """Write a value in the query language."""
    if kind.list or kind.is_vector:
        item = kind.item if kind.list else REAL
        return f"[{', '.join(literal(part, item) for part in value)}]"
    match kind.scalar:
        case Scalar.STRING:
            for plain, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
                value = value.replace(plain, escape)
            return f'"{value}"'
        case Scalar.BOOL:
            return "true" if value else "false"
        case Scalar.DATE:
            return f'date("{written(value, kind)}")'
        case Scalar.DATETIME:
            return f'datetime("{written(value, kind)}")'
    return repr(float(value)) if kind.scalar.is_float else str(value)


@dataclass
class Parameter:
    kind: ValueType
    value: Any
    default: str | None = None
    omitted: bool = False
    declared: str | None = None


@dataclass
class Scope:
    """The visible variables, and the properties of each."""

    nodes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    interfaces: dict[str, str] = field(default_factory=dict)
    edges: dict[str, tuple[str, ...]] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    values: dict[str, ValueType] = field(default_factory=dict)

    def copy(self) -> Scope:
        return Scope(dict(self.nodes), dict(self.interfaces), dict(self.edges), list(self.paths), dict(self.values))


class Maker:
    """Generates one query. It records variables and parameters as they are introduced."""

    def __init__(self, rng: Random, catalog: Catalog) -> None:
        self.rng = rng
        self.catalog = catalog
        self.scope = Scope()
        self.params: dict[str, Parameter] = {}
        self.made = 0

    # Choices

    def chance(self, percent: float) -> bool:
        return self.rng.random() * 100 < percent

    def pick(self, *options: T) -> T:
        return self.rng.choice(options)

    def fresh(self, prefix: str) -> str:
        self.made += 1
        # The order of names differs from the order of introduction.
        return f"{self.pick(*'bamz')}{prefix}{self.made}"

    def weighted(self, *options: tuple[int, Callable[[], T]]) -> T:
        return self.rng.choices([make for _, make in options], [weight for weight, _ in options])[0]()

    # Places

    def properties(self, var: str) -> dict[str, ValueType]:
        scope = self.scope
        if var in scope.interfaces:
            declared = self.catalog.interfaces[scope.interfaces[var]]
            return {name: prop.type for name, prop in declared.properties.items()}
        types = scope.nodes.get(var, scope.edges.get(var, ()))
        owners = [self.catalog.edges[t] if var in scope.edges else self.catalog.nodes[t] for t in types]
        if not owners:
            return {}
        return {
            name: prop.type
            for name, prop in owners[0].properties.items()
            if all(
                name in o.properties and o.properties[name].type.with_nullable(True) == prop.type.with_nullable(True)
                for o in owners
            )
        }

    def accesses(self) -> list[tuple[str, ValueType]]:
        """All properties that can be read here."""
        found = []
        for var in (*self.scope.nodes, *self.scope.edges):
            found += [(f"${var}.{name}", kind) for name, kind in self.properties(var).items()]
            found.append((f"${var}.id", TEXT))
        for var in self.scope.edges:
            found += [(f"${var}.{end}", TEXT) for end in ("from", "to")]
        # Values of a stage are drawn more often than their number suggests.
        return found + 2 * list(self.scope.values.items())

    def access(self, *scalars: Scalar, is_list: bool = False) -> str | None:
        """A property of one of the given types, or None."""
        found = [text for text, kind in self.accesses() if kind.scalar in scalars and kind.list == is_list]
        return self.rng.choice(found) if found else None

    # Values

    def param(self, kind: ValueType, value: Any = None) -> str:
        """A new parameter. Some are null, some have a default, and some of those are omitted."""
        name = self.fresh("p")
        if value is None:
            value = some_value(self.rng, kind)
        if kind.scalar is Scalar.F32 and not kind.list:
            kind = REAL if self.chance(50) else kind
        made = Parameter(kind, value)
        if self.chance(8):
            made.kind, made.value = kind.with_nullable(True), None
        elif self.chance(10):
            made.default = literal(some_value(self.rng, kind), kind)
            made.omitted = self.chance(60)
        self.params[name] = made
        return f"${name}"

    def constant(self, kind: ValueType) -> str:
        """A literal or a parameter."""
        if self.chance(25):
            return self.param(kind)
        return literal(some_value(self.rng, kind), kind)

    def number(self, depth: int = 1) -> str:
        place = self.access(*NUMBERS)
        if place is None or self.chance(15):
            kind = ValueType(self.pick(*NUMBERS))
            return self.constant(kind if self.chance(50) else REAL)
        if depth == 0 or self.chance(45):
            return place
        return self.weighted(
            (4, lambda: f"({place} {self.pick(*'+-*/%')} {self.number(depth - 1)})"),
            (1, lambda: f"(-{place})"),
            (1, lambda: f"{self.pick('abs', 'floor', 'ceil', 'round')}({self.number(depth - 1)})"),
            (1, lambda: f"round({self.number(depth - 1)}, {self.rng.randint(-2, 3)})"),
            (1, lambda: f"coalesce({place}, {self.number(depth - 1)})"),
            (1, self.measure),
        )

    def integer(self, depth: int = 1) -> str:
        place = self.access(*INTEGERS)
        if place is None or self.chance(20):
            return self.constant(WHOLE)
        if depth == 0 or self.chance(50):
            return place
        return self.weighted(
            (3, lambda: f"({place} {self.pick(*'+-*%')} {self.integer(depth - 1)})"),
            (1, lambda: f"abs({place})"),
            (1, self.measure),
        )

    def measure(self) -> str:
        """A number that is computed from other values."""
        listed = [text for text, kind in self.accesses() if kind.list]
        if listed and self.chance(30):
            return f"length({self.rng.choice(listed)})"
        if self.scope.paths and self.chance(50):
            return f"length(${self.rng.choice(self.scope.paths)})"
        if self.chance(40):
            return f"{self.pick('year', 'month', 'day')}({self.date() if self.chance(50) else self.time()})"
        if self.chance(40):
            return f'date_diff("{self.pick("day", "week", "month", "year")}", {self.date()}, {self.date()})'
        return f"length({self.text()})"

    def text(self, depth: int = 1) -> str:
        place = self.access(Scalar.STRING)
        if place is None or self.chance(12):
            return self.constant(TEXT)
        if depth == 0 or self.chance(60):
            return place
        return self.weighted(
            (3, lambda: f"{self.pick('lower', 'upper', 'trim')}({self.text(depth - 1)})"),
            (1, lambda: f"({self.text(depth - 1)} + {self.text(depth - 1)})"),
            (1, lambda: f"coalesce({place}, {self.text(depth - 1)})"),
            (1, self.type_name),
        )

    def type_name(self) -> str:
        return f"type(${self.rng.choice([*self.scope.nodes, *self.scope.edges])})"

    def date(self) -> str:
        place = self.access(Scalar.DATE)
        if place is None or self.chance(15):
            return self.constant(DATE)
        if self.chance(80):
            return place
        return f'date_add("{self.pick("day", "week", "month", "year")}", {self.rng.randint(-14, 14)}, {place})'

    def time(self) -> str:
        place = self.access(Scalar.DATETIME)
        if place is None or self.chance(15):
            return "now()" if self.chance(30) else self.constant(TIME)
        if self.chance(80):
            return place
        unit = self.pick("millisecond", "second", "minute", "hour", "day", "week", "month", "year")
        return f'date_add("{unit}", {self.rng.randint(-14, 14)}, {place})'

    def flag(self) -> str:
        return self.access(Scalar.BOOL) or self.constant(BOOL)

    def scalar(self, depth: int = 1) -> str:
        """A value of an ordered type."""
        return self.weighted(
            (6, lambda: self.number(depth)),
            (6, lambda: self.text(depth)),
            (1, self.date),
            (1, self.time),
            (1, self.flag),
            (1, lambda: f"({self.condition(0)})"),
        )

    def anything(self) -> str:
        """A value that a column can hold."""
        return self.weighted(
            (5, lambda: self.rng.choice(self.accesses())[0]),
            (4, self.scalar),
            (2, lambda: f"${self.rng.choice(list(self.scope.nodes))}"),
            (1, self.type_name),
            (1, lambda: self.block_value("count")),
            (4 if self.scope.paths else 0, self._path_part),
        )

    def _path_part(self) -> str:
        return f"{self.pick('length', 'nodes', 'edges')}(${self.rng.choice(self.scope.paths)})"

    # Search

    def searched(self, *, is_vector: bool = False) -> list[tuple[str, ValueType]]:
        """The searchable properties of nodes."""
        scalar = Scalar.VECTOR if is_vector else Scalar.STRING
        return [
            (f"${var}.{name}", kind)
            for var in self.scope.nodes
            for name, kind in self.properties(var).items()
            if kind.scalar is scalar and not kind.list
        ]

    def words(self) -> str:
        """The text to search for."""
        words = self.rng.choice(("fox", "red fox", "dogs", "the run", "red", "fax dug", "a", "", "é 10", "is the dog"))
        return self.param(TEXT, words) if self.chance(25) else literal(words, TEXT)

    def text_filter(self) -> str:
        fields = self.searched()
        if not fields:
            return self.condition(0)
        field = self.rng.choice(fields)[0]
        return self.weighted(
            (2, lambda: f"search({field}, {self.words()})"),
            (1, lambda: f"search({field}, {self.words()}, all=true)"),
            (1, lambda: f"match_text({field}, {self.words()})"),
            (1, lambda: f"fuzzy({field}, {self.words()}{self.pick('', ', 1', ', 0', ', 2')})"),
        )

    def rank(self) -> str | None:
        """A rank, or None if nothing can be ranked."""
        texts, vectors = self.searched(), self.searched(is_vector=True)
        if not texts and not vectors:
            return None
        kind = self.pick("one", "one", "rrf")
        if kind == "one":
            return self.single_rank(texts, vectors)
        var = self.rng.choice([*texts, *vectors])[0].partition(".")[0]
        mine = [[(f, k) for f, k in fields if f.startswith(f"{var}.")] for fields in (texts, vectors)]
        arms = [self.single_rank(*mine) + self.pick("", "", " * 2.0", " * 0.5") for _ in range(self.pick(2, 2, 3))]
        return f"rrf({', '.join(arms)}{self.pick('', ', 1', ', k=7')})"

    def single_rank(self, texts: list[tuple[str, ValueType]], vectors: list[tuple[str, ValueType]]) -> str:
        field, kind = self.rng.choice([*texts, *vectors])
        if kind.scalar is Scalar.STRING:
            return f"bm25({field}, {self.words()})"
        vector = ValueType(Scalar.VECTOR, dim=kind.dim)
        return f"nearest({field}, {self.constant(vector)})"

    # Conditions

    def condition(self, depth: int = 2) -> str:
        simple: tuple[tuple[int, Callable[[], str]], ...] = (
            (4, self.against_constant),
            (4, lambda: self.about(self.rng.choice(list(self.scope.nodes)))),
            (5, lambda: f"{self.number()} {self.pick(*ORDERS)} {self.number()}"),
            (4, lambda: f"{self.text()} {self.pick(*ORDERS, 'contains', 'starts_with', 'ends_with')} {self.text()}"),
            (1, lambda: f"{self.date()} {self.pick(*ORDERS)} {self.date()}"),
            (1, lambda: f"{self.time()} {self.pick(*ORDERS)} {self.time()}"),
            (1, lambda: f"{self.flag()} {self.pick(*ORDERS)} {self.flag()}"),
            (1, lambda: self.flag()),
            (1, lambda: f'{self.text()} matches "{self.pick(*PATTERNS)}"'),
            (3, self.membership),
            (3, self.null_test),
            (2, self.identity),
        )
        if depth > 0:
            simple = (*simple, (3, self.text_filter), (2, lambda: self.tested_block(depth - 1)))
        if depth > 0 and self.chance(30):
            inner = [self.condition(depth - 1) for _ in range(self.pick(2, 2, 3))]
            joined = f" {self.pick('and', 'or', 'or', 'or')} ".join(f"({part})" for part in inner)
            return f"not ({joined})" if self.chance(30) else joined
        return self.weighted(*simple)

    def tested_block(self, depth: int = 0) -> str:
        """A condition on the value of a block."""
        if self.chance(60):
            tested = f"{self.pick('', '', 'not ')}{self.block_value('exists', depth)}"
        else:
            number = self.pick("0", "1", "1", "2", "3", self.number(0))
            tested = f"{self.block_value('count', depth)} {self.pick(*ORDERS)} {number}"
        return f"{tested} or {self.condition(0)}" if self.chance(50) else tested

    def block_value(self, word: str, depth: int = 0) -> str:
        """An `exists` or `count` block that uses bound variables."""
        outside = self.scope.copy()
        inner: list[str] = []
        for _ in range(self.pick(1, 1, 1, 2)):
            self.add(inner, 0, "step" if self.chance(80) else "filter")
        if self.chance(25):
            inner.append(self.condition(depth))
        if self.chance(15):
            self.add(inner, 0, "block")
        known = list(outside.nodes)
        if not inner or self.chance(10):
            inner.append(self.about(self.rng.choice(known)))
        self.scope = outside
        return f"{word} {{ {'  '.join(inner)} }}"

    def against_constant(self, var: str | None = None) -> str:
        """A comparison of a property and a constant, in either order, as a table scan can evaluate it."""
        own = [(place, kind) for place, kind in self.accesses() if kind.is_plain_scalar]
        mine = [(place, kind) for place, kind in own if var is None or place.startswith(f"${var}.")]
        place, kind = self.rng.choice(mine or own)
        if place.endswith(".id"):
            value = literal(self.rng.choice(IDS), TEXT)
        elif kind.scalar in NUMBERS and self.chance(30):
            value = self.constant(ValueType(self.pick(*NUMBERS)))
        else:
            value = self.constant(kind.item)
        if kind.scalar is Scalar.STRING and self.chance(30):
            return f"{place} {self.pick('contains', 'starts_with', 'ends_with')} {value}"
        if kind.scalar is Scalar.STRING and self.chance(10):
            return f'{place} matches "{self.pick(*PATTERNS)}"'
        left, right = (place, value) if self.chance(70) else (value, place)
        return f"{left} {self.pick(*ORDERS)} {right}"

    def about(self, var: str, depth: int = 1) -> str:
        """A condition on one variable, of the kinds that a table scan can evaluate."""
        if depth and self.chance(35):
            parts = [f"({self.about(var, depth - 1)})" for _ in range(self.pick(2, 2, 3))]
            joined = f" {self.pick('and', 'or', 'or')} ".join(parts)
            return f"not ({joined})" if self.chance(30) else joined
        own = {name: kind for name, kind in self.properties(var).items() if kind.is_plain_scalar}
        flags = [name for name, kind in own.items() if kind.scalar is Scalar.BOOL]
        if flags and self.chance(20):
            return f"${var}.{self.rng.choice(flags)}"
        if own and self.chance(35):
            name, kind = self.rng.choice(list(own.items()))
            if self.chance(40):
                return f"${var}.{name} {self.pick('is null', 'is not null')}"
            if kind.scalar in NUMBERS and self.chance(50):
                kind = ValueType(self.pick(*NUMBERS))
            listing = ValueType(kind.scalar, list=True)
            values = tuple(some_value(self.rng, kind.item) for _ in range(self.rng.randint(0, 3)))
            items = self.param(listing, values) if self.chance(30) else literal(values, listing)
            return f"${var}.{name} {self.pick('in', 'in', 'not in')} {items}"
        return self.against_constant(var)

    def membership(self) -> str:
        word = self.pick("in", "in", "not in")
        listed = [(text, kind) for text, kind in self.accesses() if kind.list]
        if listed and self.chance(50):
            place, kind = self.rng.choice(listed)
            item = self.access(kind.scalar) if self.chance(40) else None
            item = item or self.constant(kind.item)
            return f"{place} contains {item}" if self.chance(60) else f"{item} {word} {place}"
        text, kind = self.rng.choice([(t, k) for t, k in self.accesses() if k.is_plain_scalar])
        if kind.scalar in NUMBERS:
            kind = ValueType(self.pick(*NUMBERS))
        values = tuple(some_value(self.rng, kind) for _ in range(self.rng.randint(0, 3)))
        listing = ValueType(kind.scalar, list=True)
        items = self.param(listing, values) if self.chance(40) else literal(values, listing)
        return f"{text} {word} {items}"

    def null_test(self) -> str:
        word = self.pick("is null", "is not null")
        if self.chance(30):
            var = self.rng.choice([*self.scope.nodes, *self.scope.edges, *self.scope.paths])
            return f"${var} {word}"
        if self.chance(70):
            return f"{self.rng.choice(self.accesses())[0]} {word}"
        return f"{self.scalar()} {word}"

    def identity(self) -> str:
        names = list(self.scope.nodes)
        pairs = [(a, b) for a in names for b in names if a != b and {*self.scope.nodes[a]} & {*self.scope.nodes[b]}]
        if not pairs:
            return self.null_test()
        a, b = self.rng.choice(pairs)
        return f"${a} {self.pick('=', '!=', '!=')} ${b}"

    # Match

    def pattern(self, var: str | None = None) -> str:
        """A pattern, for a new variable unless one is named."""
        known = var is not None
        var = var or self.fresh("n")
        # Sometimes an interface without implementations.
        interfaces = [i for i in self.catalog.interfaces.values() if i.implementors or self.chance(10)]
        if interfaces and not known and self.chance(25):
            interface = self.rng.choice(interfaces)
            self.scope.nodes[var] = interface.implementors
            self.scope.interfaces[var] = interface.name
            return f"${var}: {interface.name}{self.matchers(var)}"
        if known:
            type_name = self.rng.choice(self.scope.nodes[var] or tuple(self.catalog.nodes))
        else:
            type_name = self.rng.choice(list(self.catalog.nodes))
        self.scope.nodes[var] = (type_name,)
        self.scope.interfaces.pop(var, None)
        return f"${var}: {type_name}{self.matchers(var)}"

    def matchers(self, var: str) -> str:
        if self.chance(80):
            return ""
        usable = [(n, k) for n, k in self.properties(var).items() if not k.is_vector]
        chosen = self.rng.sample(usable, min(len(usable), self.pick(1, 1, 2)))
        parts = [f"{name}: {self._matched(var, name, kind)}" for name, kind in chosen]
        if self.chance(10):
            parts.append(f"id: {literal(self.rng.choice(IDS), TEXT)}")
        return f" {{ {', '.join(parts)} }}" if parts else ""

    def _matched(self, var: str, name: str, kind: ValueType) -> str:
        if kind.enum_values is not None and not kind.list and self.scope.nodes[var] and self.chance(25):
            param = self.param(kind.item)
            self.params[param[1:]].declared = f"{self.scope.nodes[var][0]}.{name}"
            return param
        if kind.scalar is Scalar.DATETIME and self.chance(5):
            return "now()"
        return self.constant(kind.item)

    def traversal(self) -> str:
        """A traversal from a variable, forwards or backwards. Either end may be new, bound or anonymous."""
        scope = self.scope
        near = self.rng.choice(list(scope.nodes))
        types = scope.nodes[near]
        fitting = [e for e in self.catalog.edges.values() if e.from_type in types or e.to_type in types]
        if not fitting:
            return self.pattern()
        edge = self.rng.choice(fitting)
        others = [e for e in fitting if e is not edge]
        undirected = edge.same_type and self.chance(30)
        words = edge.word
        if self.chance(12):
            words = "(*)"
        elif others and self.chance(30):
            chosen = [edge, *self.rng.sample(others, self.rng.randint(1, len(others)))]
            if undirected:
                chosen = [e for e in chosen if e.same_type]
            words = f"({' | '.join(e.word for e in chosen)})"
        if undirected:
            words = f"<{words}>"
        far = self.far_end(near)
        hops, before, edge_var = "", "", ""
        if self.chance(30):
            least = self.pick(1, 1, 1, 2, 2, 3)
            most = "" if self.chance(30) else str(least + self.pick(0, 1, 2))
            hops = f"{{{least},{most}}}"
            if self.chance(45):
                path = self.fresh("s")
                before = f"shortest ${path}: "
        elif self.chance(40):
            edge_var = f"${self.fresh('e')}:"
        left, right = (near, far) if self.chance(70) else (far, near)
        return f"{before}${left} {edge_var}{words}{hops} ${right}"

    def far_end(self, near: str) -> str:
        if self.chance(12):
            return "_"
        known = list(self.scope.nodes)
        if self.chance(20):
            return self.rng.choice(known)
        return self.fresh("n")

    def block(self, depth: int = 1) -> str:
        """A `not` or `optional` block that uses bound variables."""
        word = self.pick("not", "optional", "optional")
        outside = self.scope.copy()
        inner: list[str] = []
        for _ in range(self.pick(1, 1, 2, 3)):
            self.add(
                inner, depth - 1, self.weighted((6, lambda: "step"), (3, lambda: "filter"), (1, lambda: "pattern"))
            )
        if outside.paths and self.chance(40):
            inner.append(f"length(${self.rng.choice(outside.paths)}) {self.pick(*ORDERS)} {self.pick(1, 2, 3)}")
        if depth and self.chance(15):
            self.add(inner, depth - 1, "block")
        if word == "not":
            self.scope = outside
        return f"{word} {{ {'  '.join(inner)} }}"

    def add(self, clauses: list[str], depth: int, what: str) -> None:
        before = self.scope.copy()
        match what:
            case "step":
                clause = self.traversal()
            case "filter":
                clause = self.condition(1)
            case "pattern":
                known = list(self.scope.nodes)
                clause = self.pattern(self.rng.choice(known) if known and self.chance(30) else None)
            case _:
                clause = self.block(depth)
        clauses.append(clause)
        if what == "step":
            self._learn(clauses, before)

    def _learn(self, clauses: list[str], before: Scope) -> None:
        """Compile a traversal to find out its variables. A traversal that does not compile is removed."""
        known = "  ".join(
            f"${var}: {before.interfaces.get(var, types[0])}" for var, types in before.nodes.items() if types
        )
        query = f"query q() {{ match {{ {known}  {clauses[-1]} }} return {{ count(*) }} }}"
        try:
            compiled = compile_query(query, self.catalog)
        except CompileError:
            self.scope = before
            clauses.pop()
            return
        assert isinstance(compiled.body, ir.Read)
        for part in blocks(compiled.body.match):
            for node in part.nodes:
                if node.named and node.name not in self.scope.nodes:
                    self.scope.nodes[node.name] = node.types
            for expand in part.expands:
                if expand.edge_var is not None:
                    self.scope.edges[expand.edge_var.name] = expand.edge_var.types
                if expand.path_var is not None:
                    self.scope.paths.append(expand.path_var)

    def match(self, *, few: bool = False, following: bool = False) -> list[str]:
        """The clauses of a match.

        The matches of a query with stages have few clauses, so that most of them have rows. After a stage
        (`following`), a match may start with the variables that go on.
        """
        clauses = [] if following and self.scope.nodes and self.chance(90) else [self.pattern()]
        loose: list[str] = []
        for _ in range(self.pick(0, 1, 1, 2) if few or following else self.pick(0, 1, 1, 2, 2, 3, 4)):
            what = self.weighted(
                (10, lambda: "step"), (3, lambda: "filter"), (4, lambda: "block"), (2, lambda: "pattern")
            )
            if len(self.scope.nodes) > 4 and what in ("step", "pattern"):
                what = "filter"
            self.add(loose if what == "filter" else clauses, 1, what)
        if self.chance(15):
            loose.append(self.about(self.rng.choice(list(self.scope.nodes))))
        for condition in loose:
            clauses.insert(self.rng.randint(0, len(clauses)), condition)
        return [clause for clause in clauses if clause]

    def chain(self) -> list[str]:
        """Traversals in a chain or a star, with conditions on single nodes: rows can be counted from degrees."""
        clauses = [self.pattern()]
        for _ in range(self.pick(1, 2, 2, 3)):
            self.add(clauses, 0, "step")
        for var in list(self.scope.nodes):
            if self.chance(35):
                clauses.append(self.about(var))
        return clauses

    # Result

    def query(self) -> str:
        return self.staged() if self.chance(20) else self.plain()

    def staged(self) -> str:
        """A query with stages. Some have no match after a stage."""
        text = f"match {{ {'  '.join(self.match(few=True))} }}"
        for _ in range(self.pick(1, 1, 1, 2)):
            text += self.stage(text)
            clauses: list[str] = []
            if not self.scope.nodes or self.chance(80):
                clauses = self.match(following=True)
                text += f" match {{ {'  '.join(clauses)} }}" if clauses else ""
        kinds = ((10, self.listed), (6, self.grouped), (4, self.distinct), (2, self.counted))
        body = self.weighted(*((weight, lambda kind=kind: kind) for weight, kind in kinds))
        return self.declared(f"{text} {body()}")

    def stage(self, before: str) -> str:
        """A `with`, and the clauses after it. The scope keeps what goes on."""
        scope, named = self.scope, [*self.scope.nodes, *self.scope.edges]
        carried = self.rng.sample(named, self.rng.randint(0 if self.chance(15) else 1, min(len(named), 3)))
        entries, names, tail = [f"${var}" for var in carried], [], ""
        is_grouped = self.chance(50)
        for _ in range(self.pick(0, 1, 1, 2) if carried else 1):
            name = self.fresh("v")
            entries.append(f"{self.aggregate([])[0] if is_grouped and self.chance(80) else self.scalar()} as {name}")
            names.append(name)
        if scope.values and self.chance(50):
            entries.append(self.rng.choice(list(scope.values)))
        if is_grouped and self.chance(30):
            tail += f" having {{ count(*) {self.pick('>', '>=', '<')} {self.pick(0, 1, 2)} }}"
        rank = self.rank() if self.chance(15) and not is_grouped else None
        if rank is not None:
            tail += f" order {{ {rank} }} limit {self.count()}"
        else:
            keys = [*names, *(f"${var}" if is_grouped else f"${var}.id" for var in carried)]
            tail += self.order(keys) if keys else ""
            tail += f" limit {self.count()}" if self.chance(25) else ""
        text = f" with {{ {', '.join(entries)} }}{tail}"
        try:
            compiled = compile_query(self.declared(f"{before}{text} return {{ count(*) }}"), self.catalog)
        except CompileError:
            return " with"  # it does not compile either, so another query is drawn
        assert isinstance(compiled.body, ir.Read)
        self.scope = Scope(
            {var: types for var, types in scope.nodes.items() if var in carried},
            {var: name for var, name in scope.interfaces.items() if var in carried},
            {var: types for var, types in scope.edges.items() if var in carried},
            values={column.name: column.expr.type for column in compiled.body.stages[-1].values},
        )
        return text

    def plain(self) -> str:
        body: Callable[[], str]
        if self.chance(12):
            clauses, body = self.chain(), self.counted
        else:
            clauses = self.match()
            kinds = ((10, self.listed), (5, self.grouped), (4, self.distinct), (2, self.counted))
            body = self.weighted(*((weight, lambda kind=kind: kind) for weight, kind in kinds))
        return self.written(clauses, body())

    def written(self, clauses: Sequence[str], body: str) -> str:
        return self.declared(f"match {{ {'  '.join(clauses)} }} {body}")

    def declared(self, body: str) -> str:
        params = ", ".join(f"${name}: {_type(p)}" for name, p in self.params.items())
        return f"query q({params}) {{ {body} }}"

    def listed(self) -> str:
        columns, aliases = self.columns(self.pick(1, 2, 2, 3))
        if self.chance(8):
            columns.append(f"${self.rng.choice([*self.scope.nodes, *self.scope.edges])}.*")
        if self.chance(15):
            columns.append(f"{self.rng.choice(aliases)} as again")
        keys = [*aliases, self.scalar(), self.scalar(), self.rng.choice(self.accesses())[0]]
        rank = self.rank() if self.chance(25) else None
        if rank is not None:
            if self.chance(50):
                columns.append(f"{rank} as rank")
                keys = ["rank", "rank", *aliases] if self.chance(70) else keys
            if self.chance(50):
                return f"return {{ {'  '.join(columns)} }} order {{ {rank} }} limit {self.count()}{self.skip()}"
        return f"return {{ {'  '.join(columns)} }}{self.order(keys)}{self.window()}"

    def columns(self, count: int) -> tuple[list[str], list[str]]:
        columns, aliases = [], []
        for n in range(count):
            alias = f"{self.pick(*'xcy')}{n}"
            columns.append(f"{self.anything()} as {alias}")
            aliases.append(alias)
        return columns, aliases

    def distinct(self) -> str:
        columns, aliases = self.columns(self.pick(1, 1, 2))
        return f"return distinct {{ {'  '.join(columns)} }}{self.order(aliases)}{self.window()}"

    def grouped(self) -> str:
        columns, aliases = self.columns(self.pick(0, 1, 1, 2))
        numbers = []
        for n in range(self.pick(1, 1, 2, 3)):
            alias = f"{self.pick(*'kf')}{n}"
            expr, is_number = self.aggregate(aliases)
            columns.append(f"{expr} as {alias}")
            aliases.append(alias)
            if is_number:
                numbers.append(alias)
        if numbers and self.chance(25):
            columns.append(
                f"{self.rng.choice(numbers)} {self.pick(*'+-*/%')} {self.pick('2', '0', '3.5', *numbers)} as calc"
            )
            aliases.append("calc")
        if self.chance(40):
            self.rng.shuffle(columns)
        having = ""
        if self.chance(30):
            conditions = [self._having(numbers, aliases) for _ in range(self.pick(1, 1, 2))]
            having = f" having {{ {'  '.join(conditions)} }}"
        distinct = "distinct " if self.chance(8) else ""
        return f"return {distinct}{{ {'  '.join(columns)} }}{having}{self.order(aliases)}{self.window()}"

    def counted(self) -> str:
        """A count of rows, grouped by one variable."""
        nodes = list(self.scope.nodes)
        near = self.rng.choice(nodes)
        columns = [f"${near}.{name} as {alias}" for name, alias in zip(self.keys_of(near), "xy", strict=False)]
        counts = [
            self.pick("count(*)", f"count(${self.rng.choice(nodes)})", f"count(distinct ${near})", f"max(${near}.id)")
            if self.chance(50)
            else self.of_property(self.rng.choice(nodes))
            for _ in range(self.pick(1, 1, 2))
        ]
        columns += [f"{count} as k{n}" for n, count in enumerate(counts)]
        having = f" having {{ count(*) > {self.pick(0, 1, 2)} }}" if self.chance(20) else ""
        return f"return {{ {'  '.join(columns)} }}{having}{self.order(['k0'])}{self.window()}"

    def of_property(self, var: str) -> str:
        """An aggregate of a property of a variable, which need not be in the rows (see `Fold`)."""
        properties = {name: kind for name, kind in self.properties(var).items() if not kind.list and not kind.is_vector}
        whole = [name for name, kind in properties.items() if kind.scalar in INTEGERS]
        times = [name for name, kind in properties.items() if kind.scalar in (Scalar.DATE, Scalar.DATETIME)]
        if whole and self.chance(60):
            return f"{self.pick('sum', 'avg', 'avg', 'min', 'max', 'count')}(${var}.{self.rng.choice(whole)})"
        if times and self.chance(60):
            return f"{self.pick('min', 'max', 'count')}(${var}.{self.rng.choice(times)})"
        return f"count(${var}.{self.rng.choice(list(properties))})" if properties else "count(*)"

    def keys_of(self, var: str) -> list[str]:
        names = ["id", *(name for name, kind in self.properties(var).items() if not kind.is_vector)]
        return self.rng.sample(names, min(len(names), self.pick(0, 1, 1, 2)))

    def _having(self, numbers: Sequence[str], aliases: Sequence[str]) -> str:
        return self.weighted(
            (4, lambda: f"count(*) {self.pick(*ORDERS)} {self.rng.randint(0, 2)}"),
            (2, lambda: f"{self.aggregate([])[0]} is not null"),
            (4 if numbers else 0, lambda: f"{self.rng.choice(list(numbers))} {self.pick(*ORDERS)} {self.number(0)}"),
            (2, lambda: f"{self.rng.choice(list(aliases))} {self.pick('is null', 'is not null')}"),
        )

    def aggregate(self, keys: Sequence[str]) -> tuple[str, bool]:
        """An aggregate, and whether it is a number that can be used in arithmetic."""
        distinct = "distinct " if self.chance(25) else ""
        function = self.pick("count", "count", "sum", "avg", "min", "max", "collect")
        if function == "count":
            if self.chance(35):
                return "count(*)", True
            arg = f"${self.rng.choice(list(self.scope.nodes))}" if self.chance(40) else self.anything()
            return f"count({distinct}{arg})", True
        if function in ("sum", "avg"):
            arg = self.integer() if self.chance(70) else self.number()
            return f"{function}({distinct}{arg})", False
        if function == "collect":
            arg = self.scalar() if self.chance(70) else f"${self.rng.choice(list(self.scope.nodes))}"
            return f"collect({distinct}{arg})", False
        return f"{function}({distinct}{self.scalar()})", False

    def order(self, keys: Sequence[str]) -> str:
        if self.chance(35):
            return ""
        chosen = self.rng.sample(list(keys), min(len(keys), self.pick(1, 1, 2)))
        sorts = [
            f"{key}{self.pick('', '', ' asc', ' desc')}{self.pick('', '', ' nulls first', ' nulls last')}"
            for key in chosen
        ]
        return f" order {{ {', '.join(sorts)} }}"

    def window(self) -> str:
        window = f" limit {self.count()}" if self.chance(40) else ""
        return window + self.skip()

    def skip(self) -> str:
        if self.chance(82):
            return ""
        return f" offset {self.pick('0', '1', '1', '2') if self.chance(80) else self.count()}"

    def count(self) -> str:
        if self.chance(80):
            return str(self.pick(1, 1, 2, 3, 3, 5, 10) if self.chance(96) else 0)
        name = self.fresh("p")
        self.params[name] = Parameter(ValueType(self.pick(*INTEGERS[:2])), self.pick(-1, 1, 2, 3, 3, 5))
        return f"${name}"


class Folding(Maker):
    """Makes chains and stars, grouped by one variable, with aggregates of properties of the others (see `Fold`)."""

    def query(self) -> str:
        clauses = self.chain()
        near = self.rng.choice(list(self.scope.nodes))
        others = [name for name in self.scope.nodes if name != near] or [near]
        columns = [f"${near}.{name} as {alias}" for name, alias in zip(self.keys_of(near), "xy", strict=False)]
        aggregates = [self.of_property(self.rng.choice(others)) for _ in range(self.pick(1, 2, 3))]
        columns += [f"{each} as k{n}" for n, each in enumerate(aggregates)]
        having = f" having {{ k0 {self.pick('is null', 'is not null', '> 1')} }}" if self.chance(20) else ""
        return self.written(clauses, f"return {{ {'  '.join(columns)} }}{having}{self.order(['k0'])}{self.window()}")


def _type(param: Parameter) -> str:
    kind = param.kind
    if kind.enum_values is not None:
        kind = ValueType(Scalar.STRING, kind.nullable, kind.list)
    text = str(kind) if param.declared is None else param.declared + "?" * kind.nullable
    return f"{text}{'' if param.default is None else f' = {param.default}'}"
