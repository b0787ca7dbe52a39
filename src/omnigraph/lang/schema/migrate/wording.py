"""Source text of catalogue values, for messages."""

from __future__ import annotations

from omnigraph.lang.schema.canonical import index_options
from omnigraph.lang.schema.catalog import (
    Cardinality,
    Check,
    Constraint,
    Default,
    Embed,
    Index,
    Key,
    Range,
    Unique,
)
from omnigraph.lang.schema.owner import ENDPOINTS
from omnigraph.lang.tokens import quote


def constraint_source(constraint: Constraint) -> str:
    """A constraint as a line of a body."""
    match constraint:
        case Key(fields):
            return f"@key({', '.join(_ends_first(fields))})"
        case Unique(fields):
            return f"@unique({', '.join(_ends_first(fields))})"
        case Index(fields):
            options = [f"{name}={quote(value)}" for name, value in index_options(constraint).items()]
            return f"@index({', '.join([*_ends_first(fields), *options])})"
        case Range(name, least, most):
            return f"@range({name}, {'' if least is None else least}..{'' if most is None else most})"
        case Check(name, pattern):
            return f"@check({name}, {quote(pattern)})"


def _ends_first(fields: tuple[str, ...]) -> list[str]:
    ends = [name for name in ENDPOINTS if name in fields]
    return ends + [name for name in fields if name not in ends]


def cardinality_source(cardinality: Cardinality) -> str:
    return f"{cardinality.min}..{'' if cardinality.max is None else cardinality.max}"


def default_source(default: Default | None) -> str:
    if default is None:
        return "none"
    if default.now:
        return "now()"
    if isinstance(default.value, bool):
        return "true" if default.value else "false"
    return quote(default.value) if isinstance(default.value, str) else str(default.value)


def embed_source(embed: Embed | None) -> str:
    if embed is None:
        return "none"
    return quote(embed.source) + (f", model={quote(embed.model)}" if embed.model else "")
