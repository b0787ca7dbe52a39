"""Annotations: allowed positions, arguments and meaning."""

from __future__ import annotations

import re
from dataclasses import field

from omnigraph.dataclass import dataclass
from omnigraph.lang.names import nearest
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.ast import LiteralKind
from omnigraph.lang.schema.canonical import sorted_annotations
from omnigraph.lang.schema.catalog import Annotation, Embed
from omnigraph.lang.schema.owner import Owner
from omnigraph.lang.schema.problems import Problems

PROPERTY_FORMS = ("index", "key", "unique")
_BODY_ONLY = ("check", "range")
_ONCE = frozenset({*PROPERTY_FORMS, "embed", "default", "description", "instruction", "rename_from"})
MERGE_LEVELS = ("property", "row")
"""The values of `@merge`."""

_CODE = re.compile(r"OG-[A-Z]{2}-[0-9]{3}|[A-Z]+[0-9]+")


KNOWN_ANNOTATIONS = (
    *("key", "unique", "index", "range", "check", "card", "card_in"),
    *("embed", "default", "description", "instruction", "rename_from", "allow", "merge"),
)
_OTHER_NAMES = {"pk": "key", "pkey": "key", "primary": "key", "primarykey": "key", "uniq": "unique", "idx": "index"}
"""Names of annotations in other databases, without underscores."""


def similar_annotation(written: str) -> str | None:
    """The annotation that an unknown name probably means; None if no name is similar."""
    if written in KNOWN_ANNOTATIONS:
        return None
    return _OTHER_NAMES.get(written.casefold().replace("_", "")) or nearest(written, KNOWN_ANNOTATIONS)


def check_names(problems: Problems, schema: ast.Schema) -> None:
    """Reject misspelt annotations. Other unknown annotations are kept for other tools, and lint reports them."""
    for declaration in schema.declarations:
        written = [] if isinstance(declaration, ast.Interface) else list(declaration.annotations)
        for member in declaration.members:
            if isinstance(member, ast.Property):
                written += member.annotations
        for annotation in written:
            near = similar_annotation(annotation.name)
            if near is not None:
                problems.report(
                    "OG-SC-031",
                    f"there is no annotation @{annotation.name}",
                    annotation.span,
                    hint=f"did you mean '@{near}'?",
                )


@dataclass(slots=True)
class Annotated:
    """The values of the annotations of one type or property."""

    opaque: list[Annotation] = field(default_factory=list)
    forms: list[ast.Annotation] = field(default_factory=list)
    embed: Embed | None = None
    embed_at: ast.Annotation | None = None
    default: ast.Literal | None = None
    rename_from: str | None = None
    allows: dict[str, str] = field(default_factory=dict)

    @property
    def annotations(self) -> tuple[Annotation, ...]:
        """The annotations that have no field of their own in this class, in canonical order."""
        return sorted_annotations(self.opaque)

    @property
    def sorted_allows(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self.allows.items()))


def read_type_annotations(problems: Problems, owner: Owner, annotations: tuple[ast.Annotation, ...]) -> Annotated:
    """Read the annotations of a type."""
    return _read(problems, owner, annotations, on_property=False)


def read_property_annotations(problems: Problems, owner: Owner, annotations: tuple[ast.Annotation, ...]) -> Annotated:
    """Read the annotations of a property."""
    return _read(problems, owner, annotations, on_property=True)


def _read(problems: Problems, owner: Owner, annotations: tuple[ast.Annotation, ...], *, on_property: bool) -> Annotated:
    result = Annotated()
    seen: set[str] = set()
    for annotation in annotations:
        if annotation.name in seen and annotation.name in _ONCE:
            problems.report("OG-SC-013", f"@{annotation.name} is repeated", annotation.span, hint="remove one of them")
            continue
        seen.add(annotation.name)
        _check_arguments_once(problems, annotation)
        misplaced = _misplaced(owner, annotation.name, on_property)
        if misplaced is not None:
            where = f"a property of {owner}" if on_property else f"the {owner.kind.value} type '{owner.name}'"
            message = f"@{annotation.name} is not allowed on {where}"
            problems.report("OG-SC-012", message, annotation.span, hint=misplaced)
            continue
        _READERS.get(annotation.name, _read_opaque)(problems, annotation, result)
    _check_merge(problems, annotations, on_property=on_property)
    return result


