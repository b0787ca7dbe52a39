"""The parser of `.gq`: recursive descent from tokens to a syntax tree."""

from __future__ import annotations

from omnigraph.errors import ParseError, SourceText, Span
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.query import ast
from omnigraph.lang.query.expressions import OPERATOR_WORDS, ExpressionParser
from omnigraph.lang.query.foreign_syntax import (
    AFTER_MATCH,
    AFTER_RETURN,
    EXAMPLE,
    OTHER_STATEMENTS,
    OTHER_TYPES,
    SORT_WORDS,
)
from omnigraph.lang.tokens import query_tokens, read_source
from omnigraph.lang.types import MAX_VECTOR_DIM, WRITTEN_SCALARS, Scalar, ValueType

_NO_OPERAND_FOLLOWS = ("}", "end", "string", "int", "float", "[")
"""Tokens that cannot be the right end of a traversal. After a variable and a word, the right end is missing."""

COMMENTS = "comments begin with // or are enclosed in /* */"

_STATEMENTS = ("insert", "create", "merge", "update", "delete")

_NOTES = ("description", "instruction", "deprecated")
"""The annotations of queries."""


def parse_queries(text: str | bytes, name: str | None = None) -> ast.QueryFile:
    """Parse the queries of a `.gq` text.

    Args:
        text: the source, as text or UTF-8 bytes.
        name: the name of the source in errors, usually its path.

    Raises:
        ParseError: the text does not follow the grammar.
    """
    source = read_source(text, name)
    tokens = query_tokens(source)
    parser = QueryParser(tokens)
    try:
        return parser.query_file()
    except RecursionError:
        raise too_deep(source, parser.here()) from None


def too_deep(source: SourceText, span: Span) -> ParseError:
    """The error for a RecursionError below the nesting limit. It occurs if the call stack of the caller is deep."""
    return ParseError("nested too deeply", span=span, source=source)


