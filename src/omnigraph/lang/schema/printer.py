"""Printer and formatter of `.pg`: canonical source text."""

from __future__ import annotations

from itertools import pairwise

from omnigraph.errors import Span
from omnigraph.lang.layout import INDENT, WIDTH, Layout
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.ast import LiteralKind
from omnigraph.lang.schema.parser import parse_schema
from omnigraph.lang.schema.term_parser import CONSTRAINT_HEADS
from omnigraph.lang.tokens import quote, schema_tokens
from omnigraph.lang.types import Scalar


def print_schema(schema: ast.Schema) -> str:
    """Print a tree as canonical text. Parsing it gives an equal tree."""
    return _Printer(Layout()).print(schema)


def format_schema(text: str | bytes, name: str | None = None) -> str:
    """Format a text. Comments and single blank lines are kept.

    Raises:
        ParseError: the text does not follow the grammar.
    """
    tree = parse_schema(text, name)
    return _Printer(Layout(schema_tokens(tree.source))).print(tree)


class _Printer:
    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def print(self, schema: ast.Schema) -> str:
        for before, declaration in pairwise((None, *schema.declarations)):
            assert declaration is not None
            if before is not None and not (_is_line(before) and _is_line(declaration)):
                self.layout.blank()
            self._declaration(declaration)
        return self.layout.text()

    def _declaration(self, tree: ast.Declaration) -> None:
        head = declaration_head(tree)
        body = Span(tree.head.end, tree.span.end)
        if tree.members or (isinstance(tree, ast.Node | ast.Interface) and self.layout.has_comment(body)):
            self.layout.open(_one_line_or_tall(head, "{"), tree.head)
            for member in tree.members:
                self._member(member)
            self.layout.close("}", tree.span.end)
        else:
            self.layout.line(_one_line_or_tall(head, "" if isinstance(tree, ast.Edge) else "{}"), tree.span)

    def _member(self, tree: ast.Member) -> None:
        if not isinstance(tree, ast.Property):
            self.layout.line(constraint_text(tree), tree.span)
            return
        text = property_text(tree)
        if tree.type.enum_values and (len(INDENT) + len(text) > WIDTH or self.layout.has_comment(tree.type.span)):
            self._tall_enum(tree, tree.type.enum_values)
        else:
            self.layout.line(text, tree.span)

    def _tall_enum(self, tree: ast.Property, values: tuple[ast.EnumValue, ...]) -> None:
        """Print an enum with one value per line, so that each value keeps its comment."""
        left, right = ("[", "]") if tree.type.list else ("", "")
        self.layout.open(f"{tree.name.text}: {left}enum(", Span(tree.span.start, tree.span.start))
        for i, value in enumerate(values):
            comma = "," if i < len(values) - 1 else ""
            self.layout.line(enum_value_text(value) + comma, value.span)
        rest = _words(f"){right}{'?' if tree.type.nullable else ''}", *map(annotation_text, tree.annotations))
        self.layout.close(rest, tree.span.end)


def _is_line(tree: ast.Declaration) -> bool:
    return isinstance(tree, ast.Edge) and not tree.members


def _words(*words: str | None) -> str:
    return " ".join(word for word in words if word)


def _one_line_or_tall(head: list[str], brace: str) -> str:
    """Print the text before the body of a declaration on one line if it fits, else each annotation on its own line."""
    line = _words(*head, brace)
    if len(line) <= WIDTH or len(head) == 1:
        return line
    return "\n".join([head[0], *(INDENT + part for part in head[1:]), *([brace] if brace else [])])


def declaration_head(tree: ast.Declaration) -> list[str]:
    """The parts of a declaration before its body."""
    match tree:
        case ast.Interface():
            return [f"interface {tree.name.text}"]
        case ast.Node():
            implements = ", ".join(name.text for name in tree.implements)
            return [
                f"node {tree.name.text}",
                *map(annotation_text, tree.annotations),
                *([f"implements {implements}"] if implements else []),
            ]
        case ast.Edge():
            cards = (_cardinality_text("@card", tree.card), _cardinality_text("@card_in", tree.card_in))
            ends = _words(f"edge {tree.name.text}: {tree.from_type.text} -> {tree.to_type.text}", *cards)
            return [ends, *map(annotation_text, tree.annotations)]


def _cardinality_text(word: str, card: ast.Cardinality | None) -> str | None:
    return None if card is None else f"{word}({card.min}..{'' if card.max is None else card.max})"


def property_text(tree: ast.Property) -> str:
    return _words(f"{tree.name.text}: {type_text(tree.type)}", *map(annotation_text, tree.annotations))


def type_text(tree: ast.TypeExpression) -> str:
    if tree.enum_values is not None:
        text = f"enum({', '.join(map(enum_value_text, tree.enum_values))})"
    elif tree.scalar is Scalar.VECTOR:
        text = f"Vector({tree.dim})"
    else:
        text = tree.scalar.value
    if tree.list:
        text = f"[{text}]"
    return text + "?" if tree.nullable else text


def enum_value_text(tree: ast.EnumValue) -> str:
    return _words(tree.text, *map(annotation_text, tree.annotations))


def annotation_text(tree: ast.Annotation) -> str:
    arguments = [*map(literal_text, tree.values), *map(_argument_text, tree.arguments)]
    if not arguments:
        return f"@{tree.name}"
    # Without the space after @, the parser would read this annotation as a constraint.
    at = "@ " if tree.name in CONSTRAINT_HEADS else "@"
    return f"{at}{tree.name}({', '.join(arguments)})"


def _argument_text(tree: ast.Argument) -> str:
    return f"{tree.name}={literal_text(tree.value)}"


def literal_text(tree: ast.Literal) -> str:
    if tree.kind is LiteralKind.STRING:
        return quote(tree.text)
    return "now()" if tree.kind is LiteralKind.NOW else tree.text


def constraint_text(tree: ast.Constraint) -> str:
    match tree:
        case ast.KeyConstraint(fields):
            return f"@key({_names(fields)})"
        case ast.UniqueConstraint(fields):
            return f"@unique({_names(fields)})"
        case ast.IndexConstraint(fields, options):
            return f"@index({', '.join([_names(fields), *map(_argument_text, options)])})"
        case ast.RangeConstraint(name, least, most):
            return f"@range({name.text}, {least.text if least else ''}..{most.text if most else ''})"
        case ast.CheckConstraint(name, pattern):
            return f"@check({name.text}, {quote(pattern.text)})"


def _names(names: tuple[ast.Name, ...]) -> str:
    return ", ".join(name.text for name in names)
