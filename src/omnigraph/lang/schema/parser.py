"""The parser of `.pg`: one method per production of the grammar.

The grammar has no recursion, so the stack depth of the parser is fixed.
"""

from __future__ import annotations

from collections.abc import Callable

from omnigraph.errors import ParseError, Span
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema import ast
from omnigraph.lang.schema.annotations import similar_annotation
from omnigraph.lang.schema.ast import LiteralKind
from omnigraph.lang.schema.term_parser import CARDINALITY_HEADS, CONSTRAINT_HEADS, TermParser
from omnigraph.lang.tokens import read_source, schema_tokens
from omnigraph.lang.types import WRITTEN_SCALARS, Scalar

DECLARATION_WORDS = ("interface", "node", "edge")
TYPE_WORDS = (*WRITTEN_SCALARS, "Vector", "enum")

TYPE_ALIASES = {
    **dict.fromkeys(("int", "integer", "long", "bigint", "int64"), "I64"),
    **dict.fromkeys(("int32", "smallint"), "I32"),
    **dict.fromkeys(("uint", "uint64"), "U64"),
    **dict.fromkeys(("float", "double", "number", "decimal", "real", "float64"), "F64"),
    **dict.fromkeys(("str", "text", "varchar", "char", "uuid", "json"), "String"),
    **dict.fromkeys(("time", "timestamp"), "DateTime"),
    **dict.fromkeys(("bytes", "binary"), "Blob"),
    **dict.fromkeys(("list", "array"), "the item type in brackets: [String]"),
    "boolean": "Bool",
    "embedding": "Vector(384)",
}
"""Names of types in other languages."""


def parse_schema(text: str | bytes, name: str | None = None) -> ast.Schema:
    """Parse a `.pg` text.

    Args:
        text: the text, or its UTF-8 bytes.
        name: the file name in errors.

    Raises:
        ParseError: the text does not follow the grammar.
    """
    return _SchemaParser(schema_tokens(read_source(text, name))).schema()


_SCHEMA = "a schema looks like this: node Person { name: String @key } edge Knows: Person -> Person"
_OTHER_DECLARATIONS = {
    **dict.fromkeys(("type", "class", "table", "vertex", "entity", "struct"), "write node Name { … }"),
    **dict.fromkeys(("relationship", "relation", "rel", "link"), "write edge Name: A -> B"),
    "enum": "the values are written at the property: state: enum(open, closed)",
    "create": _SCHEMA,
    "query": "this is a query; a schema file has types",
}
"""Hints for declarations of other languages."""


