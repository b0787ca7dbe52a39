"""Canonical order and text of schema elements. Equal schemas give equal texts."""

from __future__ import annotations

import json
from collections.abc import Iterable

from omnigraph.lang.schema.catalog import (
    Annotation,
    Check,
    Constraint,
    Index,
    IndexKind,
    Key,
    Range,
    Unique,
)

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None


def compact(value: Json) -> str:
    """JSON without white space. Members keep their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def annotation_json(annotation: Annotation) -> Json:
    """An annotation as JSON, for shapes, stored schemas and plans."""
    entry: dict[str, Json] = {"name": annotation.name, "value": annotation.value}
    if annotation.kwargs:
        entry["kwargs"] = dict(annotation.kwargs)
    return entry


def sorted_annotations(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    return tuple(sorted(annotations, key=lambda annotation: compact(annotation_json(annotation))))


def index_options(index: Index) -> dict[str, str]:
    """The options of an index, including its kind; empty for a plain `@index(p)`."""
    kind = {} if index.kind is IndexKind.AUTO else {"kind": index.kind.value}
    return kind | dict(index.options)


def constraint_text(constraint: Constraint) -> str:
    """The canonical text of a constraint. It is the sort key and is unique."""
    match constraint:
        case Key(fields):
            return "key:" + ",".join(fields)
        case Unique(fields):
            return "unique:" + ",".join(fields)
        case Index(fields):
            options = index_options(constraint)
            return "index:" + ",".join(fields) + (":" + compact(dict(options)) if options else "")
        case Range(name, least, most):
            return f"range:{name}:{'' if least is None else least}..{'' if most is None else most}"
        case Check(name, pattern):
            return f"check:{name}:{pattern}"


def sorted_constraints(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Constraints in canonical order, without duplicates."""
    by_text = {constraint_text(constraint): constraint for constraint in constraints}
    return tuple(by_text[text] for text in sorted(by_text))
