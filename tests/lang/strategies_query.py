"""Syntax trees of query files over the whole grammar: exactly the trees that the parser can produce."""

from __future__ import annotations

import string
from dataclasses import dataclass

from hypothesis import strategies as st

from omnigraph.lang.functions import AGGREGATES
from omnigraph.lang.query import ast
from omnigraph.lang.query.ast import LiteralKind
from omnigraph.lang.query.expressions import BLOCK_VALUES, COMPARISONS
from omnigraph.lang.types import MAX_VECTOR_DIM, WRITTEN_SCALARS, Scalar, ValueType

WORDS = (
    *("query", "match", "return", "distinct", "having", "order", "limit", "offset", "optional", "shortest"),
    *("not", "and", "or", "in", "is", "contains", "starts_with", "ends_with", "matches", "null", "true", "false"),
    *("as", "asc", "desc", "nulls", "first", "last", "now", "date", "datetime", "count", "sum", "collect", "type"),
    *("insert", "create", "merge", "update", "delete", "set", "where", "node", "edge", "enum", "description"),
    *("nearest", "bm25", "rrf", "search", "fuzzy", "match_text", "length", "k", "all", "id", "from", "to"),
)
"""Every word of the language. None is reserved."""

NOT_BARE = frozenset({"not", "true", "false", "null"})
"""Words with another meaning at the position of a bare name."""

_NAME_START = string.ascii_lowercase + "_"
_NAME_REST = string.ascii_letters + string.digits + "_"


def _identifier(first: str) -> st.SearchStrategy[str]:
    return st.builds(str.__add__, st.sampled_from(first), st.text(_NAME_REST, max_size=6))


NAMES = st.sampled_from(WORDS) | _identifier(_NAME_START)
TYPE_NAMES = st.sampled_from(("Vector", "String", "Date", "Paper")) | _identifier(string.ascii_uppercase)


@dataclass(frozen=True)
class Vocabulary:
    """The names of the trees: arbitrary ones, or few that exist in a schema."""

    names: st.SearchStrategy[str] = NAMES
    types: st.SearchStrategy[str] = TYPE_NAMES
    variables: st.SearchStrategy[str] = NAMES | st.just(ast.ANONYMOUS)
    edge_words: st.SearchStrategy[str] = NAMES
    functions: st.SearchStrategy[str] = NAMES

    @staticmethod
    def of(
        names: list[str], types: list[str], variables: list[str], edge_words: list[str], functions: list[str]
    ) -> Vocabulary:
        pick = st.sampled_from
        return Vocabulary(pick(names), pick(types), pick(variables), pick(edge_words), pick(functions))


# ---- literals

STRINGS = st.text(max_size=8) | st.sampled_from(
    ('"', "\\", "\n\r\t", "// no comment", "/* none */", "*/", "\\n", "ß\u2028\U0001f600", "\0", "{ } ) (", "$x")
)
INTEGERS = st.integers(-99, 99) | st.integers(-(10**40) + 1, 10**40 - 1) | st.sampled_from((2**63, -(2**63), 2**64))
FLOATS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from((-0.0, 1e308, 5e-324, 1e16, -1e-7))
TIMES = st.sampled_from(("2026-03-14", "2026-03-14T09:30:00Z", "0001-01-01T00:00:00+23:59", "soon", "")) | STRINGS


def _literal(kind: LiteralKind, values: st.SearchStrategy[object]) -> st.SearchStrategy[ast.Literal]:
    return values.map(lambda value: ast.Literal(kind, value))  # type: ignore[arg-type]


LITERALS = st.one_of(
    _literal(LiteralKind.STRING, STRINGS),
    _literal(LiteralKind.INT, INTEGERS),
    _literal(LiteralKind.FLOAT, FLOATS),
    _literal(LiteralKind.BOOL, st.booleans()),
    _literal(LiteralKind.NULL, st.none()),
    _literal(LiteralKind.DATE, TIMES),
    _literal(LiteralKind.DATETIME, TIMES),
)
LISTS = st.recursive(
    st.lists(LITERALS, max_size=4).map(lambda items: ast.ListLiteral(tuple(items))),
    lambda inner: st.lists(LITERALS | inner, max_size=3).map(lambda items: ast.ListLiteral(tuple(items))),
    max_leaves=3,
)
WRITTEN = LITERALS | LISTS
NOW = st.just(ast.Now())


