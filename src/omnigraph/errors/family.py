"""Base classes of all errors. Everything that the library raises on purpose is an `OmnigraphError`."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from omnigraph.errors.source import Location, SourceText, Span, printable


class Disposition(StrEnum):
    """The next step for the caller."""

    FIX = "fix"
    """The request is wrong. Sending it again fails again."""
    RETRY = "retry"
    """Nothing happened. The same request can succeed later."""
    DECIDE = "decide"
    """Nothing happened, because of a concurrent change. Read again, then decide."""
    UNKNOWN = "unknown"
    """The request may or may not have taken effect. Read the graph before sending it again."""


class OmnigraphError(Exception):
    """Base of every error that the library raises on purpose. Tracebacks show the hint below the message.

    Attributes:
        code: stable identifier of the kind of error. Programs match on it.
        disposition: the next step for the caller.
        hint: how to solve the problem, in one sentence.
        span: the location in the source text, as UTF-8 byte offsets.
        request_id: the id of the request, in an error that a server has answered. It is in the log of the server.
    """

    code: ClassVar[str] = "internal"
    disposition: Disposition = Disposition.FIX
    request_id: str | None = None

    def __init__(self, message: str, *, hint: str | None = None, span: Span | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.span = span
        if hint:
            self.add_note(f"help: {hint}")

    @property
    def retryable(self) -> bool:
        """Whether the same request can succeed if it is sent again later."""
        return self.disposition is Disposition.RETRY

    def render(self) -> str:
        """The error as text for people, with the hint. It can have several lines."""
        return printable(f"{self}\n  help: {self.hint}" if self.hint else str(self))


class InputError(OmnigraphError):
    """A parameter, option or file cannot be used."""

    code = "bad_request"


class NotFoundError(OmnigraphError):
    """The named object does not exist."""

    code = "not_found"


class ConflictError(OmnigraphError):
    """Another write was committed first, or the object to create already exists."""

    code = "conflict"
    disposition = Disposition.DECIDE


class RetryableError(OmnigraphError):
    """A temporary condition stopped the request before it had any effect."""

    code = "retry"
    disposition = Disposition.RETRY


class OutcomeUnknownError(OmnigraphError):
    """The request may or may not have taken effect. The library cannot find out."""

    code = "outcome_unknown"
    disposition = Disposition.UNKNOWN


class CompileError(OmnigraphError):
    """A `.pg` or `.gq` text that does not compile.

    Attributes:
        diagnostic: the stable code of the broken rule (`T6`, `OG-SC-004`), if it has one.
        source: the compiled text. The error shows the line from it.
    """

    code = "compile"
    family: ClassVar[str] = "compile"

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        diagnostic: str | None = None,
        hint: str | None = None,
        source: SourceText | None = None,
    ) -> None:
        super().__init__(message, hint=hint, span=span)
        self.diagnostic = diagnostic
        self._excerpt: str | None = None
        self.source = source

    @property
    def source(self) -> SourceText | None:
        return self._source

    @source.setter
    def source(self, source: SourceText | None) -> None:
        """Set the source text. Tracebacks then show the line with the error, above the hint.

        The checker raises errors without a source. The compiler adds it.
        """
        self._source = source
        notes = [note for note in getattr(self, "__notes__", ()) if note != self._excerpt]
        self._excerpt = None
        if source is not None and self.span is not None:
            self._excerpt = printable(source.excerpt(self.span))
            notes.insert(0, self._excerpt)
        self.__notes__ = notes

    def __str__(self) -> str:
        code = f"{self.diagnostic}: " if self.diagnostic else ""
        return f"{self.family} error: {code}{self.message}"

    @property
    def location(self) -> Location | None:
        """Line and column of the error, if known."""
        if self.source is None or self.span is None:
            return None
        return self.source.locate(self.span.start)

    def render(self) -> str:
        """Message, source line with a caret, and hint."""
        lines = [str(self)]
        if self.source is not None and self.span is not None:
            lines.append(self.source.excerpt(self.span))
        if self.hint:
            lines.append(f"  = help: {self.hint}")
        return printable("\n".join(lines))


class ParseError(CompileError):
    """The text does not follow the grammar."""

    code = "parse"
    family = "parse"


class CatalogError(CompileError):
    """A schema follows the grammar but is inconsistent, or names something that does not exist."""

    code = "catalog"
    family = "catalog"


class TypeCheckError(CompileError):
    """A query follows the grammar but does not fit the schema."""

    code = "type"
    family = "type"


class PlanError(CompileError):
    """A schema change is not possible."""

    code = "plan"
    family = "plan"
