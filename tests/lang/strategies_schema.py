"""Generated schemas: trees that follow the grammar, and texts that compile."""

from __future__ import annotations

import re

from hypothesis import assume
from hypothesis import strategies as st

from omnigraph.lang.schema import ast, check_schema
from omnigraph.lang.schema.ast import LiteralKind
from omnigraph.lang.tokens import read_source, schema_tokens
from omnigraph.lang.types import WRITTEN_SCALARS, Scalar

# ---- trees: everything that the grammar allows, valid or not ----

type_names = st.from_regex(re.compile(r"[A-Z][A-Za-z0-9_]{0,5}", re.ASCII), fullmatch=True).map(ast.Name)
property_names = st.from_regex(re.compile(r"[a-z_][A-Za-z0-9_]{0,5}", re.ASCII), fullmatch=True).map(ast.Name)
words = st.from_regex(re.compile(r"[A-Za-z0-9_-]{1,6}", re.ASCII), fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)

_digits = st.from_regex(re.compile(r"[0-9]{1,6}", re.ASCII), fullmatch=True)
_strings = texts.map(lambda text: ast.Literal(LiteralKind.STRING, text))
_ints = _digits.map(lambda text: ast.Literal(LiteralKind.INT, text))
_floats = st.tuples(_digits, _digits).map(lambda parts: ast.Literal(LiteralKind.FLOAT, ".".join(parts)))
_bools = st.sampled_from(["true", "false"]).map(lambda text: ast.Literal(LiteralKind.BOOL, text))
literals = st.one_of(_strings, _ints, _floats, _bools)
_bare = property_names.filter(lambda name: name.text not in ("true", "false")).map(
    lambda name: ast.Literal(LiteralKind.WORD, name.text)
)
_signed = st.tuples(st.sampled_from(["", "-"]), st.one_of(_ints, _floats)).map(
    lambda parts: ast.Literal(parts[1].kind, parts[0] + parts[1].text)
)
_now = st.just(ast.Literal(LiteralKind.NOW, "now"))
_codes = st.one_of(words.map(lambda text: ast.Literal(LiteralKind.WORD, text)), _strings)
_arguments = st.builds(ast.Argument, property_names.map(lambda name: name.text), literals)
_default_values = st.one_of(literals, _bare, _signed, _now)
_argument_lists = st.lists(_arguments, max_size=2).map(tuple)

_special = ("key", "unique", "index", "range", "check", "card", "card_in", "default", "allow")
_plain_annotations = property_names.filter(lambda name: name.text not in _special).flatmap(
    lambda name: st.one_of(
        st.just(ast.Annotation(name.text)),
        st.builds(ast.Annotation, st.just(name.text), st.tuples(st.one_of(literals, _bare)), _argument_lists),
    )
)
written_annotations: st.SearchStrategy[ast.Annotation] = st.one_of(
    _plain_annotations,
    st.sampled_from(["key", "unique", "index", "description", "embed", "default", "allow"]).map(ast.Annotation),
    st.builds(
        ast.Annotation,
        st.sampled_from(["key", "unique", "index", "range", "check"]),
        st.tuples(st.one_of(literals, _bare)),
        _argument_lists,
    ),
    st.builds(ast.Annotation, st.just("default"), st.tuples(_default_values), _argument_lists),
    st.builds(
        ast.Annotation, st.just("allow"), st.one_of(st.tuples(_codes), st.tuples(_codes, _strings)), _argument_lists
    ),
)
_annotation_lists = st.lists(written_annotations, max_size=2).map(tuple)

enum_values = st.lists(st.builds(ast.EnumValue, words, _annotation_lists), min_size=1, max_size=4).map(tuple)
_scalars = st.sampled_from(sorted(WRITTEN_SCALARS.values()))
types = st.one_of(
    st.builds(ast.TypeExpression, _scalars, st.booleans(), st.booleans()),
    st.builds(ast.TypeExpression, st.just(Scalar.STRING), st.booleans(), st.booleans(), enum_values),
    st.builds(
        ast.TypeExpression,
        st.just(Scalar.VECTOR),
        st.booleans(),
        st.just(False),
        st.none(),
        st.integers(0, 10**12),
    ),
)
properties = st.builds(ast.Property, property_names, types, _annotation_lists)