def _check_merge(problems: Problems, annotations: tuple[ast.Annotation, ...], *, on_property: bool) -> None:
    """Check `@merge`. It is kept like an unknown annotation, because stored schemas may have one of that name."""
    found = [annotation for annotation in annotations if annotation.name == "merge"]
    for number, annotation in enumerate(found):
        values, example = [value.text for value in annotation.values], "@merge(property)"
        if on_property:
            message, hint = "@merge is not allowed on a property", f"write {example} after the name of the type"
        elif number:
            message, hint = "@merge is repeated", "remove one of them"
        elif len(values) != 1 or values[0] not in MERGE_LEVELS or annotation.arguments:
            message, hint = "@merge names no merge level", f"write {example}, or @merge(row)"
        else:
            continue
        problems.report("OG-SC-033", message, annotation.span, hint=hint)


def _misplaced(owner: Owner, name: str, on_property: bool) -> str | None:
    """A hint for an annotation in the wrong position; None if the position is allowed."""
    if name in _BODY_ONLY:
        example = "0..100" if name == "range" else '"^[a-z]+$"'
        return f"@{name} is a line of its own in the body: @{name}(property, {example})"
    if not on_property:
        if name in PROPERTY_FORMS:
            return f"write @{name} after a property, or @{name}(property) in the body"
        return f"write @{name} after a property" if name in ("embed", "default") else None
    if name == "instruction":
        return "@instruction is for whole types; use @description for a property"
    if owner.is_edge and name == "key":
        return "the key of an edge is written in its body and names both ends: @key(src, dst)"
    if owner.is_edge and name == "embed":
        return "only node properties are computed from text; put the vector on a node type"
    return None


def _check_arguments_once(problems: Problems, annotation: ast.Annotation) -> None:
    seen: set[str] = set()
    for argument in annotation.arguments:
        if argument.name in seen:
            problems.report("OG-SC-014", f"argument '{argument.name}' is given twice", argument.span)
        seen.add(argument.name)


def _text(problems: Problems, annotation: ast.Annotation, example: str) -> str | None:
    """The single value of an annotation. It must not be blank."""
    if not annotation.values:
        hint = f"write @{annotation.name}({example})"
        problems.report("OG-SC-014", f"@{annotation.name} needs a value", annotation.span, hint=hint)
        return None
    value = annotation.values[0]
    if not value.text.strip():
        hint = f"write @{annotation.name}({example}), or remove it"
        problems.report("OG-SC-014", f"the value of @{annotation.name} is blank", value.span, hint=hint)
        return None
    return value.text


def _named_arguments(problems: Problems, annotation: ast.Annotation, allowed: tuple[str, ...] = ()) -> dict[str, str]:
    """The allowed named arguments. Others are reported and dropped."""
    found = {}
    for argument in annotation.arguments:
        if argument.name in allowed:
            found[argument.name] = argument.value.text
            continue
        problems.report(
            "OG-SC-014",
            f"@{annotation.name} has no argument '{argument.name}'",
            argument.span,
            unknown=(argument.name, allowed),
            hint="remove it",
        )
    return found


def _read_form(problems: Problems, annotation: ast.Annotation, result: Annotated) -> None:
    if annotation.values or annotation.arguments:
        problems.report(
            "OG-SC-014",
            f"@{annotation.name} after a property takes no value",
            annotation.span,
            hint=f"write @{annotation.name}, or @{annotation.name}(property) on a line of its own",
        )
    result.forms.append(annotation)


def _read_embed(problems: Problems, annotation: ast.Annotation, result: Annotated) -> None:
    source = _text(problems, annotation, '"property"')
    model = _named_arguments(problems, annotation, ("model",)).get("model")
    if source is not None:
        result.embed, result.embed_at = Embed(source, model), annotation


