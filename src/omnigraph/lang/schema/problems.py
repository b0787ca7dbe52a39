"""Collects the errors of a schema, so that all can be reported at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.errors import CatalogError, SourceText, Span
from omnigraph.lang.codes.schema import CODES
from omnigraph.lang.names import did_you_mean

MAX_REPORTED = 100
"""Maximum number of reported errors. The search for suggestions is slow."""

NEWER_RULES = frozenset({"OG-SC-031", "OG-SC-032"})
"""Rules that are newer than the first graphs. They do not apply to accepted schemas."""


@dataclass(frozen=True, slots=True)
class _Problem:
    code: str
    message: str
    span: Span
    hint: str | None
    written: str | None
    known: Iterable[str]


class Problems:
    """Collects problems, without duplicates of the same code and location.

    Args:
        source: the checked text.
        accepted: whether the schema was accepted before. Newer rules then do not apply, so old graphs stay readable.
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
            hint: how to fix it.
            unknown: an unknown name, and the known names. The most similar one becomes the hint.
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
