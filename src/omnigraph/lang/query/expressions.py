"""Parser of values and expressions. It uses precedence climbing, so only parentheses add recursion depth."""

from __future__ import annotations

import math

from omnigraph.errors import ParseError
from omnigraph.lang.cursor import Cursor
from omnigraph.lang.functions import AGGREGATES, FUNCTIONS
from omnigraph.lang.query import ast
from omnigraph.lang.query.ast import LiteralKind
from omnigraph.lang.tokens import Tokens

COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})

_OR, _AND, _NOT, _COMPARE, _ADD, _MULTIPLY = range(1, 7)

_OPERATORS: dict[str, int] = dict.fromkeys(COMPARISONS, _COMPARE) | {
    "+": _ADD,
    "-": _ADD,
    "*": _MULTIPLY,
    "/": _MULTIPLY,
    "%": _MULTIPLY,
}
_WORDS: dict[str, int] = {
    "or": _OR,
    "and": _AND,
    "contains": _COMPARE,
    "starts_with": _COMPARE,
    "ends_with": _COMPARE,
    "matches": _COMPARE,
    "in": _COMPARE,
    "is": _COMPARE,
}
OPERATOR_WORDS = frozenset(_WORDS)

_LOWER_CASE = OPERATOR_WORDS | {
    *("query", "match", "exists", "return", "distinct", "having", "order", "limit", "offset", "optional", "shortest"),
    *("as", "asc", "desc", "nulls", "not", "null", "true", "false", "where", "set", "with"),
}
"""Keywords that other languages write in upper case."""

_CONSTANTS: dict[str, tuple[LiteralKind, bool | None]] = {
    "true": (LiteralKind.BOOL, True),
    "false": (LiteralKind.BOOL, False),
    "null": (LiteralKind.NULL, None),
}

BLOCK_VALUES = frozenset({"exists", "count"})
"""The words before a block whose result is a value."""

_MAX_INT_DIGITS = 40
"""Maximum number of digits of an integer literal. No type can hold more digits. The checker tests the exact range."""

MAX_MATCHES = 200
"""Maximum number of conditions with `matches` in a text. Compiling a pattern can take a tenth of a second."""