class QueryParser(ExpressionParser):
    """Recursive descent over the tokens of one text."""

    __slots__ = ()

    def query_file(self) -> ast.QueryFile:
        queries = []
        while self.kinds[self.i] != "end":
            queries.append(self._query())
        return ast.QueryFile(tuple(queries), self.tokens)

    def _query(self) -> ast.Query:
        start = self.i
        if not self.accept_word("query"):
            raise self.unexpected("'query' or the end of the text", hint=self._query_hint())
        name = self.expect("name", "the query's name (lower-case first letter)")
        name_span = self.tokens.span(self.i - 1)
        params = self._params()
        notes: dict[str, str] = {}
        while self.kinds[self.i] == "at":
            self._note(notes)
        body_start = self.i
        self.expect("{")
        body = self._body()
        self.expect("}")
        return ast.Query(
            name,
            params,
            body,
            notes.get("description"),
            notes.get("instruction"),
            notes.get("deprecated"),
            self.span_from(start),
            name_span,
            self.span_from(body_start),
        )

    def _query_hint(self) -> str | None:
        """A hint for a text that does not begin as a query."""
        if self._at_dashes():
            return COMMENTS
        kind, text = self.kinds[self.i], self.texts[self.i]
        if kind == "name" and text in ("node", "edge", "interface"):
            return "this is a schema; a query file has queries"
        near = None
        if kind in ("name", "type") and text.lower() not in ("select", "match", "with", "return", "g"):
            near = did_you_mean(text, ["query", "match", *_STATEMENTS]) or self._other_statement()
        return near if near and near.startswith("did") and text not in _STATEMENTS else EXAMPLE

    def _note(self, notes: dict[str, str]) -> None:
        word = self.texts[self.i]
        if word not in _NOTES:
            raise self.unexpected(
                "'@description', '@instruction', '@deprecated' or '{'", hint=did_you_mean(word, _NOTES)
            )
        if word in notes:
            raise self.error(f"@{word} is given twice")
        self.i += 1
        self.expect("(")
        notes[word] = self.expect_string()
        self.expect(")")

    # Parameters

    def _params(self) -> tuple[ast.Param, ...]:
        if self.kinds[self.i] == "{":
            raise self.unexpected(
                "'('", hint=f"a query has parentheses, also without parameters: {self.texts[self.i - 1]}()"
            )
        self.expect("(")
        params: list[ast.Param] = []
        while not self.accept(")"):
            if params:
                self.expect(",", "',' or ')'")
            params.append(self._param())
        return tuple(params)

    def _param(self) -> ast.Param:
        start = self.i
        if self.kinds[start] == "name":
            raise self.unexpected("a parameter ($name: Type)", hint=f"write ${self.texts[start]}")
        name = self.expect("var", "a parameter ($name: Type)")[1:]
        self.expect(":")
        written = self._param_type()
        default = None
        if self.accept("="):
            default = self.literal()
            if default is None:
                raise self.unexpected("a literal as the default")
        return ast.Param(name, written, default, self.span_from(start))

    def _param_type(self) -> ValueType | ast.EnumOf:
        start = self.i
        if self.accept("["):
            scalar = self._scalar()
            self.expect("]")
            return ValueType(scalar, nullable=self.accept("?"), list=True)
        if self.kinds[start] == "type" and self.kinds[start + 1] == ".":
            type_name = self.texts[start]
            self.i += 2
            prop = self.expect("name", "a property name")
            nullable = self.accept("?")
            return ast.EnumOf(type_name, prop, nullable, self.span_from(start))
        if self.texts[start] == "Vector" and self.kinds[start] == "type":
            self.i += 1
            return self._vector_type()
        scalar = self._scalar()
        return ValueType(scalar, nullable=self.accept("?"))

    def _vector_type(self) -> ValueType:
        self.expect("(")
        digits = self.expect("int", "the vector's dimension")
        dim = int(digits) if len(digits) <= 10 else MAX_VECTOR_DIM + 1
        if not 1 <= dim <= MAX_VECTOR_DIM:
            raise self.error(f"a vector's dimension is 1 to {MAX_VECTOR_DIM:,}", span=self.tokens.span(self.i - 1))
        self.expect(")")
        return ValueType(Scalar.VECTOR, nullable=self.accept("?"), dim=dim)

    def _scalar(self) -> Scalar:
        scalar = WRITTEN_SCALARS.get(self.texts[self.i])
        if scalar is None or self.kinds[self.i] != "type":
            raise self.unexpected("a type", hint=self._type_hint())
        self.i += 1
        return scalar

    def _type_hint(self) -> str:
        text = self.texts[self.i]
        near = did_you_mean(text, WRITTEN_SCALARS)
        if self.at_word("enum"):
            return "name the property that declares the enum: Type.property"
        if text.lower() in OTHER_TYPES:
            return f"did you mean '{OTHER_TYPES[text.lower()]}'?"
        return near or "a parameter is a scalar, [scalar], Vector(n) or Type.property, the enum of a property"

    # Reads

    def _body(self) -> ast.Read | ast.Write:
        if self.at_word("match"):
            return self._read()
        if self.kinds[self.i] == "name" and self.texts[self.i] in _STATEMENTS:
            return self._write()
        stage = "a query begins with 'match { … }'" if self.at_word("with") or self.at_word("return") else None
        hint = stage or self._other_statement()
        raise self.unexpected("'match' or a statement", words=["match", *_STATEMENTS], hint=hint)

    def _match(self) -> tuple[tuple[ast.Clause, ...], Span]:
        """Parse `match { … }`. After a `with`, it may be missing."""
        start = self.i
        clauses = self.block() if self.accept_word("match") else ()
        return clauses, self.span_from(start) if clauses else Span(self.here().start, self.here().start)

    def _stage(self, start: int, match: tuple[ast.Clause, ...], match_span: Span) -> ast.Stage:
        with_start = self.i
        self.expect_word("with")
        if self.at_word("distinct"):
            raise self.unexpected("'{'", hint="group the rows with an aggregate, such as count(*)")
        projections = self._projections("with")
        with_span = self.span_from(with_start)
        having_start = self.i
        having = self._having() if self.at_word("having") else ()
        having_span = self.span_from(having_start)
        order_start = self.i
        order = self._order() if self.at_word("order") else ()
        order_span = self.span_from(order_start)
        limit = self._count("limit") if self.accept_word("limit") else None
        if not any(map(self.at_word, ("match", "with", "return"))):
            raise self._misplaced_in_stage()
        return ast.Stage(
            match,
            projections,
            having,
            order,
            limit,
            self.span_from(start),
            match_span,
            with_span,
            having_span,
            order_span,
        )

    def _misplaced_in_stage(self) -> ParseError:
        """The error for an unexpected word after the clauses of a stage."""
        words = ["having", "order", "limit"]
        if any(map(self.at_word, words)):
            word = self.texts[self.i]
            return self.error(f"'{word}' is in the wrong position: the order is with, having, order, limit")
        hint = "a stage has no offset" if self.at_word("offset") else None
        return self.unexpected("'match', 'with' or 'return'", words=[*words, "match", "with", "return"], hint=hint)

    def _read(self) -> ast.Read:
        start = stage_start = self.i
        match, match_span = self._match()
        stages: list[ast.Stage] = []
        while self.at_word("with"):
            stages.append(self._stage(stage_start, match, match_span))
            stage_start = self.i
            match, match_span = self._match()
        if self.kinds[self.i] == "name" and self.texts[self.i] in _STATEMENTS:
            raise self.error(
                "a query either reads or writes: 'match' cannot precede a write",
                hint="put the condition into the statement's 'where'",
            )
        return_start = self.i
        if not self.at_word("return"):
            hint = AFTER_MATCH.get(self.texts[self.i].lower())
            if self.kinds[self.i] in ("}", "end"):
                hint = "a query that reads ends with return { … }"
            raise self.unexpected("'with' or 'return'", words=["with", "return"], hint=hint)
        self.expect_word("return")
        distinct = self.accept_word("distinct")
        projections = self._projections("return distinct" if distinct else "return")
        return_span = self.span_from(return_start)
        having_start = self.i
        having = self._having() if self.at_word("having") else ()
        having_span = self.span_from(having_start)
        order_start = self.i
        order = self._order() if self.at_word("order") else ()
        order_span = self.span_from(order_start)
        limit = offset = None
        while self.kinds[self.i] == "name":
            if limit is None and self.accept_word("limit"):
                limit = self._count("limit")
            elif offset is None and self.accept_word("offset"):
                offset = self._count("offset")
            else:
                raise self._misplaced()
        return ast.Read(
            match,
            projections,
            distinct,
            having,
            order,
            limit,
            offset,
            tuple(stages),
            self.span_from(start),
            match_span,
            return_span,
            having_span,
            order_span,
        )

    def _misplaced(self) -> ParseError:
        """The error for an unexpected word after the clauses of a read."""
        word = self.texts[self.i]
        if word in ("limit", "offset"):
            return self.error(f"'{word}' is given twice")
        if word in ("having", "order"):
            return self.error(f"'{word}' is in the wrong position: the order is return, having, order, limit, offset")
        hint = AFTER_RETURN.get(word.lower())
        return self.unexpected("'}'", words=["having", "order", "limit", "offset"], hint=hint)

    def block(self) -> tuple[ast.Clause, ...]:
        """Parse the clauses between two braces."""
        self.descend()
        self.expect("{")
        in_where, self.in_where = self.in_where, False
        clauses = [self._clause()]
        while not self.accept("}"):
            clauses.append(self._clause())
        self.in_where = in_where
        self.ascend()
        return tuple(clauses)

    def _clause(self) -> ast.Clause:
        i = self.i
        kind, after = self.kinds[i], self.kinds[i + 1] if self.kinds[i] != "end" else "end"
        if kind == "var":
            if after == ":":
                return self._pattern()
            if self._at_traversal():
                return self._traversal(i, None)
        elif kind == "name":
            text = self.texts[i]
            if after == "{" and text in ("not", "optional"):
                self.i = i + 1
                clauses = self.block()
                span = self.span_from(i)
                return ast.Negation(clauses, span) if text == "not" else ast.Optional(clauses, span)
            if text == "shortest" and after == "var":
                return self._shortest()
            if after == "{" and text in ("return", "with"):
                raise self.unexpected("a clause or '}'", hint=f"'match {{ … }}' ends with }} before '{text}'")
            if text == "not" and after == "var" and self._negates_traversal():
                raise self.error("'not' must be followed by a block or an expression", hint="write not { … }")
        if self._at_dashes() and self.kinds[i + 2] in ("name", "type") and self.kinds[i + 3] != "(":
            raise self.error("a clause does not begin with --", hint=COMMENTS)
        if kind in ("}", "end", ","):
            hint = "clauses need no separator; remove the comma" if kind == "," else None
            raise self.unexpected("a clause: a pattern, a traversal, a filter or a block", hint=hint)
        expr = self.expression()
        if isinstance(expr, ast.Name) and self.kinds[self.i] == ":":
            raise self.error(f"'{expr.name}' is not a variable", span=expr.span, hint=f"write ${expr.name}")
        return ast.Filter(expr, self.span_from(i))

    def _pattern(self) -> ast.Pattern:
        start = self.i
        var = self.texts[start][1:]
        self.i = start + 2
        type_name = self.expect("type", "a type name (upper-case first letter)")
        type_span = self.tokens.span(self.i - 1)
        matchers: list[ast.Assign] = []
        if self.accept("{"):
            while not matchers or not self.accept("}"):
                matchers.append(self._assign("a matcher"))
                if not self.accept(",") and self.kinds[self.i] != "}":
                    raise self.unexpected("',' or '}'")
        return ast.Pattern(var, type_name, tuple(matchers), self.span_from(start), type_span)

    def _assign(self, what: str) -> ast.Assign:
        start = self.i
        if self.kinds[start] == "var" and what == "a matcher":
            hint = 'matchers compare properties with values: { name: "ann" }; other conditions follow the pattern'
            raise self.unexpected(f"{what} (name: value)", hint=hint)
        name = self.expect("name", f"{what} (name: value)")
        name_span = self.tokens.span(start)
        if self.kinds[self.i] == "=":
            raise self.unexpected("':'", hint=f"write {name}: …")
        self.expect(":")
        value = self.value("the value")
        return ast.Assign(name, value, self.span_from(start), name_span)

    def _at_traversal(self) -> bool:
        """Whether the clause that starts with this variable is a traversal, not a filter."""
        i = self.i + 1
        kinds = self.kinds
        if kinds[i] == "var":
            return True
        if kinds[i] == "name":
            if self.texts[i] == "not":
                return False
            if kinds[i + 1] in _NO_OPERAND_FOLLOWS:
                return self.texts[i] not in OPERATOR_WORDS
            return kinds[i + 1] == "{" or (kinds[i + 1] == "var" and kinds[i + 2] != ".")
        if kinds[i] in ("(", "type"):
            return True
        if kinds[i] != "<":
            return False
        i += 1
        if kinds[i] == "(":
            i += 1
        return (kinds[i] == "name" and kinds[i + 1] in (">", "|", ")")) or (
            kinds[i] == "*" and kinds[i + 1] in (">", ")")
        )

    def _at_dashes(self) -> bool:
        i = self.i
        return self.kinds[i] == "-" and self.kinds[i + 1] == "-" and self.ends[i] == self.starts[i + 1]

    def _negates_traversal(self) -> bool:
        """Whether a traversal `$a edge $b` follows a `not`, which is an error: it needs `not { … }`."""
        start = self.i
        word = start + 2
        if self.kinds[word] != "name" or self.texts[word] in {*OPERATOR_WORDS, "optional", "shortest"}:
            return False
        self.i = start + 1
        found = self._at_traversal()
        self.i = start
        return found

    def _shortest(self) -> ast.Traversal:
        start = self.i
        path_var = self._var(start + 1)
        self.i = start + 2
        self.expect(":")
        if self.kinds[self.i] != "var":
            raise self.unexpected("a traversal after 'shortest'")
        return self._traversal(start, path_var)

    def _traversal(self, start: int, path_var: ast.Var | None) -> ast.Traversal:
        left = self._var(self.i)
        self.i += 1
        edge_var = None
        if self.kinds[self.i] == "var":
            edge_var = self._var(self.i)
            self.i += 1
            self.expect(":", "':' and an edge word")
        word_start = self.i
        undirected = self.accept("<")
        words, word_spans = self._edge_words()
        if undirected:
            self.expect(">")
        word_span = self.span_from(word_start)
        hops = self._hops() if self.kinds[self.i] == "{" else None
        if self.kinds[self.i] != "var":
            raise self.unexpected("a variable ($name), the traversal's right end")
        right = self._var(self.i)
        self.i += 1
        return ast.Traversal(
            left,
            words,
            right,
            undirected,
            edge_var.name if edge_var else None,
            hops,
            path_var.name if path_var else None,
            self.span_from(start),
            word_span,
            word_spans,
            edge_var.span if edge_var else ast.NOWHERE,
            path_var.span if path_var else ast.NOWHERE,
        )

    def _edge_words(self) -> tuple[tuple[str, ...], tuple[Span, ...]]:
        grouped = self.accept("(")
        words: list[str] = []
        spans: list[Span] = []
        if not self.accept("*"):
            while not words or self.accept("|"):
                spans.append(self.here())
                words.append(self._edge_word())
            if len(words) > 1 and not grouped and self.kinds[self.i] != ">":
                raise self.error("alternative edges are written in parentheses: (a | b)")
        if grouped:
            self.expect(")")
        return tuple(words), tuple(spans)

    def _edge_word(self) -> str:
        if self.at_word("not"):
            raise self.unexpected("an edge word")
        if self.kinds[self.i] == "type":
            text = self.texts[self.i]
            raise self.unexpected(
                "an edge word", hint=f"an edge word has a lower-case first letter: {text[0].lower()}{text[1:]}"
            )
        return self.expect("name", "an edge word")

    def _hops(self) -> ast.Hops:
        start = self.i
        self.expect("{")
        if self.kinds[self.i] == ",":
            raise self.unexpected("a number of hops", hint="a range begins at 1 or more: write {1,3}")
        least = self._hop_count()
        if self.kinds[self.i] == ".":
            raise self.unexpected("',': hop ranges are written {min,max}", hint=f"write {{{least},{least + 2}}}")
        if self.kinds[self.i] == "}":
            raise self.unexpected("',': hop ranges are written {min,max}", hint=f"write {{{least},{least}}}")
        self.expect(",", "',': hop ranges are written {min,max}")
        most = None if self.kinds[self.i] == "}" else self._hop_count()
        self.expect("}")
        return ast.Hops(least, most, self.span_from(start))

    def _hop_count(self) -> int:
        digits = self.expect("int", "a number of hops")
        if len(digits) > 9:
            raise self.error("this number of hops is too large", span=self.tokens.span(self.i - 1))
        return int(digits)

    def _projections(self, words: str) -> tuple[ast.Projection, ...]:
        """Parse the columns after `words`."""
        if self.kinds[self.i] != "{":
            raise self.unexpected("'{'", hint=f"write {words} {{ … }}")
        self.expect("{")
        projections: list[ast.Projection] = []
        while not projections or not self.accept("}"):
            start = self.i
            expr = self.expression()
            self._check_no_index()
            alias = self._alias() if self.accept_word("as") else None
            projections.append(ast.Projection(expr, alias, self.span_from(start)))
            self.accept(",")
        return tuple(projections)

    def _alias(self) -> str:
        if self.kinds[self.i] == "string":
            hint = "a column name begins with a lower-case letter, and has letters, digits and _; it has no quotes"
            raise self.unexpected("a column name", hint=hint)
        return self.expect("name", "a column name")

    def _check_no_index(self) -> None:
        """Reject `$a.list[0]`. Items of `return` need no comma, so it would be a second column, with the list [0]."""
        if self.kinds[self.i] == "[" and self.i and self.ends[self.i - 1] == self.starts[self.i]:
            hint = "a query cannot select one item of a list; for another column, put a comma before the list"
            raise self.unexpected("',' or '}'", hint=hint)

    def _having(self) -> tuple[ast.Filter, ...]:
        self.i += 1
        if self.kinds[self.i] != "{":
            raise self.unexpected("'{'", hint="write having { … }")
        self.expect("{")
        filters: list[ast.Filter] = []
        while not filters or not self.accept("}"):
            start = self.i
            expr = self.expression()
            filters.append(ast.Filter(expr, self.span_from(start)))
        return tuple(filters)

    def _order(self) -> tuple[ast.Sort, ...]:
        self.i += 1
        if self.kinds[self.i] != "{":
            raise self.unexpected("'{'", hint="write order { … }")
        self.expect("{")
        keys = [self._sort()]
        while self.accept(","):
            keys.append(self._sort())
        if self.kinds[self.i] == "name" and (hint := SORT_WORDS.get(self.texts[self.i].lower())) is not None:
            raise self.unexpected("',' or '}'", hint=hint)
        self.expect("}", "',' or '}'")
        return tuple(keys)

    def _sort_key(self) -> ast.Expr:
        i = self.i
        if self.kinds[i] == "name" and self.texts[i] in ("not", "null"):
            # An alias can have these names. If the name is the complete sort key, it is an alias.
            after = self.texts[i + 1] if self.kinds[i + 1] == "name" else self.kinds[i + 1]
            if after in (",", "}", "asc", "desc"):
                self.i = i + 1
                return ast.Name(self.texts[i], self.tokens.span(i))
        return self.expression()

    def _sort(self) -> ast.Sort:
        start = self.i
        expr = self._sort_key()
        descending = nulls_first = None
        if self.accept_word("asc"):
            descending = False
        elif self.accept_word("desc"):
            descending = True
        if self.at_word("nulls"):
            self.i += 1
            nulls_first = self.accept_word("first")
            if not nulls_first and not self.accept_word("last"):
                raise self.unexpected("'first' or 'last'", words=["first", "last"])
        return ast.Sort(expr, descending, nulls_first, self.span_from(start))

    def _count(self, word: str) -> ast.Literal | ast.Var:
        """Parse the operand of `limit` or `offset`."""
        i = self.i
        if self.kinds[i] == "var":
            self.i = i + 1
            return self._var(i)
        if self.kinds[i] != "int":
            none = self.kinds[i] == "-" and word == "limit"
            hint = "for all rows, leave the limit out" if none else None
            raise self.unexpected(f"an integer or a parameter after '{word}'", hint=hint)
        return self._number(negative=False)

    # Writes

    def _write(self) -> ast.Write:
        start = self.i
        statements = []
        while self.kinds[self.i] != "}":
            statements.append(self._statement())
        return ast.Write(tuple(statements), self.span_from(start))

    def _other_statement(self) -> str | None:
        """A hint if the next word is a statement of another language."""
        meant = OTHER_STATEMENTS.get(self.texts[self.i].lower())
        return None if meant is None else f"did you mean '{meant}'?"

    def _statement(self) -> ast.Statement:
        start = self.i
        word = self.texts[start]
        if self.kinds[start] != "name" or word not in _STATEMENTS:
            raise self.unexpected("a statement or '}'", words=list(_STATEMENTS), hint=self._other_statement())
        self.i = start + 1
        kind = None
        if self.at_word("edge") or self.at_word("node"):
            kind = self.texts[self.i]
            self.i += 1
        type_name = self.expect("type")
        type_span = self.tokens.span(self.i - 1)
        if word == "update":
            if not self.at_word("set"):
                raise self.unexpected("'set'", hint=f"write update {type_name} set {{ name: value }} where …")
            self.expect_word("set")
            assigns = self._assigns()
            where = self._where()
            return ast.Update(type_name, assigns, where, kind, self.span_from(start), type_span)
        if word == "delete":
            where = self._where()
            return ast.Delete(type_name, where, kind, self.span_from(start), type_span)
        if self.kinds[self.i] != "{":
            of_kind = type_name in ("Node", "Edge") and self.kinds[self.i] == "type"
            subject = f"{type_name.lower()} {self.texts[self.i]}" if of_kind else type_name
            raise self.unexpected("'{'", hint=f"write {word} {subject} {{ name: value }}")
        assigns = self._assigns()
        mode = ast.InsertMode(word)
        return ast.Insert(mode, type_name, assigns, kind, self.span_from(start), type_span)

    def _assigns(self) -> tuple[ast.Assign, ...]:
        self.expect("{")
        assigns: list[ast.Assign] = []
        while not self.accept("}"):
            assigns.append(self._assign("an assignment"))
            self.accept(",")
        return tuple(assigns)

    def _where(self) -> ast.Expr:
        if not self.at_word("where"):
            raise self.unexpected("'where'", words=["where"], hint='a condition is required: where name = "ann"')
        self.expect_word("where")
        self.in_where = True
        where = self.expression()
        self.in_where = False
        return where
