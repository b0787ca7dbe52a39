"""A question in our language."""

from __future__ import annotations

from collections.abc import Iterator

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

STAGES = "query staged() { match { $a: Person } with { $a, count(*) as n } match { $a likes $b } return { count(*) } }"
"""Compiles where the language has stages."""
SUBQUERIES = "query asked() { match { $a: Person  count { $a likes $b } >= 2 } return { count(*) as c0 } }"
"""Compiles where a block can be a value."""


def render(question: Question) -> str:
    lines = ["query asked() {", "    match {", *(f"        {clause}" for clause in _clauses(question)), "    }"]
    if question.stage is not None:
        stage = question.stage
        lines += [f"    with {{ ${stage.kept}, count(*) as n }}", f"    having {{ n >= {stage.at_least} }}"]
        lines += ["    match {", *(f"        {clause}" for clause in _block(stage.then)), "    }"]
    return "\n".join([*lines, *(f"    {line}" for line in _answer(question.answer)), "}"])


def _clauses(question: Question) -> Iterator[str]:
    yield from _block(question.match)
    if question.optional is not None:
        yield f"optional {{ {'  '.join(_block(question.optional))} }}"
    for block in question.without:
        yield f"not {{ {'  '.join(_block(block))} }}"


def _block(block: Block) -> Iterator[str]:
    if not block.edges:
        yield from (f"${var}: {kind}" for var, kind in block.types.items())
    for edge in block.edges:
        yield f"${edge.source} {edge.kind[0].lower()}{edge.kind[1:]} ${edge.target}"
    yield from map(_condition, block.conditions)


def _condition(condition: Condition) -> str:
    match condition:
        case Compare(left, op, right):
            return f"{_place(left)} {op} {_place(right) if isinstance(right, Property) else _value(right)}"
        case OneOf(left, values):
            return f"{_place(left)} in [{', '.join(map(_value, values))}]"
        case IsNull(left, negated):
            return f"{_place(left)} is {'not ' if negated else ''}null"
        case Either(one, other):
            return f"({_condition(one)} or {_condition(other)})"
        case Different(one, other):
            return f"${one} != ${other}"
        case Exists(block, None):
            return f"exists {{ {'  '.join(_block(block))} }}"
        case Exists(block, at_least):
            return f"count {{ {'  '.join(_block(block))} }} >= {at_least}"


def _answer(answer: Answer) -> Iterator[str]:
    shown = [*map(_place, answer.keys), *map(_aggregate, answer.aggregates)]
    columns = ", ".join(f"{what} as c{number}" for number, what in enumerate(shown))
    yield f"return {'distinct ' if answer.distinct else ''}{{ {columns} }}"
    if answer.at_least is not None:
        yield f"having {{ c{len(answer.keys)} >= {answer.at_least} }}"
    if answer.order:
        yield f"order {{ {', '.join(f'c{key.column}' + ' desc' * key.descending for key in answer.order)} }}"
    if answer.limit is not None:
        yield f"limit {answer.limit}"


def _aggregate(part: Aggregate) -> str:
    if part.of is None:
        return "count(*)"
    node = part.function == "count" and part.of.name == KEY
    return f"{part.function}({'distinct ' * part.distinct}{f'${part.of.var}' if node else _place(part.of)})"


def _place(what: Property) -> str:
    return f"${what.var}.{what.name}" if what.var else what.name


def _value(value: Value) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
