"""A question in Cypher, as ladybug reads it: two edges of a match may be the same edge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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


def render(question: Question) -> str:
    parts = [f"MATCH {_pattern(question.match)}{_where(question.match, question.without)}"]
    if question.optional is not None:
        parts.append(f"OPTIONAL MATCH {_pattern(question.optional)}{_where(question.optional)}")
    if question.stage is not None:
        stage = question.stage
        parts.append(f"WITH {stage.kept}, count(*) AS n WHERE n >= {stage.at_least}")
        parts.append(f"MATCH {_pattern(stage.then)}{_where(stage.then)}")
    return " ".join([*parts, *_answer(question.answer)])


def _pattern(block: Block) -> str:
    if not block.edges:
        return ", ".join(f"({var}:{kind})" for var, kind in block.types.items())
    named: set[str] = set()
    return ", ".join(
        f"{_node(edge.source, block.types, named)}-[:{edge.kind}]->{_node(edge.target, block.types, named)}"
        for edge in block.edges
    )


def _node(var: str, types: Mapping[str, str], named: set[str]) -> str:
    new = var in types and var not in named
    named.add(var)
    return f"({var}:{types[var]})" if new else f"({var})"


def _where(block: Block, without: tuple[Block, ...] = ()) -> str:
    parts = [_condition(part) for part in block.conditions]
    parts += [f"NOT EXISTS {{ MATCH {_pattern(other)}{_where(other)} }}" for other in without]
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def _condition(condition: Condition) -> str:
    match condition:
        case Compare(left, op, right):
            other = _place(right) if isinstance(right, Property) else _value(right)
            return f"{_place(left)} {'<>' if op == '!=' else op} {other}"
        case OneOf(left, values):
            return f"{_place(left)} IN [{', '.join(map(_value, values))}]"
        case IsNull(left, negated):
            return f"{_place(left)} IS {'NOT ' if negated else ''}NULL"
        case Either(one, other):
            return f"({_condition(one)} OR {_condition(other)})"
        case Different(one, other):
            return f"{one}.{KEY} <> {other}.{KEY}"
        case Exists(block, None):
            return f"EXISTS {{ MATCH {_pattern(block)}{_where(block)} }}"
        case Exists(block, at_least):
            return f"COUNT {{ MATCH {_pattern(block)}{_where(block)} }} >= {at_least}"


def _answer(answer: Answer) -> Iterator[str]:
    shown = [*map(_place, answer.keys), *map(_aggregate, answer.aggregates)]
    columns = ", ".join(f"{what} AS c{number}" for number, what in enumerate(shown))
    if answer.at_least is None:
        yield f"RETURN {'DISTINCT ' if answer.distinct else ''}{columns}"
    else:
        yield f"WITH {columns} WHERE c{len(answer.keys)} >= {answer.at_least}"
        yield f"RETURN {', '.join(f'c{number}' for number in range(len(shown)))}"
    if answer.order:
        yield f"ORDER BY {', '.join(f'c{key.column}' + ' DESC' * key.descending for key in answer.order)}"
    if answer.limit is not None:
        yield f"LIMIT {answer.limit}"


def _aggregate(part: Aggregate) -> str:
    if part.of is None:
        return "count(*)"
    return f"{part.function}({'DISTINCT ' * part.distinct}{_place(part.of)})"


def _place(what: Property) -> str:
    return f"{what.var}.{what.name}" if what.var else what.name


def _value(value: Value) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