def _read_default(problems: Problems, annotation: ast.Annotation, result: Annotated) -> None:
    _named_arguments(problems, annotation)
    if annotation.values:
        result.default = annotation.values[0]
    else:
        problems.report(
            "OG-SC-014", "@default needs a value", annotation.span, hint='write @default("text"), @default(3), …'
        )


def _read_rename(problems: Problems, annotation: ast.Annotation, result: Annotated) -> None:
    _named_arguments(problems, annotation)
    result.rename_from = _text(problems, annotation, '"former name"')


def _read_prose(problems: Problems, annotation: ast.Annotation, result: Annotated) -> None:
    if _text(problems, annotation, '"…"') is not None:
        _read_opaque(problems, annotation, result)


def _read_allow(problems: Problems, annotation: ast.Annotation, result: Annotated) -> None:
    _named_arguments(problems, annotation)
    hint = '@allow(L211, "why this is fine here")'
    if not annotation.values or not _CODE.fullmatch(annotation.values[0].text):
        problems.report("OG-SC-030", "@allow names no diagnostic code", annotation.span, hint=hint)
        return
    code = annotation.values[0].text
    if len(annotation.values) < 2 or not annotation.values[1].text.strip():
        problems.report("OG-SC-030", f"@allow({code}) gives no reason", annotation.span, hint=hint)
        return
    if code in result.allows:
        problems.report("OG-SC-013", f"@allow({code}) is repeated", annotation.span, hint="remove one of them")
        return
    result.allows[code] = annotation.values[1].text


def _read_opaque(problems: Problems, annotation: ast.Annotation, result: Annotated) -> None:
    value = annotation.values[0].text if annotation.values else None
    kwargs = {argument.name: argument.value.text for argument in annotation.arguments}
    result.opaque.append(Annotation(annotation.name, value, tuple(sorted(kwargs.items()))))


_READERS = {
    "key": _read_form,
    "unique": _read_form,
    "index": _read_form,
    "embed": _read_embed,
    "default": _read_default,
    "rename_from": _read_rename,
    "description": _read_prose,
    "instruction": _read_prose,
    "allow": _read_allow,
}


def read_enum_renames(problems: Problems, values: tuple[ast.EnumValue, ...]) -> tuple[tuple[str, str], ...]:
    """Read the (new, old) names of enum values."""
    current = {value.text for value in values}
    renames: dict[str, str] = {}
    former: set[str] = set()
    for value in values:
        for annotation in value.annotations:
            if annotation.name != "rename_from":
                hint = "only @rename_from is allowed after an enum value"
                problems.report(
                    "OG-SC-012", f"@{annotation.name} is not allowed on an enum value", annotation.span, hint=hint
                )
                continue
            if value.text in renames:
                problems.report("OG-SC-013", "@rename_from is repeated", annotation.span, hint="remove one of them")
                continue
            _named_arguments(problems, annotation)
            old = _text(problems, annotation, '"former value"')
            if old is None:
                continue
            if old in current:
                problems.report(
                    "OG-SC-011",
                    f"'{old}' is the former name of '{value.text}' and also a value",
                    annotation.span,
                    hint=f"remove the value '{old}', or the annotation",
                )
            elif old in former:
                problems.report("OG-SC-011", f"'{old}' is the former name of two values", annotation.span)
            else:
                former.add(old)
                renames[value.text] = old
    return tuple(sorted(renames.items()))


def canonical_annotations(annotations: tuple[ast.Annotation, ...]) -> list[tuple[object, ...]]:
    """All annotations without order and spans, to compare two declarations."""
    return sorted(
        (
            annotation.name,
            tuple((str(_comparable(value.kind)), value.text) for value in annotation.values),
            tuple(sorted((argument.name, argument.value.text) for argument in annotation.arguments)),
        )
        for annotation in annotations
    )


def _comparable(kind: LiteralKind) -> LiteralKind:
    """The kind of an argument for comparison. A bare word counts as a string."""
    return LiteralKind.STRING if kind is LiteralKind.WORD else kind
