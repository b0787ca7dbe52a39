"""A question in SQL: joins of edges. A node is joined only where a property other than its key is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from asking.question import (
    KEY,
    Aggregate,
    Answer,
    Block,
    Compare,
    Condition,
    Different,
    Either,
    Exists,
    IsNull,
    OneOf,
    Property,
    Question,
    Value,
)


class Scope:
    """The place of each variable and property in a statement, and the joins that put them there."""

    def __init__(self, prefix: str = "", outer: Scope | None = None) -> None:
        self.joins: list[str] = []
        self.where: list[str] = []
        self._prefix = prefix
        self._outer = outer
        self._keys: dict[str, str] = {}
        self._columns: dict[Property, str] = {}

    def set(self, what: Property, place: str) -> None:
        if what.name == KEY:
            self._keys[what.var] = place
        self._columns[what] = place

    def key(self, var: str) -> str:
        if var in self._keys:
            return self._keys[var]
        assert self._outer is not None
        return self._outer.key(var)

    def column(self, what: Property) -> str:
        if what in self._columns:
            return self._columns[what]
        if what.name == KEY and what.var in self._keys:
            return self._keys[what.var]
        assert self._outer is not None, what
        return self._outer.column(what)

    def add(self, block: Block, wanted: Iterable[Property]) -> None:
        """Join the edges of a block, and the nodes whose properties are wanted."""
        for edge in block.edges:
            alias = f"{self._prefix}e{len(self.joins)}"
            on = []
            for end, var in zip(("from", "to"), edge.ends, strict=True):
                place = f'{alias}."{end}"'
                if var in self._keys:
                    on.append(f"{place} = {self._keys[var]}")
                elif var in block.types:
                    self._keys[var] = place
                else:
                    self._keys[var] = place
                    self.where.append(f"{place} = {self._outer_key(var)}")
            self._join(edge.kind, alias, on)
        for var, names in _by_variable(wanted).items():
            if var in block.types and (names - {KEY} or not block.edges):
                alias = f"{self._prefix}{var}"
                self._join(block.types[var], alias, [f"{alias}.num = {self._keys[var]}"] if block.edges else [])
                self._keys.setdefault(var, f"{alias}.num")
                self._columns |= {Property(var, name): f"{alias}.{name}" for name in names - {KEY}}

    def _outer_key(self, var: str) -> str:
        assert self._outer is not None
        return self._outer.key(var)

    def _join(self, table: str, alias: str, on: list[str]) -> None:
        condition = f" ON {' AND '.join(on) or 'true'}" if self.joins else ""
        self.joins.append(f"{'JOIN ' if self.joins else ''}{table} {alias}{condition}")

    def source(self) -> str:
        return f"FROM {' '.join(self.joins)}" + (f" WHERE {' AND '.join(self.where)}" if self.where else "")


def render(question: Question) -> str:
    scope = _matched(question)
    if question.stage is None:
        return _select(question.answer, scope)
    stage = question.stage
    key = scope.key(stage.kept)
    first = f"SELECT {key} AS k, count(*) AS n {scope.source()} GROUP BY {key} HAVING count(*) >= {stage.at_least}"
    after = Scope()
    after.joins.append("staged")
    after.set(Property(stage.kept, KEY), "staged.k")
    after.set(Property("", "n"), "staged.n")
    kept = Block({**stage.then.types, stage.kept: question.match.types[stage.kept]}, stage.then.edges)
    after.add(kept, [*stage.then.uses(), *question.answer.uses()])
    after.where += [_condition(part, after) for part in stage.then.conditions]
    return f"WITH staged AS ({first}) {_select(question.answer, after)}"


def _matched(question: Question) -> Scope:
    scope = Scope()
    inner = [*question.without, *([question.optional] if question.optional else [])]
    wanted = [*question.match.uses(), *(what for block in inner for what in block.uses())]
    if question.stage is None:
        wanted += question.answer.uses()
    scope.add(question.match, [*wanted, *(Property(var, KEY) for var in question.match.types)])
    scope.where += [_condition(part, scope) for part in question.match.conditions]
    if question.optional is not None:
        _left_join(scope, question.optional, list(question.answer.uses()))
    for number, block in enumerate(question.without):
        scope.where.append(f"NOT EXISTS (SELECT 1 {_within(block, f'x{number}_', scope)})")
    return scope


def _within(block: Block, prefix: str, outer: Scope) -> str:
    """A block that uses variables of the statement around it."""
    scope = Scope(prefix, outer)
    scope.add(block, block.uses())
    scope.where += [_condition(part, scope) for part in block.conditions]
    return scope.source()


def _left_join(scope: Scope, block: Block, wanted: list[Property]) -> None:
    """Join a block whose own conditions apply inside it, and those that use other variables to the join."""
    within = Scope("o_")
    outer = sorted({var for edge in block.edges for var in edge.ends} - set(block.types))
    everything = Block({**block.types, **dict.fromkeys(outer, "")}, block.edges)
    used = [what for what in [*block.uses(), *wanted] if what.var in block.types]
    within.add(everything, used)
    own = [part for part in block.conditions if all(what.var in block.types for what in Block({}, (), (part,)).uses())]
    within.where += [_condition(part, within) for part in own]
    shown = {Property(var, KEY) for var in [*outer, *block.types]} | set(used)
    names = {what: f"{what.var}_{what.name}" for what in sorted(shown, key=lambda what: (what.var, what.name))}
    columns = ", ".join(f"{within.column(what)} AS {name}" for what, name in names.items())
    on = [f"o.{names[Property(var, KEY)]} = {scope.key(var)}" for var in outer]
    for what, name in names.items():
        if what.var in block.types:
            scope.set(what, f"o.{name}")
    on += [_condition(part, scope) for part in block.conditions if part not in own]
    scope.joins.append(f"LEFT JOIN (SELECT {columns} {within.source()}) o ON {' AND '.join(on)}")


def _by_variable(wanted: Iterable[Property]) -> Mapping[str, set[str]]:
    found: dict[str, set[str]] = {}
    for what in wanted:
        found.setdefault(what.var, set()).add(what.name)
    return found


def _condition(condition: Condition, scope: Scope) -> str:
    match condition:
        case Compare(left, op, right):
            other = scope.column(right) if isinstance(right, Property) else _value(right)
            return f"{scope.column(left)} {'<>' if op == '!=' else op} {other}"
        case OneOf(left, values):
            return f"{scope.column(left)} IN ({', '.join(map(_value, values))})"
        case IsNull(left, negated):
            return f"{scope.column(left)} IS {'NOT ' if negated else ''}NULL"
        case Either(one, other):
            return f"({_condition(one, scope)} OR {_condition(other, scope)})"
        case Different(one, other):
            return f"{scope.key(one)} <> {scope.key(other)}"
        case Exists(block, None):
            return f"EXISTS (SELECT 1 {_within(block, 's_', scope)})"
        case Exists(block, at_least):
            return f"(SELECT count(*) {_within(block, 's_', scope)}) >= {at_least}"


def _select(answer: Answer, scope: Scope) -> str:
    keys = [scope.column(what) for what in answer.keys]
    shown = [*keys, *(_aggregate(part, scope) for part in answer.aggregates)]
    columns = ", ".join(f"{what} AS c{number}" for number, what in enumerate(shown))
    text = f"SELECT {'DISTINCT ' if answer.distinct else ''}{columns} {scope.source()}"
    return " ".join([text, *_rest(answer, keys, shown)])


def _rest(answer: Answer, keys: list[str], shown: list[str]) -> Iterator[str]:
    if answer.aggregates and keys:
        yield f"GROUP BY {', '.join(keys)}"
    if answer.at_least is not None:
        yield f"HAVING {shown[len(keys)]} >= {answer.at_least}"
    if answer.order:
        yield f"ORDER BY {', '.join(f'c{key.column}' + ' DESC' * key.descending for key in answer.order)}"
    if answer.limit is not None:
        yield f"LIMIT {answer.limit}"


def _aggregate(part: Aggregate, scope: Scope) -> str:
    if part.of is None:
        return "count(*)"
    text = f"{part.function}({'DISTINCT ' * part.distinct}{scope.column(part.of)})"
    return f"CAST({text} AS BIGINT)" if part.function == "sum" else text


def _value(value: Value) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