# ---- expressions

_OPERATORS = (*sorted(COMPARISONS), "contains", "starts_with", "ends_with", "matches")
_SYNTAX_CALLS = AGGREGATES | {"now", "date", "datetime", "not"}


def expressions(vocabulary: Vocabulary, *, in_where: bool = False, leaves: int = 6) -> st.SearchStrategy[ast.Expr]:
    """Expressions. In a `where`, constants such as `true` can be names of compared properties."""
    bare = vocabulary.names.filter(lambda name: name not in NOT_BARE).map(ast.Name)
    leaf: st.SearchStrategy[ast.Expr] = st.one_of(
        WRITTEN,
        vocabulary.variables.map(ast.Var),
        st.builds(ast.Access, vocabulary.variables, vocabulary.names | st.just("*")),
        bare,
        NOW,
    )
    compared = st.sampled_from(sorted(NOT_BARE) if in_where else ["not"]).map(ast.Name)

    def extend(inner: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Expr]:
        arguments = st.lists(inner, max_size=3).map(tuple)
        options = st.lists(st.tuples(vocabulary.names, inner), max_size=2).map(tuple)
        functions = vocabulary.functions.filter(lambda name: name not in _SYNTAX_CALLS)
        held = st.lists(_simple_clauses(vocabulary, inner), min_size=1, max_size=2).map(tuple)
        return st.one_of(
            st.builds(ast.BlockValue, st.sampled_from(sorted(BLOCK_VALUES)), held),
            st.builds(ast.Call, functions, arguments, st.just(()) | options),
            st.builds(ast.Aggregate, st.sampled_from(sorted(AGGREGATES)), inner, st.booleans()),
            st.just(ast.Aggregate("count", None)),
            st.builds(ast.Negate, inner),
            st.builds(ast.Arithmetic, st.sampled_from("+-*/%"), inner, inner),
            st.builds(ast.Comparison, st.sampled_from(_OPERATORS), inner, inner),
            st.builds(ast.Comparison, st.sampled_from(sorted(COMPARISONS)), compared, inner),
            st.builds(ast.Membership, inner, inner, st.booleans()),
            st.builds(ast.NullTest, inner, st.booleans()),
            st.builds(ast.Not, inner),
            st.builds(ast.Logical, st.sampled_from(("and", "or")), st.lists(inner, min_size=2, max_size=4).map(tuple)),
        )

    return st.recursive(leaf, extend, max_leaves=leaves)


# ---- match

_COUNTS = st.integers(0, 12) | st.integers(0, 999_999_999)


def _assigns(vocabulary: Vocabulary, least: int) -> st.SearchStrategy[tuple[ast.Assign, ...]]:
    values: st.SearchStrategy[ast.Value] = WRITTEN | vocabulary.variables.map(ast.Var) | NOW
    return st.lists(st.builds(ast.Assign, vocabulary.names, values), min_size=least, max_size=3).map(tuple)


def _simple_clauses(vocabulary: Vocabulary, expr: st.SearchStrategy[ast.Expr]) -> st.SearchStrategy[ast.Clause]:
    """Clauses without blocks. `expr` are the filters."""
    variables = vocabulary.variables
    pattern = st.builds(ast.Pattern, variables, vocabulary.types, st.just(()) | _assigns(vocabulary, 1))
    words = st.lists(vocabulary.edge_words.filter(lambda word: word != "not"), max_size=3).map(tuple)
    traversal = st.builds(
        ast.Traversal,
        variables.map(ast.Var),
        words,
        variables.map(ast.Var),
        st.booleans(),
        st.none() | variables,
        st.none() | st.builds(ast.Hops, _COUNTS, st.none() | _COUNTS),
        st.none() | variables,
    )
    return pattern | traversal | st.builds(ast.Filter, expr)


