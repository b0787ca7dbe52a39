"""Collects the errors of a schema, so that all can be reported at once."""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.dataclass import dataclass
from omnigraph.errors import CatalogError, SourceText, Span
from omnigraph.lang.codes.schema import CODES
from omnigraph.lang.names import did_you_mean

MAX_REPORTED = 100
"""Maximum number of reported errors. It limits the time, because each error may search for a similar name."""

NEWER_RULES = frozenset({"OG-SC-031", "OG-SC-032", "OG-SC-033"})
"""Rules that did not exist when the first graphs were created. They apply only to new schema texts."""


@dataclass(frozen=True, slots=True)
class _Problem:
    code: str
    message: str
    span: Span
    hint: str | None
    written: str | None
    known: Iterable[str]


class Problems:
    """Collects problems. Of several problems with the same code and location, only the first is kept.

    Args:
        source: the checked text.
        accepted: whether a graph already has this schema. If so, `NEWER_RULES` do not apply: old graphs stay readable.
    """

    def __init__(self, source: SourceText, *, accepted: bool = False) -> None:
        self._source = source
        self._ignored = NEWER_RULES if accepted else frozenset()
        self._problems: dict[tuple[str, Span], _Problem] = {}

    def report(
        self,
        code: str,
        message: str,
        span: Span,
        *,
        hint: str | None = None,
        unknown: tuple[str, Iterable[str]] | None = None,
    ) -> None:
        """Add a problem.

        Args:
            code: the diagnostic code.
            message: the message.
            span: the location.
            hint: how to fix the problem.
            unknown: an unknown name, and the known names. The hint then suggests the most similar known name.
        """
        assert code in CODES, code
        if code in self._ignored:
            return
        written, known = unknown or (None, ())
        self._problems.setdefault((code, span), _Problem(code, message, span, hint, written, known))

    def errors(self) -> list[CatalogError]:
        """The problems in source order, at most `MAX_REPORTED`."""
        ordered = sorted(self._problems.values(), key=lambda problem: problem.span)
        return [self._error(problem) for problem in ordered[:MAX_REPORTED]]

    def raise_first(self) -> None:
        """Raise the first problem in source order, if there is one."""
        if self._problems:
            raise self._error(min(self._problems.values(), key=lambda problem: problem.span))

    def muted(self) -> Problems:
        """A collector whose problems are discarded."""
        return Problems(self._source)

    def _error(self, problem: _Problem) -> CatalogError:
        hint = problem.hint
        if problem.written is not None:
            hint = did_you_mean(problem.written, problem.known) or hint
        return CatalogError(problem.message, span=problem.span, diagnostic=problem.code, hint=hint, source=self._source)
