"""The checks of a run: SQL that must return no rows, and queries on the branch with an expected number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from omnigraph.dataclass import dataclass
from omnigraph.errors import Disposition, InputError, OmnigraphError, cut, shown
from omnigraph.graph import Graph
from omnigraph.pipeline.declared.document import Check, Document, QueryCheck, SqlCheck
from omnigraph.pipeline.declared.views import Views, mentions, view_name

_SHOWN = 3
"""Number of rows that the message of a failed check shows."""

_LONGEST = 300
"""Maximum length of the shown rows, in characters."""

Job = Callable[[str], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The result of a check.

    Attributes:
        name: the name of the check.
        passed: whether it passed; None if it needs rows that are not loaded yet.
        rows: the number of rows that the check found.
        detail: the reason why the check failed or was not run.
    """

    name: str
    passed: bool | None
    rows: int = 0
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" if self.detail else self.name

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "passed": self.passed, "rows": self.rows, "detail": self.detail or None}


def check_all(
    document: Document, graph: Graph, branch: str, views: Callable[[], Views], job: Job
) -> list[CheckOutcome]:
    """Run all checks on the head of the branch.

    Args:
        document: the declaration.
        graph: the graph.
        branch: the branch.
        views: returns the SQL views of the sources and steps.
        job: runs work on Spark.

    Raises:
        InputError: a check cannot be run.
    """
    texts = [check.sql for check in document.checks if isinstance(check, SqlCheck)]
    if texts:
        with job("checking"):
            views().add_types(graph.snapshot(branch=branch), texts)
    return [_outcome(document, check, graph, branch, views, job) for check in document.checks]


def check_input(document: Document, graph: Graph, views: Callable[[], Views], job: Job) -> list[CheckOutcome]:
    """Run the checks that need no loaded rows: SQL over sources and steps. Queries are only compiled.

    Raises:
        InputError: a check cannot be run.
    """
    outcomes = []
    view = graph.snapshot(branch=document.base)
    for check in document.checks:
        if isinstance(check, SqlCheck):
            later = any(mentions(check.sql, view_name(key)) for key in view.tables)
            known = None if later else _outcome(document, check, graph, document.base, views, job)
            outcomes.append(known or CheckOutcome(check.name, None, detail="runs after the load"))
            continue
        with _located(document, check):
            graph.explain(check.text, check.params, name=check.query, branch=document.base)
        outcomes.append(CheckOutcome(check.name, None, detail="runs after the load"))
    return outcomes


def _outcome(
    document: Document, check: Check, graph: Graph, branch: str, views: Callable[[], Views], job: Job
) -> CheckOutcome:
    if isinstance(check, SqlCheck):
        with job("checking"):
            found = views().sql(check.sql, f"checks.{check.name}")
            first = found.limit(_SHOWN).toArrow().to_pylist()
            if not first:
                return CheckOutcome(check.name, True)
            count = found.count()
        return CheckOutcome(check.name, False, count, f"found {_rows(count)}, expected none{_first(first, count)}")
    with _located(document, check):
        result = graph.query(check.text, check.params, name=check.query, branch=branch)
    rows = result.row_count
    if check.least <= rows and (check.most is None or rows <= check.most):
        return CheckOutcome(check.name, True, rows)
    first_rows = _first(result.to_arrow().slice(0, _SHOWN).to_pylist(), rows)
    return CheckOutcome(check.name, False, rows, f"found {_rows(rows)}, expected {_expected(check)}{first_rows}")


def _first(rows: Sequence[Mapping[str, Any]], count: int) -> str:
    """The first rows that a check found, for a message; empty if it found none."""
    texts = [", ".join(f"{name}={shown(value)}" for name, value in row.items()) for row in rows]
    more = "; …" if count > len(rows) else ""
    return f": {cut('; '.join(texts), _LONGEST)}{more}" if texts else ""


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def _expected(check: QueryCheck) -> str:
    if check.least == check.most:
        return _rows(check.least) if check.least else "none"
    bounds = [f"at least {check.least}"] if check.least else []
    return " and ".join(bounds + ([f"at most {check.most}"] if check.most is not None else []))


@contextmanager
def _located(document: Document, check: QueryCheck) -> Iterator[None]:
    """Add the position in the file to errors of a query."""
    try:
        yield
    except OmnigraphError as error:
        if error.disposition is not Disposition.FIX:
            raise
        raise InputError(f"{document.file}: checks.{check.name}: {error.message}", hint=error.hint) from error