def clauses(vocabulary: Vocabulary) -> st.SearchStrategy[tuple[ast.Clause, ...]]:
    """The clauses of one block."""
    simple = _simple_clauses(vocabulary, expressions(vocabulary))

    def blocks(inner: st.SearchStrategy[ast.Clause]) -> st.SearchStrategy[ast.Clause]:
        held = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.builds(ast.Negation, held) | st.builds(ast.Optional, held)

    clause = st.recursive(simple, blocks, max_leaves=4)
    return st.lists(clause, min_size=1, max_size=4).map(tuple)


# ---- queries


def reads(vocabulary: Vocabulary) -> st.SearchStrategy[ast.Read]:
    expr = expressions(vocabulary)
    projections = st.lists(st.builds(ast.Projection, expr, st.none() | vocabulary.names), min_size=1, max_size=4)
    either = st.none() | st.booleans()
    count: st.SearchStrategy[ast.Literal | ast.Var | None] = st.one_of(
        st.none(),
        vocabulary.variables.map(ast.Var),
        (st.integers(0, 50) | st.integers(0, 10**40 - 1)).map(lambda n: ast.Literal(LiteralKind.INT, n)),
    )
    having = st.lists(st.builds(ast.Filter, expr), max_size=2).map(tuple)
    order = st.lists(st.builds(ast.Sort, expr, either, either), max_size=3).map(tuple)
    listed, match = projections.map(tuple), clauses(vocabulary)
    plain = st.builds(ast.Read, match, listed, st.booleans(), having, order, count, count)
    first = st.builds(ast.Stage, match, listed, having, order, count)
    later = st.builds(ast.Stage, st.just(()) | match, listed, having, order, count)
    stages = st.tuples(first, st.lists(later, max_size=1)).map(lambda parts: (parts[0], *parts[1]))
    staged = st.builds(ast.Read, st.just(()) | match, listed, st.booleans(), having, order, count, count, stages)
    return plain | staged


def writes(vocabulary: Vocabulary) -> st.SearchStrategy[ast.Write]:
    kind = st.sampled_from((None, None, "node", "edge"))
    where = expressions(vocabulary, in_where=True)
    statement: st.SearchStrategy[ast.Statement] = st.one_of(
        st.builds(ast.Insert, st.sampled_from(ast.InsertMode), vocabulary.types, _assigns(vocabulary, 0), kind),
        st.builds(ast.Update, vocabulary.types, _assigns(vocabulary, 0), where, kind),
        st.builds(ast.Delete, vocabulary.types, where, kind),
    )
    return st.lists(statement, min_size=1, max_size=3).map(lambda made: ast.Write(tuple(made)))


def params(vocabulary: Vocabulary) -> st.SearchStrategy[tuple[ast.Param, ...]]:
    scalar = st.sampled_from(sorted(WRITTEN_SCALARS.values()))
    dims = st.sampled_from((1, 3, 64, MAX_VECTOR_DIM))
    kind: st.SearchStrategy[ValueType | ast.EnumOf] = st.one_of(
        st.builds(ValueType, scalar, st.booleans(), st.booleans()),
        st.builds(lambda dim, null: ValueType(Scalar.VECTOR, null, dim=dim), dims, st.booleans()),
        st.builds(ast.EnumOf, vocabulary.types, vocabulary.names, st.booleans()),
    )
    return st.lists(st.builds(ast.Param, vocabulary.variables, kind, st.none() | WRITTEN), max_size=3).map(tuple)


def queries(vocabulary: Vocabulary) -> st.SearchStrategy[ast.Query]:
    note = st.none() | STRINGS | st.just("word " * 30)
    body: st.SearchStrategy[ast.Read | ast.Write] = reads(vocabulary) | writes(vocabulary)
    return st.builds(ast.Query, vocabulary.names, params(vocabulary), body, note, note)


def query_files(vocabulary: Vocabulary | None = None, *, most: int = 2) -> st.SearchStrategy[ast.QueryFile]:
    """Whole files, by default with every name that the grammar allows."""
    made = queries(vocabulary or Vocabulary())
    return st.lists(made, max_size=most).map(lambda found: ast.QueryFile(tuple(found)))
