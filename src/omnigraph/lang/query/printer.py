"""Printer and formatter of `.gq`: canonical source text. Parsing it gives an equal tree."""

from __future__ import annotations

import re
from collections.abc import Sequence

from omnigraph.errors import Span
from omnigraph.lang.layout import INDENT, WIDTH, Layout
from omnigraph.lang.query import ast
from omnigraph.lang.query.parser import parse_queries, too_deep
from omnigraph.lang.query.print_expr import assign, clause_text, expression, filter_clause
from omnigraph.lang.tokens import quote

_ALIAS_WITH_ORDER = re.compile(r"null$|not (?:asc|desc)\b")
"""Matches a sort key that the parser would read as an alias, with or without a direction."""


def print_queries(file: ast.QueryFile) -> str:
    """Print a tree as canonical source. Parsing it gives an equal tree."""
    return _Printer(Layout()).file(file)


def format_queries(text: str | bytes, name: str | None = None) -> str:
    """Format a `.gq` text. Comments are kept.

    Raises:
        ParseError: the text does not follow the grammar.
    """
    file = parse_queries(text, name)
    try:
        return _Printer(Layout(file.tokens)).file(file)
    except RecursionError:
        raise too_deep(file.source, file.queries[0].span) from None


class _Printer:
    def __init__(self, out: Layout) -> None:
        self.out = out

    def file(self, file: ast.QueryFile) -> str:
        for i, query in enumerate(file.queries):
            if i:
                self.out.blank()
            self.query(query)
        return self.out.text()

    def query(self, query: ast.Query) -> None:
        head = Span(query.span.start, query.body_span.start + 1)
        params = [_param(p) for p in query.params]
        texts = {
            "description": query.description,
            "instruction": query.instruction,
            "deprecated": query.deprecated,
        }
        notes = [f"@{word}({quote(text)})" for word, text in texts.items() if text is not None]
        line = " ".join([f"query {query.name}({', '.join(params)})", *notes, "{"])
        if len(line) > WIDTH:
            line = _long_head(query.name, params, notes)
        self.out.open(line, head if query.span.end else None)
        if isinstance(query.body, ast.Read):
            self.read(query.body)
        else:
            for statement in query.body.statements:
                self.statement(statement)
        self.out.close(end=query.span.end or None)

    def read(self, read: ast.Read) -> None:
        for stage in read.stages:
            self.rows(stage, "with", stage.with_span)
            self.count("limit", stage.limit)
        self.rows(read, "return distinct" if read.distinct else "return", read.return_span)
        self.count("limit", read.limit)
        self.count("offset", read.offset)

    def rows(self, part: ast.Read | ast.Stage, word: str, span: Span) -> None:
        """Print the clauses of a read or a stage, except its counts."""
        if part.match:
            self.block("match", part.match, part.match_span)
        self.listing(word, [_projection(p) for p in part.projections], part.projections, span)
        if part.having:
            filters = [filter_clause(f.expr, guard_end=i + 1 < len(part.having)) for i, f in enumerate(part.having)]
            self.listing("having", filters, part.having, part.having_span, separator="")
        if part.order:
            self.listing("order", [_sort(s) for s in part.order], part.order, part.order_span)

    def count(self, word: str, count: ast.Literal | ast.Var | None) -> None:
        if count is not None:
            self.out.line(f"{word} {expression(count)}", count.span if count.span.end else None)

    def has_comment(self, span: Span) -> bool:
        """Whether a block contains a comment after its opening brace. An earlier comment is printed above the block."""
        return self.out.has_comment(Span(self.out.opening(span).end, span.end))

    def block(self, word: str, clauses: Sequence[ast.Clause], span: Span) -> None:
        """Print `word { clauses }`: a single simple clause on the same line, else one clause per line."""
        placed = span if span.end else None
        if len(clauses) == 1 and not isinstance(clauses[0], ast.Negation | ast.Optional):
            line = f"{word} {{ {clause_text(clauses[0])} }}"
            if len(line) + 2 * len(INDENT) <= WIDTH and not self.has_comment(span):
                self.out.line(line, placed)
                return
        self.out.open(f"{word} {{", self.out.opening(span) if placed else None)
        for i, clause in enumerate(clauses):
            self.clause(clause, last=i + 1 == len(clauses))
        self.out.close(end=placed.end if placed else None)

    def clause(self, clause: ast.Clause, *, last: bool) -> None:
        if isinstance(clause, ast.Negation | ast.Optional):
            self.block("not" if isinstance(clause, ast.Negation) else "optional", clause.clauses, clause.span)
            return
        existence = _existence(clause)
        if existence is not None:
            self.block(*existence, clause.span)
            return
        text = clause_text(clause, guard_end=not last)
        self.out.line(text, clause.span if clause.span.end else None)

    def listing(
        self,
        word: str,
        items: list[str],
        nodes: Sequence[ast.Projection | ast.Filter | ast.Sort | ast.Assign],
        span: Span,
        separator: str = ",",
        tail: str = "",
    ) -> None:
        """Print `word { item, item }` on one line if it fits, else one item per line."""
        placed = span if span.end else None
        joined = f"{separator} ".join(items) if separator else "  ".join(items)
        line = f"{word} {{ {joined} }}{tail}" if items else f"{word} {{ }}{tail}"
        fits = len(line) + 2 * len(INDENT) <= WIDTH and (separator or len(items) < 2)
        if fits and not self.has_comment(span):
            self.out.line(line, placed)
            return
        self.out.open(f"{word} {{", self.out.opening(span) if placed else None)
        for i, (item, node) in enumerate(zip(items, nodes, strict=True)):
            comma = separator if i + 1 < len(items) else ""
            self.out.line(item + comma, node.span if node.span.end else None)
        self.out.close("}" + tail, end=placed.end if placed else None)

    def statement(self, statement: ast.Statement) -> None:
        kind = f"{statement.kind} " if statement.kind else ""
        span = statement.span
        if isinstance(statement, ast.Delete):
            text = f"delete {kind}{statement.type_name} where {expression(statement.where, in_where=True)}"
            self.out.line(text, span if span.end else None)
            return
        assigns = [assign(a) for a in statement.assigns]
        if isinstance(statement, ast.Insert):
            word, tail = f"{statement.mode.value} {kind}{statement.type_name}", ""
        else:
            word = f"update {kind}{statement.type_name} set"
            tail = f" where {expression(statement.where, in_where=True)}"
        self.listing(word, assigns, statement.assigns, span, tail=tail)