class _SchemaParser(TermParser):
    __slots__ = ()

    def schema(self) -> ast.Schema:
        declarations: list[ast.Declaration] = []
        while self.kinds[self.i] != "end":
            declarations.append(self._declaration())
        return ast.Schema(tuple(declarations), self.source, Span(0, len(self.source.text.encode())))

    def _declaration(self) -> ast.Declaration:
        start = self.i
        if self.accept_word("interface"):
            return self._interface(start)
        if self.accept_word("node"):
            return self._node(start)
        if self.accept_word("edge"):
            return self._edge(start)
        hint = None
        if self.kinds[self.i] == "}":
            hint = "there is one closing brace too many"
        elif self.kinds[self.i] == "at":
            hint = "annotations come after the name of a type, or after a property"
        else:
            hint = _OTHER_DECLARATIONS.get(self.texts[self.i].lower())
        raise self.unexpected("'interface', 'node' or 'edge'", words=list(DECLARATION_WORDS), hint=hint)

    def _at_declaration(self) -> bool:
        return self.kinds[self.i] == "end" or self.texts[self.i] in DECLARATION_WORDS

    def _interface(self, start: int) -> ast.Interface:
        name = self._type_name("the name of the interface")
        if self.kinds[self.i] == "at":
            raise self.unexpected("'{'", hint="an interface takes no annotations; its properties may")
        self.expect("{")
        head = self.span_from(start)
        members: list[ast.Property] = []
        while not self.accept("}"):
            if self._at_constraint():
                raise self.unexpected(
                    "a property or '}'",
                    hint="an interface holds properties only; write the constraint in the node types, "
                    "or use @key, @unique or @index without parentheses after a property",
                )
            members.append(self._property())
        return ast.Interface(name, tuple(members), head, self.span_from(start))

    def _node(self, start: int) -> ast.Node:
        name = self._type_name("the name of the node type")
        annotations = self._annotations()
        implements = self._implements()
        if self.kinds[self.i] == "at":
            raise self.unexpected("'{'", hint="annotations come before 'implements'")
        if self.kinds[self.i] != "{":
            hint = "a node type needs a body, even an empty one: {}" if self._at_declaration() else None
            raise self.unexpected("'{'", words=["implements"], hint=hint)
        self.expect("{")
        head = self.span_from(start)
        members = self._members()
        return ast.Node(name, annotations, implements, members, head, self.span_from(start))

    def _implements(self) -> tuple[ast.Name, ...]:
        if not self.accept_word("implements"):
            return ()
        names = [self._type_name("the name of an interface")]
        while self.accept(","):
            names.append(self._type_name("the name of an interface"))
        return tuple(names)

    def _edge(self, start: int) -> ast.Edge:
        name = self._type_name("the name of the edge type")
        self.expect(":", "':' and the types at both ends (edge Name: From -> To)")
        from_type = self._type_name("the node type where the edge begins")
        self.expect("->", "'->' and the node type where the edge ends")
        to_type = self._type_name("the node type where the edge ends")
        card = self._cardinality("card")
        card_in = self._cardinality("card_in")
        annotations = self._annotations()
        members: tuple[ast.Member, ...] = ()
        has_body = self.accept("{")
        head = self.span_from(start)
        if has_body:
            members = self._members()
        return ast.Edge(name, from_type, to_type, card, card_in, annotations, members, head, self.span_from(start))

    def _cardinality(self, word: str) -> ast.Cardinality | None:
        start = self.i
        if self.kinds[start] != "at" or self.texts[start] != word or self.kinds[start + 1] != "(":
            return None
        self.i += 2
        least = self._integer(f"the least number of edges (@{word}(0..1))")
        self.expect("..", f"'..' (@{word}({least}..), @{word}({least}..{least}))")
        most = None if self.kinds[self.i] == ")" else self._integer("the greatest number of edges, or ')'")
        self.expect(")")
        return ast.Cardinality(least, most, self.span_from(start))

    def _members(self) -> tuple[ast.Member, ...]:
        members: list[ast.Member] = []
        while not self.accept("}"):
            members.append(self._constraint() if self._at_constraint() else self._property())
        return tuple(members)

    def _property(self) -> ast.Property:
        start = self.i
        if self.kinds[start] != "name":
            raise self._no_member()
        self.i += 1
        name = ast.Name(self.texts[start], self.tokens.span(start))
        if self.kinds[self.i] != ":":
            hint = "a name has letters, digits and '_' only" if self.kinds[self.i] == "-" else None
            raise self.unexpected(f"':' and the type of property '{name.text}'", hint=hint)
        self.i += 1
        written = self._type()
        annotations = self._annotations()
        return ast.Property(name, written, annotations, self.span_from(start))

    def _no_member(self) -> ParseError:
        """The error for a token that is not a property, a constraint or the end of the body."""
        kind, text = self.kinds[self.i], self.texts[self.i]
        hint = None
        if kind == "at" and text in CONSTRAINT_HEADS:
            hint = f"after a property write @{text}; on a separate line write @{text}(property)"
        elif kind == "at" and text in CARDINALITY_HEADS:
            hint = f"@{text} comes after the end types of an edge: edge E: A -> B @{text}(0..1)"
        elif kind == "at" and (near := similar_annotation(text)) is not None:
            hint = f"did you mean '@{near}'?"
        elif kind == "at":
            hint = "annotations come after a property, or after the name of the type"
        elif kind == "type" and self.kinds[self.i + 1] == ":":
            hint = f"property names begin with a lower-case letter: {text[0].lower()}{text[1:]}"
        elif kind == ",":
            hint = "members need no separator; remove the comma"
        elif kind == "=":
            hint = "a default is written @default(3)"
        elif kind == "end":
            hint = "the body has no closing brace"
        return self.unexpected("a property, a constraint or '}'", hint=hint)

    # ---- types ----

    def _type(self) -> ast.TypeExpression:
        start = self.i
        if self.accept("["):
            scalar, values, dim = self._item()
            self.expect("]")
            is_list = True
        elif self.at_word("enum"):
            scalar, values, dim, is_list = Scalar.STRING, self._enum(), None, False
        elif self.kinds[self.i] == "type" and self.texts[self.i] == "Vector":
            scalar, values, dim, is_list = Scalar.VECTOR, None, self._vector(), False
        else:
            scalar, values, dim, is_list = self._scalar(), None, None, False
        nullable = self.accept("?")
        return ast.TypeExpression(scalar, nullable, is_list, values, dim, self.span_from(start))

    def _item(self) -> tuple[Scalar, tuple[ast.EnumValue, ...] | None, int | None]:
        if self.kinds[self.i] == "[":
            raise self.error("a list cannot hold lists", hint="use a node type and an edge for the inner list")
        if self.texts[self.i] == "Vector":
            raise self.error("a list cannot hold vectors", hint="use a node type with one vector each, and an edge")
        if self.at_word("enum"):
            scalar, values = Scalar.STRING, self._enum()
        else:
            scalar, values = self._scalar(), None
        if self.kinds[self.i] == "?":
            raise self.unexpected("']'", hint="'?' makes the whole list nullable: [String]?")
        return scalar, values, None

    def _scalar(self) -> Scalar:
        kind, text = self.kinds[self.i], self.texts[self.i]
        scalar = WRITTEN_SCALARS.get(text) if kind == "type" else None
        if scalar is None:
            raise self._no_type(kind, text)
        self.i += 1
        return scalar

    def _no_type(self, kind: str, text: str) -> ParseError:
        if kind == "?":
            return self.unexpected("a type", hint="'?' comes after the type: String?")
        if kind not in ("type", "name"):
            return self.unexpected("a type")
        alias = TYPE_ALIASES.get(text.lower())
        hint = f"write {alias}" if alias else did_you_mean(text, TYPE_WORDS)
        if hint is None and kind == "type":
            hint = "a property holds values; connect two node types with an edge"
        return self.error(f"'{text}' is not a property type", hint=hint)

    def _vector(self) -> int:
        self.i += 1
        self.expect("(", "'(' and the dimension (Vector(384))")
        dim = self._integer("the dimension of the vector")
        self.expect(")")
        return dim

    def _enum(self) -> tuple[ast.EnumValue, ...]:
        self.i += 1
        self.expect("(", "'(' and the values (enum(open, closed))")
        if self.kinds[self.i] == ")":
            raise self.error("an enum needs at least one value")
        values = [self._enum_value()]
        while self.accept(","):
            values.append(self._enum_value())
        self.expect(")", "',' or ')'")
        return tuple(values)

    def _enum_value(self) -> ast.EnumValue:
        start = self.i
        if self.kinds[start] == "string":
            raise self.unexpected("an enum value", hint="enum values are written without quotes: enum(open, on-hold)")
        if self.kinds[start] == ")":
            raise self.unexpected("an enum value", hint="remove the comma before ')'")
        text = self._word("an enum value (letters, digits, '_' and '-')")
        return ast.EnumValue(text, self._annotations(), self.span_from(start))

    # ---- constraints ----

    def _constraint(self) -> ast.Constraint:
        start = self.i
        word = self.texts[start]
        self.i += 2
        return _CONSTRAINTS[word](self, start)

    def _key(self, start: int) -> ast.KeyConstraint:
        fields = self._names("key")
        self.expect(")", "',' or ')'")
        return ast.KeyConstraint(fields, self.span_from(start))

    def _unique(self, start: int) -> ast.UniqueConstraint:
        fields = self._names("unique")
        self.expect(")", "',' or ')'")
        return ast.UniqueConstraint(fields, self.span_from(start))

    def _index(self, start: int) -> ast.IndexConstraint:
        fields = [self._field("index")]
        options: list[ast.Argument] = []
        while self.accept(","):
            if options or self._at_argument():
                options.append(self._argument())
            else:
                fields.append(self._field("index"))
        self.expect(")", "',' or ')'")
        return ast.IndexConstraint(tuple(fields), tuple(options), self.span_from(start))

    def _names(self, word: str) -> tuple[ast.Name, ...]:
        names = [self._field(word)]
        while self.accept(","):
            names.append(self._field(word))
        return tuple(names)

    def _field(self, word: str) -> ast.Name:
        index = self.i
        if self.kinds[index] == "string":
            raise self.unexpected("a property name", hint=f"property names are written without quotes: @{word}(name)")
        if self.kinds[index] == ")":
            empty = self.kinds[index - 1] == "("
            hint = f"after a property write @{word} without parentheses" if empty else "remove the comma before ')'"
            raise self.unexpected("a property name", hint=hint)
        if word == "range" and self.kinds[index] in ("int", "float", "-", ".."):
            raise self.unexpected("a property name", hint="name the property: @range(age, 0..100)")
        return ast.Name(self.expect("name", "a property name"), self.tokens.span(index))

    def _range(self, start: int) -> ast.RangeConstraint:
        name = self._field("range")
        self.expect(",", "',' and the bounds (@range(p, 0..100))")
        least = None if self.kinds[self.i] == ".." else self._bound()
        self.expect("..", "'..' between the bounds (0..100, 0.., ..100)")
        most = None
        if least is None or self.kinds[self.i] != ")":
            most = self._bound()
        self.expect(")")
        return ast.RangeConstraint(name, least, most, self.span_from(start))

    def _bound(self) -> ast.Literal:
        if self.kinds[self.i] not in ("-", "int", "float"):
            raise self.unexpected("a number", hint="bounds are numbers: @range(p, 0..100), @range(p, ..-1.5)")
        return self._number()

    def _check(self, start: int) -> ast.CheckConstraint:
        name = self._field("check")
        self.expect(",", "',' and the pattern (@check(p, \"^[a-z]+$\"))")
        index = self.i
        pattern = self.expect_string("the pattern, a string")
        literal = ast.Literal(LiteralKind.STRING, pattern, self.tokens.span(index))
        self.expect(")")
        return ast.CheckConstraint(name, literal, self.span_from(start))


_CONSTRAINTS: dict[str, Callable[[_SchemaParser, int], ast.Constraint]] = {
    "key": _SchemaParser._key,
    "unique": _SchemaParser._unique,
    "index": _SchemaParser._index,
    "range": _SchemaParser._range,
    "check": _SchemaParser._check,
}