_fields = st.lists(property_names, min_size=1, max_size=3).map(tuple)
_bounds = st.tuples(st.none() | _signed, st.none() | _signed).filter(lambda bounds: bounds != (None, None))
constraints: st.SearchStrategy[ast.Constraint] = st.one_of(
    st.builds(ast.KeyConstraint, _fields),
    st.builds(ast.UniqueConstraint, _fields),
    st.builds(ast.IndexConstraint, _fields, _argument_lists),
    st.builds(lambda name, bounds: ast.RangeConstraint(name, *bounds), property_names, _bounds),
    st.builds(ast.CheckConstraint, property_names, _strings),
)
_members = st.lists(st.one_of(properties, constraints), max_size=4).map(tuple)
_cards = st.none() | st.builds(ast.Cardinality, st.integers(0, 10**10), st.none() | st.integers(0, 10**10))

trees: st.SearchStrategy[ast.Schema] = st.builds(
    ast.Schema,
    st.lists(
        st.one_of(
            st.builds(ast.Interface, type_names, st.lists(properties, max_size=3).map(tuple)),
            st.builds(ast.Node, type_names, _annotation_lists, st.lists(type_names, max_size=2).map(tuple), _members),
            st.builds(ast.Edge, type_names, type_names, type_names, _cards, _cards, _annotation_lists, _members),
        ),
        max_size=4,
    ).map(tuple),
)
"""Trees of every shape that the parser can produce."""


# ---- texts with comments ----

_comments = st.sampled_from(
    ["/* c%d */", "// c%d\n", "/* c%d\n   goes on */", "\n// c%d\n", "\n\n/* c%d */\n\n", " // c%d // more\r\n", "\n\n"]
)


@st.composite
def commented(draw: st.DrawFn, text: str) -> str:
    """A text with comments and blank lines between its tokens."""
    tokens = schema_tokens(read_source(text))
    data = text.encode()
    pieces = []
    last = number = 0
    for start, end in zip(tokens.starts[:-1], tokens.ends[:-1], strict=True):
        gap = data[last:start].decode()
        # The tokens of one enum value are adjacent, and nothing may be inserted between them.
        if (gap or last == 0) and draw(st.integers(0, 4)) == 0:
            for comment in draw(st.lists(_comments, min_size=1, max_size=2)):
                gap += comment % number if "%" in comment else comment
                number += 1
        pieces.append(gap + data[start:end].decode())
        last = end
    return "".join(pieces) + draw(st.sampled_from(["", "\n", " // end", "\n\n/* end */"]))


# ---- schemas that compile ----

_coin = st.booleans()
_ENUMS = ["enum(a, b)", "enum(a, b, c)", "enum(b, c)", 'enum(a, d @rename_from("b"))', "[enum(a, b)]"]
_PLAIN = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime"]
_DEFAULTS = {"String": '"x"', "Bool": "true", "I32": "-3", "I64": "4", "F32": "0.5", "F64": "1", "DateTime": "now()"}
_NODES = ["A", "B", "C", "D"]
_EDGES = ["E", "F", "G"]
_KEYS: list[list[str]] = [[], ["k: String @key"], ["k: F32", "l: U64", "@key(k, l)"], ["k: enum(a, b) @key"]]
_CARDINALITIES = ["", " @card(0..1)", " @card(1..)", " @card_in(0..3)", " @card(0..2) @card_in(1..)"]
_PROPERTIES = ["p", "q", "r", "s", "t"]


@st.composite
def _property(draw: st.DrawFn, name: str) -> str:
    """A property line without constraints; these are in the body, where they cannot conflict."""
    kind = draw(st.sampled_from(["plain", "plain", "plain", "list", "enum", "vector", "blob"]))
    base = {
        "plain": draw(st.sampled_from(_PLAIN)),
        "list": f"[{draw(st.sampled_from(_PLAIN))}]",
        "enum": draw(st.sampled_from(_ENUMS)),
        "vector": f"Vector({draw(st.sampled_from([2, 3]))})",
        "blob": "Blob",
    }[kind]
    line = f"{name}: {base}{draw(st.sampled_from(['', '?', '?']))}"
    if kind == "plain" and base in _DEFAULTS and draw(_coin):
        line += f" @default({_DEFAULTS[base]})"
    if kind in ("plain", "vector", "enum") and not base.startswith("["):
        line += draw(st.sampled_from(["", "", " @index"]))
    if kind == "plain":
        line += draw(st.sampled_from(["", "", " @unique"]))
    line += draw(st.sampled_from(["", "", ' @description("d")', ' @note(x, k="v")', ' @allow(OG-DS-104, "fine")']))
    return line + draw(st.sampled_from(["", "", f' @rename_from("{draw(st.sampled_from(_PROPERTIES))}")']))


