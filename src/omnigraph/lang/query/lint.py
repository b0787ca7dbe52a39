"""The lint report of a query file: errors and warnings."""

from __future__ import annotations

from collections.abc import Sequence

from omnigraph.dataclass import dataclass
from omnigraph.errors import ParseError, SourceText, TypeCheckError
from omnigraph.lang.diagnostics import Finding, Severity, sorted_findings
from omnigraph.lang.query import ast, ir
from omnigraph.lang.query.check import check_with_context, duplicate_name
from omnigraph.lang.query.index_lint import missing_indexes
from omnigraph.lang.query.operation import Operation, describe
from omnigraph.lang.query.parser import parse_queries
from omnigraph.lang.query.rules import query_findings
from omnigraph.lang.schema.catalog import Catalog

HARD_CODED = "the mutation has no parameters, so it always writes the same values"


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The lint result of one query. `operation` is set if the query has no errors."""

    name: str
    kind: str
    warnings: tuple[str, ...] = ()
    error: TypeCheckError | None = None
    operation: Operation | None = None

    @property
    def status(self) -> str:
        return "error" if self.error is not None else "ok"

    def to_json(self) -> dict[str, object]:
        out: dict[str, object] = {"name": self.name, "kind": self.kind, "status": self.status}
        if self.warnings:
            out["warnings"] = list(self.warnings)
        if self.error is not None:
            out["error"] = str(self.error)
        if self.operation is not None:
            out["operation"] = self.operation.to_json()
        return out


@dataclass(frozen=True, slots=True)
class LintReport:
    """The report of one file.

    Attributes:
        results: one result per query, in source order; empty if the file does not parse.
        findings: sorted by severity, type, property and message.
        parse_error: the error of `Q000`, with its location.
    """

    results: tuple[QueryResult, ...]
    findings: tuple[Finding, ...]
    parse_error: ParseError | None = None
    source: SourceText | None = None

    @property
    def errors(self) -> int:
        return sum(r.error is not None for r in self.results) + self._count(Severity.ERROR)

    @property
    def warnings(self) -> int:
        return sum(len(r.warnings) for r in self.results) + self._count(Severity.WARNING)

    @property
    def infos(self) -> int:
        return self._count(Severity.INFO)

    @property
    def status(self) -> str:
        return "error" if self.errors else "ok"

    def _count(self, severity: Severity) -> int:
        return sum(f.severity is severity for f in self.findings)

    def to_json(self, schema_source: dict[str, str], query_path: str) -> dict[str, object]:
        """The report as JSON, for the command line and HTTP."""
        return {
            "status": self.status,
            "schema_source": schema_source,
            "query_path": query_path,
            "queries_processed": len(self.results),
            "errors": self.errors,
            "warnings": self.warnings,
            "infos": self.infos,
            "results": [result.to_json() for result in self.results],
            "findings": [finding.to_json() for finding in self.findings],
        }


def lint_queries(text: str | bytes, catalog: Catalog, name: str | None = None) -> LintReport:
    """Lint all queries of a text against a schema.

    Example:
        >>> from omnigraph import compile_schema
        >>> catalog = compile_schema("node Person { name: String @key }")
        >>> report = lint_queries("query all() { match { $p: Person } return { $p.name } limit 3 }", catalog)
        >>> report.status, [finding.code for finding in report.findings]
        ('ok', ['L205'])
    """
    try:
        file = parse_queries(text, name)
    except ParseError as error:
        finding = Finding(Severity.ERROR, "Q000", error.message, span=error.span)
        return LintReport((), (finding,), error, error.source)
    results: list[QueryResult] = []
    findings: list[Finding] = []
    valid: list[tuple[ast.Query, ir.Query]] = []
    seen: set[str] = set()
    for query in file.queries:
        kind = "read" if isinstance(query.body, ast.Read) else "mutation"
        warnings = (HARD_CODED,) if kind == "mutation" and not query.params else ()
        try:
            if query.name in seen:
                raise duplicate_name(query)
            checked, context = check_with_context(query, catalog)
        except TypeCheckError as error:
            error.source = file.source
            results.append(QueryResult(query.name, kind, warnings, error))
            continue
        finally:
            seen.add(query.name)
        results.append(QueryResult(query.name, kind, warnings, operation=describe(checked, catalog)))
        findings += query_findings(query, checked, context)
        valid.append((query, checked))
    findings += _never_updated(valid, catalog)
    findings += missing_indexes([checked for _, checked in valid], catalog)
    kept = [f for f in findings if not _allowed(f, catalog)]
    return LintReport(tuple(results), tuple(sorted_findings(kept)), source=file.source)


def _never_updated(valid: Sequence[tuple[ast.Query, ir.Query]], catalog: Catalog) -> list[Finding]:
    """L201: nullable properties that no update query sets."""
    sets: dict[str, set[str]] = {}
    updaters: dict[str, set[str]] = {}
    for _, query in valid:
        for statement in query.body.statements if isinstance(query.body, ir.Write) else ():
            if isinstance(statement, ir.Update) and statement.entity is ir.EntityKind.NODE:
                sets.setdefault(statement.type_name, set()).update(a.property for a in statement.assigns)
                updaters.setdefault(statement.type_name, set()).add(query.name)
    findings = []
    for type_name, names in updaters.items():
        node = catalog.nodes[type_name]
        for prop in node.properties.values():
            if prop.name in sets[type_name] or not prop.type.nullable or prop.embed is not None:
                continue
            message = f"no update of {type_name} sets {prop.name}"
            findings.append(Finding(Severity.WARNING, "L201", message, type_name, prop.name, tuple(sorted(names))))
    return findings


def _allowed(finding: Finding, catalog: Catalog) -> bool:
    """Whether the type or the property has an `@allow` for this finding."""
    owner = (catalog.edges if finding.edge else catalog.nodes).get(finding.type_name or "")
    if owner is None:
        return False
    prop = owner.properties.get(finding.property or "")
    accepted = (*owner.allows, *(prop.allows if prop else ()))
    return any(code == finding.code for code, _ in accepted)