def _long_head(name: str, params: Sequence[str], notes: Sequence[str]) -> str:
    """Print the head of a query that does not fit on one line. Splits the parameters first if they are too long."""
    head = f"query {name}({', '.join(params)})"
    if len(head) > WIDTH:
        head = "\n".join([f"query {name}(", ",\n".join(INDENT + p for p in params), ")"])
        if 2 + sum(len(note) + 1 for note in notes) <= WIDTH:
            return " ".join([head, *notes, "{"])
    return "\n".join([head, *(INDENT + note for note in notes), "{"])


def parameter_type(param: ast.Param) -> str:
    """The type of a parameter, as it is written."""
    if isinstance(param.type, ast.EnumOf):
        return f"{param.type.type_name}.{param.type.property}{'?' if param.type.nullable else ''}"
    return str(param.type)


def _param(param: ast.Param) -> str:
    default = "" if param.default is None else f" = {expression(param.default)}"
    return f"${param.name}: {parameter_type(param)}{default}"


def _existence(clause: ast.Clause) -> tuple[str, tuple[ast.Clause, ...]] | None:
    """The words and clauses of a filter that is only `exists { … }` or `not exists { … }`; None for other clauses."""
    negated = isinstance(clause, ast.Filter) and isinstance(clause.expr, ast.Not)
    expr = clause.expr if isinstance(clause, ast.Filter) else None
    expr = expr.operand if isinstance(expr, ast.Not) else expr
    if not isinstance(expr, ast.BlockValue) or expr.function != "exists":
        return None
    return "not exists" if negated else "exists", expr.clauses


def _projection(projection: ast.Projection) -> str:
    text = expression(projection.expr)
    return text if projection.alias is None else f"{text} as {projection.alias}"


def _sort(sort: ast.Sort) -> str:
    text = expression(sort.expr)
    if _ALIAS_WITH_ORDER.match(text) and not isinstance(sort.expr, ast.Name):
        text = f"({text})"
    if sort.descending is not None:
        text += " desc" if sort.descending else " asc"
    if sort.nulls_first is not None:
        text += " nulls first" if sort.nulls_first else " nulls last"
    return text
