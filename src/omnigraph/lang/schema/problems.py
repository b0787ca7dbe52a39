"""What is wrong with a schema, collected so that a person can mend it in one go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from omnigraph.errors import CatalogError, SourceText, Span
from omnigraph.lang.names import did_you_mean
from omnigraph.lang.schema.codes import CODES

MAX_REPORTED = 100
"""How many problems are shown. Suggestions cost time, and nobody reads a thousand."""

YOUNG_RULES = frozenset({"OG-SC-031", "OG-SC-032"})
"""Rules that came after the first graphs."""


@dataclass(frozen=True, slots=True)
class _Problem:
    code: str
    message: str
    span: Span
    hint: str | None
    written: str | None
    known: Iterable[str]


class Problems:
    """Collects problems; each place has each kind of problem once.

    Args:
        source: the text that is judged.
        accepted: whether it was accepted before: rules that are younger than graphs do not make one unreadable.
    """

    def __init__(self, source: SourceText, *, accepted: bool = False) -> None:
        self._source = source
        self._ignored = YOUNG_RULES if accepted else frozenset()
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
        """Note a problem.

        Args:
            code: its registered code.
            message: what is wrong.
            span: where.
            hint: what to do.
            unknown: a name that does not exist, and those that do; the nearest becomes the hint.
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
        """A collector that nobody reads."""
        return Problems(self._source)

    def _error(self, problem: _Problem) -> CatalogError:
        hint = problem.hint
        if problem.written is not None:
            hint = did_you_mean(problem.written, problem.known) or hint
        return CatalogError(problem.message, span=problem.span, diagnostic=problem.code, hint=hint, source=self._source)
