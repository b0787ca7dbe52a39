"""Read properties: types, names and annotations."""

from __future__ import annotations

from omnigraph.dataclass import dataclass
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.annotations import Annotated, read_enum_renames, read_property_annotations
from omnigraph.lang.schema.catalog import Embed, Property
from omnigraph.lang.schema.owner import Owner
from omnigraph.lang.schema.problems import Problems
from omnigraph.lang.types import MAX_VECTOR_DIM, Scalar, ValueType


@dataclass(frozen=True, slots=True)
class Source:
    """A property of a type: declared there, or supplied by an interface."""

    tree: ast.Property
    through: str | None = None
    satisfies: tuple[tuple[str, str], ...] = ()


def value_type(written: ast.TypeExpression) -> ValueType:
    """The value type of a written type. The values of an enum are sorted and distinct."""
    values = None
    if written.enum_values is not None:
        values = tuple(sorted({value.text for value in written.enum_values}))
    return ValueType(written.scalar, written.nullable, written.list, values, written.dim)


def check_type(problems: Problems, written: ast.TypeExpression) -> None:
    """Report types that the grammar allows but that are not valid."""
    if written.dim is not None and not 1 <= written.dim <= MAX_VECTOR_DIM:
        problems.report(
            "OG-SC-008",
            f"a vector cannot have {written.dim:,} dimensions",
            written.span,
            hint=f"the dimension is between 1 and {MAX_VECTOR_DIM:,}",
        )
    if written.list and written.scalar is Scalar.BLOB:
        problems.report(
            "OG-SC-009",
            "a list cannot hold blobs",
            written.span,
            hint="use a node type with one Blob each, and an edge",
        )
    seen: set[str] = set()
    for value in written.enum_values or ():
        if value.text in seen:
            problems.report("OG-SC-010", f"enum value '{value.text}' is repeated", value.span)
        seen.add(value.text)


def check_name(problems: Problems, owner: Owner, name: ast.Name) -> None:
    if not owner.built_in(name.text):
        return
    hint = "choose another name"
    if name.text in ("from", "to"):
        hint = "inserts spell the ends of an edge 'from' and 'to'; choose another name"
    elif name.text in ("src", "dst"):
        hint = "every edge has 'src' and 'dst'; remove the property, or choose another name"
    elif name.text == "id":
        hint = "every node and edge has an 'id'; make a property the id with @key, or choose another name"
    problems.report("OG-SC-003", f"{owner}: '{name.text}' is a built-in column", name.span, hint=hint)


def distinct_properties(problems: Problems, owner: Owner, members: tuple[ast.Member, ...]) -> dict[str, ast.Property]:
    """The properties of a body by name. Duplicates are reported; the first one counts."""
    found: dict[str, ast.Property] = {}
    for member in members:
        if not isinstance(member, ast.Property):
            continue
        name = member.name.text
        if name in found:
            problems.report("OG-SC-002", f"{owner} has two properties '{name}'", member.name.span)
            continue
        found[name] = member
        check_type(problems, member.type)
        check_name(problems, owner, member.name)
    return found


def read_property(problems: Problems, owner: Owner, source: Source) -> tuple[Property, Annotated]:
    """Read a property of a type, and its annotations."""
    owner = Owner(owner.kind, owner.name, source.through)
    tree = source.tree
    if source.through is not None:
        check_name(problems, owner, tree.name)
    annotated = read_property_annotations(problems, owner, tree.annotations)
    result = Property(
        tree.name.text,
        value_type(tree.type),
        annotations=annotated.annotations,
        property_constraints=tuple(sorted({form.name for form in annotated.forms})),
        embed=annotated.embed,
        declared_directly=source.through is None,
        satisfies=source.satisfies,
        rename_from=annotated.rename_from,
        enum_renames=read_enum_renames(problems, tree.type.enum_values or ()),
        allows=annotated.sorted_allows,
        span=tree.span,
    )
    return result, annotated


def check_embed(
    problems: Problems,
    owner: Owner,
    target: Property,
    embed: Embed,
    at: ast.Annotation,
    properties: dict[str, Property],
) -> None:
    """Check `@embed`: the property must be a vector, and its source a text of the same node."""
    if not target.type.is_vector:
        problems.report(
            "OG-SC-026",
            f"{owner}: @embed is on '{target.name}', which is {target.type}, not a Vector",
            at.span,
            hint='put @embed on the vector, and name the text: vec: Vector(384) @embed("text")',
        )
        return
    source = properties.get(embed.source)
    span = at.values[0].span
    if source is None:
        problems.report(
            "OG-SC-015",
            f"{owner}: @embed reads '{embed.source}', which is not a property",
            span,
            unknown=(embed.source, properties),
        )
    elif source.type.list or source.type.scalar is not Scalar.STRING:
        problems.report(
            "OG-SC-026", f"{owner}: @embed reads '{embed.source}', which is {source.type}, not a String", span
        )