@st.composite
def _body(draw: st.DrawFn) -> list[str]:
    names = draw(st.lists(st.sampled_from(_PROPERTIES), unique=True, max_size=4))
    lines: list[str] = [draw(_property(name)) for name in names]
    written = list(zip(names, lines, strict=True))
    numbers = [name for name, line in written if re.match(r"\w+: [IUF]\d\d", line)]
    if draw(_coin) and numbers:
        low = draw(st.integers(-9, -4))
        lines.append(f"@range({draw(st.sampled_from(numbers))}, {low}..{draw(st.integers(4, 9))})")
    strings = [name for name, line in written if re.match(r"\w+: String", line)]
    if draw(_coin) and strings:
        lines.append(f'@check({draw(st.sampled_from(strings))}, "{draw(st.sampled_from(["x", "^x", "x?"]))}")')
    return lines


@st.composite
def valid_schemas(draw: st.DrawFn) -> str:
    """A text that compiles. There are few names, so that two texts are two versions of one schema."""
    nodes = draw(st.lists(st.sampled_from(_NODES), unique=True, min_size=1, max_size=3))
    parts = []
    interface = draw(st.booleans())
    if interface:
        parts.append(f"interface I {{ label: String{draw(st.sampled_from(['', '?']))} @index }}")
    for name in nodes:
        head = f"node {name}"
        if draw(st.integers(0, 3)) == 0:
            head += f' @rename_from("{draw(st.sampled_from(_NODES))}")'
        if interface and draw(_coin):
            head += " implements I"
        key = draw(st.sampled_from(_KEYS))
        parts.append("\n    ".join([head + " {", *key, *draw(_body())]) + "\n}")
    for name in draw(st.lists(st.sampled_from(_EDGES), unique=True, max_size=2)):
        head = f"edge {name}: {draw(st.sampled_from(nodes))} -> {draw(st.sampled_from(nodes))}"
        head += draw(st.sampled_from(_CARDINALITIES))
        ends = draw(st.sampled_from([[], ["@key(src, dst)"], ["@unique(src, dst)"], ["@index(src)"]]))
        parts.append("\n    ".join([head + " {", *ends, *draw(_body())]) + "\n}")
    return "\n".join(parts) + "\n"


@st.composite
def schema_pairs(draw: st.DrawFn) -> tuple[str, str]:
    """Two versions of one schema that differ in a few lines, as in practice."""
    before = draw(valid_schemas())
    lines = before.split("\n")
    for _ in range(draw(st.integers(1, 3))):
        places = [i for i, line in enumerate(lines) if re.match(r"    [a-z]\w*: ", line)]
        if not places:
            break
        i = draw(st.sampled_from(places))
        name = lines[i].split(":")[0].strip()
        match draw(st.sampled_from(["drop", "nullable", "required", "type", "rename", "note"])):
            case "drop":
                lines = [line for j, line in enumerate(lines) if j != i and not re.search(rf"[(, ]{name}[,)]", line)]
            case "nullable":
                lines[i] = re.sub(r"^(    \w+: (?:\[?enum\([^)]*\)\]?|[^ ?]+))", r"\1?", lines[i]).replace("??", "?")
            case "required":
                lines[i] = lines[i].replace("?", "", 1)
            case "type":
                lines[i] = re.sub(r": [IUF]\d\d", f": {draw(st.sampled_from(_PLAIN))}", lines[i])
            case "rename":
                renamed = [re.sub(rf"(?<=[(, ]){name}(?=[,):])", "new_" + name, line) for line in lines]
                renamed[i] = re.sub(r' @rename_from\("\w+"\)$', "", renamed[i]) + f' @rename_from("{name}")'
                lines = renamed
            case "note":
                lines[i] += ' @remark("x")'
    after = "\n".join(lines)
    assume(not check_schema(after))
    return before, after