class ExpressionParser(Cursor):
    """The part of the query parser for values and expressions."""

    __slots__ = ("_matches", "in_where")

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens)
        self.in_where = False
        """Whether the parser is in a `where`. There, a name before a comparison is a property, even `true` or `not`."""
        self._matches = 0

    def unexpected(self, expected: str, *, words: list[str] | None = None, hint: str | None = None) -> ParseError:
        text = self.texts[self.i]
        if hint is None and text.isupper() and text.lower() in _LOWER_CASE:
            hint = f"write '{text.lower()}'"
        return super().unexpected(expected, words=words, hint=hint)

    def expression(self, level: int = _OR) -> ast.Expr:
        """Parse an expression whose operators have at least the precedence `level`."""
        self.descend()
        entered = self.depth
        start = self.i
        left = self._operand()
        while (binding := self._binding()) >= level:
            if binding <= _AND:
                left = self._logical(left, start, binding)
            elif binding == _COMPARE:
                left = self._comparison(left, start)
                if self._binding() == _COMPARE:
                    raise self.error("comparisons do not chain", hint="join two comparisons with 'and'")
            else:
                op = self.kinds[self.i]
                self.i += 1
                right = self.expression(binding + 1)
                left = ast.Arithmetic(op, left, right, self.span_from(start))
                self.descend()  # each operator of a chain such as a + b + c adds a level to the tree
        self.depth = entered - 1
        return left

    def _binding(self) -> int:
        """The precedence of the next token as an operator; 0 if it is not an operator."""
        i = self.i
        kind = self.kinds[i]
        if kind != "name":
            return _OPERATORS.get(kind, 0)
        text = self.texts[i]
        if text == "not":
            return _COMPARE if self.texts[i + 1] == "in" and self.kinds[i + 1] == "name" else 0
        return _WORDS.get(text, 0)

    def _logical(self, first: ast.Expr, start: int, binding: int) -> ast.Expr:
        word = "or" if binding == _OR else "and"
        operands = [first]
        while self.accept_word(word):
            operands.append(self.expression(binding + 1))
        return ast.Logical(word, tuple(operands), self.span_from(start))

    def _comparison(self, left: ast.Expr, start: int) -> ast.Expr:
        op = self.texts[self.i]
        self.i += 1
        if op == "is":
            negated = self.accept_word("not")
            if not self.at_word("null"):
                raise self.unexpected("'null'", words=["null"], hint=f"equality is written {'!=' if negated else '='}")
            self.i += 1
            return ast.NullTest(left, negated, self.span_from(start))
        if op in ("in", "not"):
            if op == "not":
                self.i += 1
            right = self.expression(_COMPARE + 1)
            return ast.Membership(left, right, op == "not", self.span_from(start))
        if op == "matches":
            self._matches += 1
            if self._matches > MAX_MATCHES:
                raise self.error(
                    f"more than {MAX_MATCHES} conditions with 'matches'", hint="join patterns with |, or split the text"
                )
        right = self.expression(_COMPARE + 1)
        return ast.Comparison(op, left, right, self.span_from(start))

    def _operand(self) -> ast.Expr:
        i = self.i
        kind = self.kinds[i]
        if kind == "var":
            self.i = i + 1
            return self._access(i) if self.kinds[i + 1] == "." else self._var(i)
        if kind == "name":
            return self._word()
        if kind == "(":
            self.i = i + 1
            inner = self.expression()
            if self.kinds[self.i] != ")":
                raise self.unexpected("')'", hint=self._parenthesis_hint(inner))
            self.i += 1
            return inner
        if kind == "-":
            self.i = i + 1
            if self.kinds[i + 1] in ("int", "float"):
                return self._number(negative=True)
            return ast.Negate(self.expression(_MULTIPLY + 1), self.span_from(i))
        literal = self._literal()
        if literal is None:
            raise self.unexpected("a value or an expression", hint=self._operand_hint())
        return literal

    def _parenthesis_hint(self, inner: ast.Expr) -> str | None:
        """A hint for a parenthesis that is not closed after an expression."""
        if self.kinds[self.i] == ",":
            return "a list is written in brackets: [a, b]"
        if self.kinds[self.i] == ":" and isinstance(inner, ast.Name | ast.Var):
            return f"a node is written without parentheses: ${inner.name}: Type"
        return None

    def _operand_hint(self) -> str | None:
        """A hint for a token that cannot start a value."""
        i = self.i
        kind, before = self.kinds[i], self.kinds[i - 1]
        if kind == ".":
            if "int" in (before, self.kinds[i + 1]):
                return "a number has digits on both sides of its point: 0.5"
            return "a property belongs to a variable: $name.property"
        if kind == "=" and before == "=":
            return "equality is written with one ="
        if kind == ">" and before == "<":
            return "'differs from' is written !="
        if kind == ">" and before == "-":
            return "a traversal names its edge: $a edge $b"
        if kind == "*" and before in ("{", ","):
            return "$name.* returns all properties of $name"
        if kind == "|":
            return "write 'or'; alternative edges are written in parentheses: (a | b)"
        return None

    def _var(self, index: int) -> ast.Var:
        return ast.Var(self.texts[index][1:], self.tokens.span(index))

    def _access(self, index: int) -> ast.Access:
        self.i = index + 2
        if self.kinds[self.i] == "*":
            self.i += 1
            prop = "*"
        else:
            prop = self.expect("name", "a property name or *")
        return ast.Access(self.texts[index][1:], prop, self.span_from(index), self.tokens.span(self.i - 1))

    def _word(self) -> ast.Expr:
        """Parse an operand that starts with a word: a constant, a function, `not`, or a bare name."""
        i = self.i
        text, after = self.texts[i], self.kinds[i + 1]
        if after == "{" and text in BLOCK_VALUES:
            self.i = i + 1
            return ast.BlockValue(text, self.block(), self.span_from(i))
        # White space is allowed between a function name and "(". After another name and a space, "(" starts a filter.
        if after == "(" and text != "not" and (self.ends[i] == self.starts[i + 1] or text in FUNCTIONS):
            return self._call()
        if self.in_where and after in COMPARISONS:
            self.i = i + 1
            return ast.Name(text, self.tokens.span(i))
        if text == "not" and after not in COMPARISONS:
            if after == "{":
                raise self.error(
                    "'not { … }' is a clause of its own, not part of an expression",
                    hint="write 'not exists { … }', or 'not (…)' to negate an expression",
                )
            self.i = i + 1
            return ast.Not(self.expression(_NOT), self.span_from(i))
        self.i = i + 1
        if text in _CONSTANTS:
            constant, value = _CONSTANTS[text]
            return ast.Literal(constant, value, self.tokens.span(i))
        return ast.Name(text, self.tokens.span(i))

    def block(self) -> tuple[ast.Clause, ...]:
        """Parse the clauses between two braces. The parser of clauses implements it."""
        raise NotImplementedError

    def _call(self) -> ast.Expr:
        start = self.i
        name = self.texts[start]
        self.i = start + 2
        if name in ("date", "datetime"):
            if self.kinds[self.i] in ("int", "float", "var"):
                raise self.unexpected(f"the text of a {name}, as a string", hint=self._time_hint(name))
            text = self.expect_string(f"the text of a {name}, as a string")
            self.expect(")")
            return ast.Literal(LiteralKind(name), text, self.span_from(start))
        if name == "now":
            self.expect(")")
            return ast.Now(self.span_from(start))
        if name in AGGREGATES:
            return self._aggregate(name, start)
        args: list[ast.Expr] = []
        options: list[tuple[str, ast.Expr]] = []
        while self.kinds[self.i] != ")":
            if args or options:
                self.expect(",", "',' or ')'")
            if self.kinds[self.i] == "name" and self.kinds[self.i + 1] == "=":
                option = self.texts[self.i]
                self.i += 2
                options.append((option, self.expression()))
            elif options:
                raise self.error("a positional argument cannot follow a named one")
            else:
                args.append(self.expression())
        self.i += 1
        return ast.Call(name, tuple(args), tuple(options), self.span_from(start))

    def _time_hint(self, name: str) -> str:
        if self.kinds[self.i] == "var":
            return f"declare a parameter with the type {'Date' if name == 'date' else 'DateTime'}"
        return 'write date("2026-03-14")' if name == "date" else 'write datetime("2026-03-14T09:30:00Z")'

    def _aggregate(self, name: str, start: int) -> ast.Aggregate:
        if self.accept("*"):
            if name != "count":
                hint = f"name a property: {name}($v.…)"
                raise self.error(f"only count takes *: {name}(*) has no meaning", span=self.span_from(start), hint=hint)
            self.expect(")")
            return ast.Aggregate(name, None, False, self.span_from(start))
        distinct = self.at_word("distinct") and self.kinds[self.i + 1] != ")"
        if distinct:
            self.i += 1
        if name == "count" and self.kinds[self.i] in (")", "*"):
            hint = "count(distinct $v) counts different nodes" if distinct else "count(*) counts rows"
            raise self.unexpected("a value or an expression", hint=hint)
        arg = self.expression()
        self.expect(")")
        return ast.Aggregate(name, arg, distinct, self.span_from(start))

    def value(self, purpose: str) -> ast.Value:
        """Parse a literal, a parameter or `now()`: the values of matchers and assignments."""
        i = self.i
        kind, text = self.kinds[i], self.texts[i]
        if kind == "var":
            self.i = i + 1
            if self.kinds[i + 1] == ".":
                raise self.unexpected(
                    f"the end of {purpose}", hint="only a literal, a parameter or now() is allowed here"
                )
            return self._var(i)
        if kind == "name" and text == "now" and self.kinds[i + 1] == "(":
            self.i = i + 2
            self.expect(")")
            return ast.Now(self.span_from(i))
        literal = self.literal()
        if literal is None:
            raise self.unexpected(f"{purpose}: a literal, a parameter or now()", hint=self._value_hint())
        return literal

    def _value_hint(self) -> str | None:
        kind, text = self.kinds[self.i], self.texts[self.i]
        if kind not in ("name", "type"):
            return None
        if text.lower() in _CONSTANTS:
            return f"did you mean '{text.lower()}'?"
        if self.kinds[self.i + 1] in ("(", *_OPERATORS):
            return "expressions are not allowed here; compute the value first and pass it as a parameter"
        return 'a text needs double quotes: "…"'

    def literal(self) -> ast.Literal | ast.ListLiteral | None:
        """Parse a literal. None if the next token is not a literal."""
        i = self.i
        kind, text = self.kinds[i], self.texts[i]
        if kind == "-" and self.kinds[i + 1] in ("int", "float"):
            self.i = i + 1
            return self._number(negative=True)
        if kind == "name":
            if text in _CONSTANTS:
                self.i = i + 1
                constant, value = _CONSTANTS[text]
                return ast.Literal(constant, value, self.tokens.span(i))
            if text in ("date", "datetime") and self.kinds[i + 1] == "(":
                made = self._call()
                assert isinstance(made, ast.Literal)
                return made
            return None
        return self._literal()

    def _literal(self) -> ast.Literal | ast.ListLiteral | None:
        i = self.i
        kind = self.kinds[i]
        if kind == "string":
            return ast.Literal(LiteralKind.STRING, self.expect_string(), self.tokens.span(i))
        if kind in ("int", "float"):
            return self._number(negative=False)
        if kind == "[":
            return self._list()
        return None

    def _number(self, *, negative: bool) -> ast.Literal:
        i = self.i
        self.i = i + 1
        text = self.texts[i]
        span = self.span_from(i - 1 if negative else i)
        if self.kinds[i] == "int":
            if len(text) > _MAX_INT_DIGITS:
                raise self.error("this integer fits no type", span=span)
            return ast.Literal(LiteralKind.INT, -int(text) if negative else int(text), span)
        number = float(text)
        if math.isinf(number):
            raise self.error("this number is too large for a float", span=span)
        return ast.Literal(LiteralKind.FLOAT, -number if negative else number, span)

    def _list(self) -> ast.ListLiteral:
        start = self.i
        self.i += 1
        self.descend()
        items: list[ast.Literal | ast.ListLiteral] = []
        while not self.accept("]"):
            if items:
                self.expect(",", "',' or ']'")
            item = self.literal()
            if item is None:
                hint = "pass the whole list as a parameter" if self.kinds[self.i] == "var" else None
                if start and self.kinds[start - 1] == "-":
                    hint = "a traversal names its edge: $a edge $b"
                raise self.unexpected("a literal", hint=hint)
            items.append(item)
        self.ascend()
        return ast.ListLiteral(tuple(items), self.span_from(start))
